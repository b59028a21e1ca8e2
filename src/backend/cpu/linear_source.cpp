#include "backend/cpu/linear_source.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai::cpu {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 28;  // keeps the bits of n x k elements within 63 bits

bool is_weight_float(DType d) {
  return d == DType::kF16 || d == DType::kBF16 || d == DType::kF32;
}

bool is_weight_integer(DType d) {
  switch (d) {
    case DType::kUI1:
    case DType::kUI2:
    case DType::kUI3:
    case DType::kUI4:
    case DType::kUI6:
    case DType::kUI8:
    case DType::kSI2:
    case DType::kSI4:
    case DType::kSI8:
      return true;
    default:
      return false;
  }
}

[[noreturn]] void refuse(std::string what) {
  throw InvalidArgumentError(std::move(what), "MatrixSource", "correct the description of the weight");
}

void check_span(std::span<const std::byte> bytes, DType dtype, std::int64_t count, const char* name) {
  const std::uint64_t needed = dtype_bytes(dtype, static_cast<std::uint64_t>(count));
  if (bytes.size() < needed) {
    refuse(fmt::format("{} holds {} bytes, {} elements of {} need {}", name, bytes.size(), count, dtype_name(dtype),
                       needed));
  }
}

}  // namespace

void check_source(const MatrixSource& s) {
  if (!is_weight_float(s.dtype) && !is_weight_integer(s.dtype)) {
    throw UnsupportedError(fmt::format("no packed kernel for weights of {}", dtype_name(s.dtype)), "MatrixSource",
                           "dequantise the weight to f32 first");
  }
  if (s.n <= 0 || s.k <= 0 || s.n >= kMaxExtent || s.k >= kMaxExtent) {
    refuse(fmt::format("extents [{}, {}] are out of range", s.n, s.k));
  }
  const std::int64_t row_end = s.row_end < 0 ? s.n : s.row_end;
  if (s.row_begin < 0 || row_end <= s.row_begin || row_end > s.n) {
    refuse(fmt::format("rows [{}, {}) are not within 0..{}", s.row_begin, row_end, s.n));
  }
  check_span(s.data, s.dtype, s.n * s.k, "data");
  if (s.transposed && (is_subbyte(s.dtype) || s.block != 0)) {
    refuse("a transposed matrix must have whole-byte elements and no scales");
  }
  if (!s.table.empty()) {
    const bool divides =
        s.table_rows > 0 && s.table_columns > 0 && s.n % s.table_rows == 0 && s.k % s.table_columns == 0;
    if (!divides || s.block != 0 || !is_weight_integer(s.dtype) || unsigned_bias(s.dtype) != 0 ||
        !is_weight_float(s.table_dtype)) {
      refuse(fmt::format("palettes of {} for blocks of [{}, {}] and data of {}", dtype_name(s.table_dtype),
                         s.table_rows, s.table_columns, dtype_name(s.dtype)));
    }
    check_span(s.table, s.table_dtype, (s.n / s.table_rows * (s.k / s.table_columns)) << dtype_bits(s.dtype), "table");
  }
  if (s.block == 0) {
    if (!s.scale.empty() || !s.offset1.empty() || !s.offset2.empty())
      refuse("scales or offsets without a block length");
    return;
  }
  if (s.block < 0 || s.k % s.block != 0) refuse(fmt::format("block length {} does not divide k = {}", s.block, s.k));
  if (s.rows_per_scale <= 0 || s.n % s.rows_per_scale != 0) {
    refuse(fmt::format("{} rows per scale do not divide n = {}", s.rows_per_scale, s.n));
  }
  if (!is_weight_float(s.rounded)) refuse(fmt::format("values rounded to {}", dtype_name(s.rounded)));
  if (!is_weight_float(s.scale_dtype)) refuse(fmt::format("scales of {}", dtype_name(s.scale_dtype)));
  const std::int64_t scales = s.n / s.rows_per_scale * (s.k / s.block);
  check_span(s.scale, s.scale_dtype, scales, "scale");
  if (!s.offset1.empty()) check_span(s.offset1, s.dtype, scales, "offset1");
  if (!s.offset2.empty()) {
    if (!is_weight_float(s.offset2_dtype)) refuse(fmt::format("offsets of {}", dtype_name(s.offset2_dtype)));
    check_span(s.offset2, s.offset2_dtype, scales, "offset2");
  }
}

std::int32_t unsigned_bias(DType dtype) {
  switch (dtype) {
    case DType::kSI2:
      return 2;
    case DType::kSI4:
      return 8;
    case DType::kSI8:
      return 128;
    default:
      return 0;
  }
}

