// Folds and softmax over f32 rows and columns. Sums run over sixteen lanes in blocks that are added in f64: the order
// depends on the extents alone.
#pragma once

#include <cstdint>

namespace coreai::cpu {

struct ReduceKernels {
  static constexpr std::int64_t kBlockRows = 64;  // rows of a column sum before it is added in f64

  double (*sum)(const float* x, std::int64_t n) = nullptr;
  // NaN when there is one; n = 0 gives the neutral infinity.
  float (*max)(const float* x, std::int64_t n) = nullptr;
  float (*min)(const float* x, std::int64_t n) = nullptr;

  // Columns of `rows` rows `stride` apart: totals[i] += sum, at most kBlockRows rows.
  void (*sum_columns)(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                      double* totals) = nullptr;
  // fold[i] = the greater (less) of fold[i] and the column; NaN wins.
  void (*max_columns)(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                      float* fold) = nullptr;
  void (*min_columns)(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                      float* fold) = nullptr;

  // Softmax of n elements: -inf throughout gives zeros, +inf takes the mass, NaN all. In place allowed.
  void (*softmax)(const float* x, float* out, std::int64_t n) = nullptr;
  // The same of every column of [n, columns], rows `stride` apart.
  void (*softmax_columns)(const float* x, float* out, std::int64_t stride, std::int64_t n,
                          std::int64_t columns) = nullptr;
};

}  // namespace coreai::cpu
