// Quantisation: quantize, dequantize, blockwise shift and scale, statistics.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

// Real values of any dtype: exact for all but 64-bit integers.
std::vector<double> reals(const NDArray& array) {
  if (array.dtype() == DType::kF64) {
    const Elements<double> values(array);
    return {values.span().begin(), values.span().end()};
  }
  const bool wide = is_integer(array.dtype()) && dtype_bits(array.dtype()) > 16;
  if (wide) {
    const Elements<double> values(array);
    return {values.span().begin(), values.span().end()};
  }
  const Elements<float> values(array);
  return {values.span().begin(), values.span().end()};
}

// A result of f16, bf16, f32 is computed in f32 and rounded once more by the store.
NDArray rounded(DType dtype, const Shape& shape, const std::vector<double>& values) {
  if (dtype == DType::kF64 || !is_float(dtype)) return stored(dtype, shape, values);
  return stored(dtype, shape, std::vector<float>(values.begin(), values.end()));
}

struct Bounds {
  double low, high;
};

Bounds bounds_of(const Call& call, DType dtype) {
  if (is_integer(dtype)) {
    const int bits = dtype_bits(dtype);
    if (dtype_class(dtype) == DTypeClass::kSigned) return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
    return {0.0, std::ldexp(1.0, bits) - 1};
  }
  switch (dtype) {
    case DType::kF8E4M3FN:
      return {-448.0, 448.0};
    case DType::kF8E5M2:
      return {-57344.0, 57344.0};
    case DType::kF4E2M1FN:
      return {-6.0, 6.0};
    default:
      call.unsupported("the result type has no quantised form");
  }
}

// Which parameter belongs to each element: per axis, or one for all.
struct Parameters {
  std::vector<double> scale, offset1, offset2;
  std::int64_t inner = 1, count = 1;
  std::size_t index(std::size_t element) const {
    return static_cast<std::size_t>(static_cast<std::int64_t>(element) / inner % count);
  }
};

double at(const std::vector<double>& values, std::size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

// Operands: input, scale, offset1, [offset2,] axis.
Parameters parameters(const Call& call, bool has_offset2) {
  const Shape& shape = call.input(0).shape();
  Parameters p;
  p.scale = reals(call.input(1));
  p.offset1 = reals(call.input(2));
  p.offset2 = has_offset2 ? reals(call.input(3)) : std::vector<double>{0.0};
  const std::size_t axis_operand = has_offset2 ? 4 : 3;
  const std::size_t count = std::max({p.scale.size(), p.offset1.size(), p.offset2.size()});
  for (const auto* values : {&p.scale, &p.offset1, &p.offset2}) {
    if (values->size() != 1 && values->size() != count) call.shape_error("scale and offsets differ in length");
  }
  if (count != 1 || call.input(1).shape().rank() == 1) {
    const std::vector<std::int64_t> axes = int_list(call, axis_operand);
    if (axes.size() == 1) {
      const std::size_t axis = axis_index(call, axes[0], shape.rank());
      if (count != 1 && static_cast<std::int64_t>(count) != shape[axis]) {
        call.shape_error(fmt::format("{} scales for a dimension of {}", count, shape[axis]));
      }
      p.inner = extent_product(shape, axis + 1, shape.rank());
    } else if (count != 1) {
      call.shape_error("a vector of scales needs one axis");
    }
  }
  p.count = static_cast<std::int64_t>(count);
  p.inner = std::max<std::int64_t>(p.inner, 1);
  return p;
}

Results quantize_with(const Call& call, bool has_offset2) {
  const NDArray& x = call.input(0);
  const Parameters p = parameters(call, has_offset2);
  const DType to = call.result_dtype();
  const Bounds bounds = bounds_of(call, to);
  std::vector<double> values = reals(x);
  const bool in_f32 = x.dtype() != DType::kF64;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t k = p.index(i);
    double q = (values[i] - at(p.offset2, k)) / at(p.scale, k);
    if (in_f32)
      q = static_cast<double>(static_cast<float>(values[i] - at(p.offset2, k)) / static_cast<float>(at(p.scale, k)));
    // Rounding belongs to integer codes; a float code is rounded by its format.
    if (is_integer(to)) q = std::nearbyint(q);
    q += at(p.offset1, k);
    values[i] = std::isnan(q) ? 0.0 : std::clamp(q, bounds.low, bounds.high);
  }
  NDArray out(to, x.shape());
  write_from_f64(out, values);
  return {std::move(out)};
}

