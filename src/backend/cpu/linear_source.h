// Reading rows of a MatrixSource: raw integers, scales, offsets, floats.
#pragma once

#include <cstdint>

#include "backend/cpu/linear.h"

namespace coreai::cpu {

// Throws InvalidArgumentError or UnsupportedError unless every field fits the others and the spans are long enough.
void check_source(const MatrixSource& source);

// Added to a stored element to make it unsigned: 8 for si4, 128 for si8, 0 for unsigned types.
std::int32_t unsigned_bias(DType dtype);
// Element i of a float array without alignment.
float float_element(DType dtype, const std::byte* data, std::int64_t i);
// Element i of an integer array, sign kept.
std::int32_t integer_element(DType dtype, const std::byte* data, std::int64_t i);
// Which element of a palettised source's table an element is.
std::int64_t table_index(const MatrixSource& source, std::int64_t row, std::int64_t column);
// k elements of a row of integers, made unsigned by the bias.
void unsigned_row(const MatrixSource& source, std::int64_t row, std::uint8_t* out);

// Index of the scale of (row, column), for block > 0.
inline std::int64_t scale_index(const MatrixSource& s, std::int64_t row, std::int64_t column) {
  return row / s.rows_per_scale * (s.k / s.block) + column / s.block;
}

}  // namespace coreai::cpu
