// The tile of the dense product; included once per level after simd_*.h.
#pragma once

#include <algorithm>

#include "backend/cpu/gemm.h"

namespace coreai::cpu {
namespace {

// Two vectors of columns; with 16 lanes 12 rows of sums fill 24 of 32 registers, with 8 lanes 6 rows 12 of 16.
constexpr int kGemmRows = V::kLanes >= 16 ? 12 : 6;
constexpr std::int64_t kGemmPanel = 2 * V::kLanes;

template <int R>
void gemm_tile(const float* a, std::int64_t a_stride, const float* panel, float* c, std::int64_t c_stride,
               std::int64_t columns, std::int64_t depth, bool accumulate) {
  V left[R], right[R];
  const int first = static_cast<int>(std::min<std::int64_t>(columns, V::kLanes));
  const int second = static_cast<int>(columns) - first;
  const bool whole = columns == kGemmPanel;
  for (int r = 0; r < R; ++r) {
    const float* row = c + r * c_stride;
    left[r] = !accumulate ? zero() : whole ? load(row) : load_n(row, first);
    right[r] = !accumulate || second == 0 ? zero() : whole ? load(row + V::kLanes) : load_n(row + V::kLanes, second);
  }
  for (std::int64_t k = 0; k < depth; ++k, panel += kGemmPanel) {
    const V x = load(panel), y = load(panel + V::kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const V w = splat(a[r * a_stride + k]);
      left[r] = fma(w, x, left[r]);
      right[r] = fma(w, y, right[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    float* row = c + r * c_stride;
    if (whole) {
      store(row, left[r]);
      store(row + V::kLanes, right[r]);
    } else {
      store_n(row, left[r], first);
      if (second > 0) store_n(row + V::kLanes, right[r], second);
    }
  }
}

template <int R>
void gemm_rows(const float* a, std::int64_t a_stride, const float* panels, float* c, std::int64_t c_stride,
               std::int64_t n, std::int64_t depth, bool accumulate) {
  for (std::int64_t j = 0; j < n; j += kGemmPanel) {
    gemm_tile<R>(a, a_stride, panels + j * depth, c + j, c_stride, std::min(kGemmPanel, n - j), depth, accumulate);
  }
}

void gemm_multiply(const float* a, std::int64_t a_stride, const float* panels, float* c, std::int64_t c_stride,
                   std::int64_t m, std::int64_t n, std::int64_t depth, bool accumulate) {
  std::int64_t i = 0;
  for (; i + kGemmRows <= m; i += kGemmRows)
    gemm_rows<kGemmRows>(a + i * a_stride, a_stride, panels, c + i * c_stride, c_stride, n, depth, accumulate);
  for (; i + 3 <= m; i += 3)
    gemm_rows<3>(a + i * a_stride, a_stride, panels, c + i * c_stride, c_stride, n, depth, accumulate);
  for (; i < m; ++i) gemm_rows<1>(a + i * a_stride, a_stride, panels, c + i * c_stride, c_stride, n, depth, accumulate);
}

constexpr GemmKernels kGemmKernels = {kGemmPanel, gemm_multiply};

}  // namespace
}  // namespace coreai::cpu