Results dequantize_with(const Call& call, bool has_offset2) {
  const NDArray& x = call.input(0);
  const Parameters p = parameters(call, has_offset2);
  const DType to = call.result_dtype();
  const bool in_f32 = to != DType::kF64;
  std::vector<double> values = reals(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t k = p.index(i);
    double product = (values[i] - at(p.offset1, k)) * at(p.scale, k);
    if (in_f32) product = static_cast<double>(static_cast<float>(product));
    values[i] = product + at(p.offset2, k);
  }
  return {rounded(to, x.shape(), values)};
}

}  // namespace

Results quantize_v1_kernel(const Call& call) {
  return quantize_with(call, false);
}
Results quantize_kernel(const Call& call) {
  return quantize_with(call, true);
}
Results dequantize_v1_kernel(const Call& call) {
  return dequantize_with(call, false);
}
Results dequantize_kernel(const Call& call) {
  return dequantize_with(call, true);
}

namespace {

// A scale or an offset: one value for all, or one per block along every axis.
class BlockParameter {
 public:
  BlockParameter(const Call& call, std::size_t operand, const Shape& data) : values_(call.input(operand)) {
    const Shape& blocks = call.input(operand).shape();
    strides_.assign(data.rank(), 0);
    block_.assign(data.rank(), 1);
    if (blocks.rank() == 0) return;
    if (blocks.rank() != data.rank()) call.shape_error("data and scale differ in rank");
    strides_ = blocks.row_major_strides();
    for (std::size_t d = 0; d < data.rank(); ++d) {
      if (blocks[d] == 0 ? data[d] != 0 : data[d] % blocks[d] != 0) {
        call.shape_error(fmt::format("{} blocks do not divide {} elements", blocks[d], data[d]));
      }
      if (blocks[d] > 0) block_[d] = std::max<std::int64_t>(data[d] / blocks[d], 1);
    }
  }
  // Position of the first block of a row of the last axis.
  std::int64_t row(const std::vector<std::int64_t>& index) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d + 1 < block_.size(); ++d) at += index[d] / block_[d] * strides_[d];
    return at;
  }
  // The value for element `i` of a row. Elements up to the next multiple of run() share it.
  float at(std::int64_t row, std::int64_t i) const {
    return values_[static_cast<std::size_t>(row + (strides_.empty() ? 0 : i / block_.back() * strides_.back()))];
  }
  std::int64_t run(std::int64_t extent) const {
    return strides_.empty() || strides_.back() == 0 ? std::max<std::int64_t>(extent, 1) : block_.back();
  }

 private:
  Elements<float> values_;
  std::vector<std::int64_t> strides_, block_;
};

