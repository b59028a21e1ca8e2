// Random weights in every form that a MatrixSource takes, their dense values, and a double loop to compare with.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "backend/cpu/linear.h"
#include "coreai/base/dtype.h"
#include "coreai/base/float_types.h"

namespace coreai::cpu::test {

// Bytes aligned for packed matrices and activation rows, of exactly the asked size (so that a sanitizer sees the end).
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size)
      : size_(size), data_(static_cast<std::byte*>(::operator new(size, std::align_val_t{kPackAlignment})), Delete{}) {
    std::memset(data_.get(), 0, size);
  }
  std::byte* data() const { return data_.get(); }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

 private:
  struct Delete {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{kPackAlignment}); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Delete> data_;
};

struct WeightSpec {
  DType dtype = DType::kF32;
  std::int64_t n = 1;
  std::int64_t k = 1;
  std::int64_t block = 0;
  std::int64_t rows_per_scale = 1;
  DType scale = DType::kF32;
  bool offset1 = false;
  DType offset2 = DType::kI1;  // kI1: none
  bool transposed = false;
};

// Storage starts at odd addresses: sources may lie anywhere in a file.
class Weight {
 public:
  Weight(const WeightSpec& spec, unsigned seed) : spec_(spec), random_(seed) {
    fill_data();
    if (spec.block == 0) return;
    const std::int64_t count = spec.n / spec.rows_per_scale * (spec.k / spec.block);
    std::uniform_real_distribution<float> scales(0.002f, 0.02f);
    std::uniform_real_distribution<float> offsets(-0.1f, 0.1f);
    scale_values_ = fill_floats(scale_, spec.scale, count, [&] { return scales(random_); });
    if (spec.offset2 != DType::kI1) {
      offset2_values_ = fill_floats(offset2_, spec.offset2, count, [&] { return offsets(random_); });
    }
    if (spec.offset1) offset1_values_ = fill_integers(offset1_, count);
  }

  MatrixSource source() const {
    const auto view = [](const std::vector<std::byte>& v) {
      return v.empty() ? std::span<const std::byte>{} : std::span(v).subspan(1);
    };
    return {.dtype = spec_.dtype,
            .data = view(data_),
            .n = spec_.n,
            .k = spec_.k,
            .transposed = spec_.transposed,
            .block = spec_.block,
            .rows_per_scale = spec_.rows_per_scale,
            .scale_dtype = spec_.scale,
            .scale = view(scale_),
            .offset1 = view(offset1_),
            .offset2_dtype = spec_.offset2 == DType::kI1 ? DType::kF32 : spec_.offset2,
            .offset2 = view(offset2_)};
  }
  std::int64_t n() const { return spec_.n; }
  std::int64_t k() const { return spec_.k; }

  std::vector<float> dense() const {
    std::vector<float> result(values_.size());
    for (std::int64_t r = 0; r < spec_.n; ++r) {
      for (std::int64_t c = 0; c < spec_.k; ++c) {
        float value = values_[r * spec_.k + c];
        if (spec_.block != 0) {
          const std::int64_t i = r / spec_.rows_per_scale * (spec_.k / spec_.block) + c / spec_.block;
          value -= offset1_values_.empty() ? 0.0f : offset1_values_[i];
          value = std::fma(scale_values_[i], value, offset2_values_.empty() ? 0.0f : offset2_values_[i]);
        }
        result[r * spec_.k + c] = value;
      }
    }
    return result;
  }

 private:
  void fill_data() {
    const std::int64_t count = spec_.n * spec_.k;
    std::vector<float> stored;
    if (is_integer(spec_.dtype)) {
      stored = fill_integers(data_, count);
    } else {
      std::normal_distribution<float> normal(0.0f, 0.05f);
      stored = fill_floats(data_, spec_.dtype, count, [&] { return normal(random_); });
    }
    values_ = stored;
    if (!spec_.transposed) return;
    for (std::int64_t r = 0; r < spec_.n; ++r) {
      for (std::int64_t c = 0; c < spec_.k; ++c) values_[r * spec_.k + c] = stored[c * spec_.n + r];
    }
  }