float float_element(DType dtype, const std::byte* data, std::int64_t i) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, data + 4 * i, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, data + 2 * i, 2);
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

std::int32_t integer_element(DType dtype, const std::byte* data, std::int64_t i) {
  const int bits = dtype_bits(dtype);
  const std::int64_t first = i * bits;
  std::uint32_t value = std::to_integer<std::uint32_t>(data[first / 8]) >> (first % 8);
  const int have = 8 - static_cast<int>(first % 8);
  if (have < bits) value |= std::to_integer<std::uint32_t>(data[first / 8 + 1]) << have;
  value &= (1u << bits) - 1;
  const std::int32_t bias = unsigned_bias(dtype);
  return bias == 0 ? static_cast<std::int32_t>(value)
                   : static_cast<std::int32_t>(value ^ static_cast<std::uint32_t>(bias)) - bias;
}

std::int64_t table_index(const MatrixSource& s, std::int64_t row, std::int64_t column) {
  const std::int64_t i = s.transposed ? column * s.n + row : row * s.k + column;
  const std::int64_t table = row / s.table_rows * (s.k / s.table_columns) + column / s.table_columns;
  return (table << dtype_bits(s.dtype)) + integer_element(s.dtype, s.data.data(), i);
}

void unsigned_row(const MatrixSource& s, std::int64_t row, std::uint8_t* out) {
  const std::int32_t bias = unsigned_bias(s.dtype);
  const int bits = dtype_bits(s.dtype);
  if (s.transposed) {
    for (std::int64_t c = 0; c < s.k; ++c) {
      out[c] = static_cast<std::uint8_t>(integer_element(s.dtype, s.data.data(), c * s.n + row) + bias);
    }
    return;
  }
  const auto flip = static_cast<std::uint8_t>(bias);  // adding the bias modulo 2^bits flips the top bit
  const std::int64_t first_bit = row * s.k * bits;
  if (bits == 8) {
    const std::byte* in = s.data.data() + row * s.k;
    for (std::int64_t c = 0; c < s.k; ++c) out[c] = std::to_integer<std::uint8_t>(in[c]) ^ flip;
  } else if (bits == 4 && first_bit % 8 == 0) {
    const std::byte* in = s.data.data() + first_bit / 8;
    for (std::int64_t c = 0; c + 1 < s.k; c += 2) {
      const auto pair = std::to_integer<std::uint8_t>(in[c / 2]);
      out[c] = static_cast<std::uint8_t>((pair & 15) ^ flip);
      out[c + 1] = static_cast<std::uint8_t>((pair >> 4) ^ flip);
    }
    if (s.k % 2 != 0) {
      out[s.k - 1] = static_cast<std::uint8_t>((std::to_integer<std::uint8_t>(in[s.k / 2]) & 15) ^ flip);
    }
  } else {
    for (std::int64_t c = 0; c < s.k; ++c) {
      out[c] = static_cast<std::uint8_t>(integer_element(s.dtype, s.data.data(), row * s.k + c) + bias);
    }
  }
}

void dequantize_row(const MatrixSource& s, std::int64_t row, float* out) {
  check_source(s);
  if (row < 0 || row >= s.n) refuse(fmt::format("row {} is not within 0..{}", row, s.n));
  if (!s.table.empty()) {
    for (std::int64_t c = 0; c < s.k; ++c)
      out[c] = float_element(s.table_dtype, s.table.data(), table_index(s, row, c));
    return;
  }
  const bool floats = is_weight_float(s.dtype);
  for (std::int64_t c = 0; c < s.k; ++c) {
    const std::int64_t i = s.transposed ? c * s.n + row : row * s.k + c;
    out[c] = floats ? float_element(s.dtype, s.data.data(), i)
                    : static_cast<float>(integer_element(s.dtype, s.data.data(), i));
  }
  if (s.block == 0) return;
  for (std::int64_t first = 0; first < s.k; first += s.block) {
    const std::int64_t at = scale_index(s, row, first);
    const float scale = float_element(s.scale_dtype, s.scale.data(), at);
    float offset1 = 0;
    if (!s.offset1.empty()) {
      offset1 = floats ? float_element(s.dtype, s.offset1.data(), at)
                       : static_cast<float>(integer_element(s.dtype, s.offset1.data(), at));
    }
    const float offset2 = s.offset2.empty() ? 0.0f : float_element(s.offset2_dtype, s.offset2.data(), at);
    // The difference of small integers is exact; scaled and shifted with one rounding.
    for (std::int64_t c = first; c < first + s.block; ++c) out[c] = std::fma(scale, out[c] - offset1, offset2);
  }
}

}  // namespace coreai::cpu