// s * (x - o1) + o2 with an exact difference, in f32, rounded once.
Results blockwise(const Call& call, bool has_offset2) {
  const NDArray& x = call.input(0);
  const Shape& shape = x.shape();
  const Elements<float> data(x);
  std::vector<BlockParameter> parameters;
  for (std::size_t i = 1; i < (has_offset2 ? 4u : 3u); ++i) parameters.emplace_back(call, i, shape);
  std::vector<float> out(data.size());
  if (out.empty()) return {stored(call.result_dtype(), shape, out)};
  const std::int64_t extent = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  std::int64_t run = extent;
  for (const BlockParameter& parameter : parameters) run = std::gcd(run, parameter.run(extent));
  std::vector<std::int64_t> index(shape.rank(), 0);
  for (std::size_t begin = 0; begin < out.size(); begin += static_cast<std::size_t>(extent)) {
    std::array<std::int64_t, 3> rows{};
    for (std::size_t i = 0; i < parameters.size(); ++i) rows[i] = parameters[i].row(index);
    for (std::int64_t at = 0; at < extent; at += run) {
      const float scale = parameters[0].at(rows[0], at);
      const float offset1 = parameters[1].at(rows[1], at);
      const float offset2 = has_offset2 ? parameters[2].at(rows[2], at) : 0.0f;
      const float* from = data.data() + begin + at;
      float* to = out.data() + begin + at;
      for (std::int64_t i = 0; i < run; ++i) to[i] = scale * (from[i] - offset1) + offset2;
    }
    for (std::size_t d = shape.rank(); d-- > 1;) {
      if (++index[d - 1] < shape[d - 1]) break;
      index[d - 1] = 0;
    }
  }
  return {stored(call.result_dtype(), shape, out)};
}

}  // namespace

Results blockwise_shift_scale_kernel(const Call& call) {
  return blockwise(call, true);
}
Results blockwise_shift_scale_v1_kernel(const Call& call) {
  return blockwise(call, false);
}

namespace {

struct Extremes {
  std::vector<double> low, high;
};

Extremes extremes(const Call& call) {
  const NDArray& x = call.input(0);
  const std::size_t axis = axis_index(call, int_scalar(call, 2), x.shape().rank());
  const std::int64_t inner = extent_product(x.shape(), axis + 1, x.shape().rank());
  const auto channels = static_cast<std::size_t>(x.shape()[axis]);
  Extremes result{std::vector<double>(channels, std::numeric_limits<double>::infinity()),
                  std::vector<double>(channels, -std::numeric_limits<double>::infinity())};
  const std::vector<double> values = reals(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto c = static_cast<std::size_t>(static_cast<std::int64_t>(i) / inner) % channels;
    if (values[i] < result.low[c] || std::isnan(values[i])) result.low[c] = values[i];
    if (values[i] > result.high[c] || std::isnan(values[i])) result.high[c] = values[i];
  }
  return result;
}

std::array<double, 2> range_operand(const Call& call) {
  const std::vector<double> range = reals(call.input(1));
  if (range.size() != 2) call.shape_error("the range needs two elements");
  return {range[0], range[1]};
}

}  // namespace

Results symmetric_statistics_kernel(const Call& call) {
  const Extremes found = extremes(call);
  const auto [r0, r1] = range_operand(call);
  std::vector<double> scale(found.low.size());
  for (std::size_t c = 0; c < scale.size(); ++c) {
    scale[c] = 2.0 * std::max(std::fabs(found.low[c]), std::fabs(found.high[c])) / (r1 - r0);
  }
  return {rounded(call.result_dtype(), Shape{static_cast<std::int64_t>(scale.size())}, scale)};
}

Results asymmetric_statistics_kernel(const Call& call) {
  const Extremes found = extremes(call);
  const auto [r0, r1] = range_operand(call);
  const DType zero_type = call.result_dtype(1);
  std::vector<double> scale(found.low.size()), zero(found.low.size());
  for (std::size_t c = 0; c < scale.size(); ++c) {
    scale[c] = (std::max(found.high[c], 0.0) - std::min(found.low[c], 0.0)) / (r1 - r0);
    const double steps = static_cast<double>(static_cast<float>(found.low[c] / scale[c]));
    const double shift = is_integer(zero_type) ? std::nearbyint(steps) : steps;
    zero[c] = std::clamp(r0 - shift, std::min(r0, r1), std::max(r0, r1));
  }
  const Shape shape{static_cast<std::int64_t>(scale.size())};
  return {rounded(call.result_dtype(0), shape, scale), rounded(zero_type, shape, zero)};
}

}  // namespace coreai::cpu::reference