  template <class Next>
  std::vector<float> fill_floats(std::vector<std::byte>& out, DType dtype, std::int64_t count, Next next) {
    const std::size_t width = dtype == DType::kF32 ? 4 : 2;
    out.resize(1 + width * static_cast<std::size_t>(count));
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
      float value = next();
      std::byte* place = out.data() + 1 + width * static_cast<std::size_t>(i);
      if (dtype == DType::kF32) {
        std::memcpy(place, &value, 4);
      } else {
        const std::uint16_t bits = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
        std::memcpy(place, &bits, 2);
        value = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      }
      values.push_back(value);
    }
    return values;
  }

  std::vector<float> fill_integers(std::vector<std::byte>& out, std::int64_t count) {
    const int bits = dtype_bits(spec_.dtype);
    const bool is_signed = dtype_class(spec_.dtype) == DTypeClass::kSigned;
    out.resize(1 + dtype_bytes(spec_.dtype, static_cast<std::uint64_t>(count)));
    std::uniform_int_distribution<std::uint32_t> codes(0, (1u << bits) - 1);
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t code = codes(random_);
      for (int b = 0; b < bits; ++b) {
        const std::int64_t place = i * bits + b;
        if ((code >> b) & 1u) out[1 + place / 8] |= static_cast<std::byte>(1u << (place % 8));
      }
      const bool negative = is_signed && (code >> (bits - 1)) != 0;
      values.push_back(static_cast<float>(static_cast<int>(code) - (negative ? 1 << bits : 0)));
    }
    return values;
  }

  WeightSpec spec_;
  std::mt19937 random_;
  std::vector<std::byte> data_, scale_, offset1_, offset2_;
  std::vector<float> values_, scale_values_, offset1_values_, offset2_values_;
};

// Normal values, every 97th an outlier of 12x.
inline std::vector<float> random_activations(std::int64_t m, std::int64_t k, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(static_cast<std::size_t>(m * k));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = normal(random) * (i % 97 == 96 ? 12.0f : 1.0f);
  return x;
}

inline std::vector<double> reference(const std::vector<float>& w, std::span<const float> x, std::int64_t m,
                                     std::int64_t n, std::int64_t k) {
  std::vector<double> y(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < k; ++c) sum += static_cast<double>(w[j * k + c]) * static_cast<double>(x[i * k + c]);
      y[i * n + j] = sum;
    }
  }
  return y;
}

inline double relative_error(std::span<const float> y, std::span<const double> expected) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (y[i] - expected[i]) * (y[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

inline double activation_of(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kIdentity:
      break;
  }
  return x;
}

inline AlignedBytes pack_all(std::vector<MatrixSource> sources, PackOptions options) {
  const PackPlan plan(std::move(sources), options);
  AlignedBytes out(plan.size());
  pack(plan, out.data());
  return out;
}

inline AlignedBytes quantize(std::span<const float> x, std::int64_t m, std::int64_t k, Digits digits, Isa isa) {
  AlignedBytes out(activation_row_bytes(k, digits, isa) * static_cast<std::size_t>(m));
  quantize_rows(x.data(), k, k, 0, m, digits, isa, out.data());
  return out;
}

// y[m, outputs] of a dense x; `args` gives epilogue, precision and level.
inline std::vector<float> run(const PackedMatrix& matrix, std::span<const float> x, std::int64_t m, LinearArgs args) {
  std::vector<float> y(static_cast<std::size_t>(m * matrix.outputs()));
  AlignedBytes digits(0);
  if (matrix.takes_digits()) digits = quantize(x, m, matrix.k(), args.precision, args.isa);
  args.weights = &matrix;
  args.m = m;
  args.digits = digits.data();
  args.x = x.data();
  args.x_stride = matrix.k();
  args.y = y.data();
  args.y_stride = matrix.outputs();
  linear_chunk(args, 0, matrix.units());
  return y;
}

inline std::vector<float> run(const PackedMatrix& matrix, std::span<const float> x, std::int64_t m, Digits precision,
                              Isa isa) {
  return run(matrix, x, m, LinearArgs{.precision = precision, .isa = isa});
}

}  // namespace coreai::cpu::test
