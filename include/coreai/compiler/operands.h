// What the steps of a plan work on: weights, buffers, rows and views of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/compiler/expr.h"

namespace coreai::compiler {

// A matrix [rows, columns] as the file stores it: value = scale * (data - zero) + offset, one scale per block of
// columns (and of rows). `first_row`, `rows` select a part of `data`. A plain float matrix has no scale.
struct WeightSource {
  NDArray data;
  std::optional<NDArray> scale, zero, offset;  // [data rows / row block, columns / column block]
  std::optional<NDArray>
      table;                    // palettes [data rows / row block, columns / column block, entries]: value = entry data
  DType rounded = DType::kF32;  // of the values that the operation gives; integers that are read as digits keep f32
  bool transposed = false;      // plain float data stored [columns, rows]
  std::int64_t first_row = 0, rows = 0, columns = 0;
};

// Memory of a call. Element type f32 unless said; `bytes` is an expression.
struct Buffer {
  enum class Kind : std::uint8_t { kArena, kInput, kOutput, kState, kConstant } kind = Kind::kArena;
  DType dtype = DType::kF32;
  std::size_t index = 0;  // of the input, output or state
  Expr elements = 0;
  int first_step = -1, last_step = -1;  // that touch it
  std::optional<NDArray> constant = {};
};

// Rows in a buffer: row r starts at element offset + r * row_stride.
struct Rows {
  int buffer = -1;
  Expr offset = 0;
  std::int64_t row_stride = 0;
  std::int64_t width = 0;
};

// Elements of a buffer by strides, in elements.
struct View {
  int buffer = -1;
  Expr offset = 0;
  std::vector<Expr> extents, strides;
  bool operator==(const View&) const = default;
};

}  // namespace coreai::compiler
