// Folds and softmax; included once per level after simd_math.h.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/cpu/reduce.h"

namespace coreai::cpu {
namespace {

constexpr std::int64_t kSumBlock = 1024;  // 64 elements of a lane before a sum is added in f64

double reduce_sum(const float* x, std::int64_t n) {
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kSumBlock) {
    const std::int64_t end = std::min(n, begin + kSumBlock);
    V16 sum;
    for (V& part : sum.part) part = zero();
    std::int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
      for (int p = 0; p < V16::kParts; ++p) sum.part[p] = sum.part[p] + load(x + i + p * V::kLanes);
    }
    for (int p = 0; p < V16::kParts && i < end; ++p, i += V::kLanes) {
      const auto left = static_cast<int>(std::min<std::int64_t>(end - i, V::kLanes));
      sum.part[p] = sum.part[p] + load_part(x + i, left);
    }
    total += static_cast<double>(sum16(sum));
  }
  return total;
}

// The greater (less) of two, NaN when either is.
template <bool kMax>
inline V extreme(V held, V x) {
  return select(held == held, kMax ? max(held, x) : min(held, x), held);
}
template <bool kMax>
inline float extreme(float held, float x) {
  if (held != held || x != x) return held != held ? held : x;
  return (kMax ? x > held : x < held) ? x : held;
}

template <bool kMax>
float reduce_extreme(const float* x, std::int64_t n) {
  float result = kMax ? -kInfinity : kInfinity;
  std::int64_t i = 0;
  if (n >= 16) {
    V16 held;
    for (V& part : held.part) part = splat(result);
    for (; i + 16 <= n; i += 16) {
      for (int p = 0; p < V16::kParts; ++p) held.part[p] = extreme<kMax>(held.part[p], load(x + i + p * V::kLanes));
    }
    float lanes[16];
    for (int p = 0; p < V16::kParts; ++p) store(lanes + p * V::kLanes, held.part[p]);
    for (const float lane : lanes) result = extreme<kMax>(result, lane);
  }
  for (; i < n; ++i) result = extreme<kMax>(result, x[i]);
  return result;
}

void sum_columns_kernel(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, double* totals) {
  for (std::int64_t j = 0; j < columns; j += V::kLanes) {
    const auto n = static_cast<int>(std::min<std::int64_t>(columns - j, V::kLanes));
    V sum = zero();
    for (std::int64_t r = 0; r < rows; ++r) sum = sum + load_part(x + r * stride + j, n);
    float lanes[V::kLanes];
    store(lanes, sum);
    for (int i = 0; i < n; ++i) totals[j + i] += static_cast<double>(lanes[i]);
  }
}

template <bool kMax>
void extreme_columns(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* fold) {
  for (std::int64_t j = 0; j < columns; j += V::kLanes) {
    const auto n = static_cast<int>(std::min<std::int64_t>(columns - j, V::kLanes));
    V held = load_part(fold + j, n);
    for (std::int64_t r = 0; r < rows; ++r) held = extreme<kMax>(held, load_part(x + r * stride + j, n));
    store_part(fold + j, held, n);
  }
}

// ---- softmax ----

// A row whose greatest element is no finite number.
void softmax_unusual(const float* x, float* out, std::int64_t n, std::int64_t stride, float highest) {
  float share = highest;  // NaN takes all
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += x[i * stride] == highest ? 1 : 0;
  if (highest == -kInfinity) share = 0.0f;
  if (highest == kInfinity) share = 1.0f / static_cast<float>(count);
  for (std::int64_t i = 0; i < n; ++i) {
    out[i * stride] = highest == kInfinity && x[i * stride] != highest ? 0.0f : share;
  }
}

void softmax_row(const float* x, float* out, std::int64_t n) {
  const float highest = reduce_extreme<true>(x, n);
  if (!std::isfinite(highest)) return softmax_unusual(x, out, n, 1, highest);
  const V shift = splat(highest);
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kSumBlock) {
    const std::int64_t end = std::min(n, begin + kSumBlock);
    V16 sum;
    for (V& part : sum.part) part = zero();
    std::int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
      for (int p = 0; p < V16::kParts; ++p) {
        const V e = exp_nonpositive(load(x + i + p * V::kLanes) - shift);
        store(out + i + p * V::kLanes, e);
        sum.part[p] = sum.part[p] + e;
      }
    }
    for (int p = 0; p < V16::kParts && i < end; ++p, i += V::kLanes) {
      const auto left = static_cast<int>(std::min<std::int64_t>(end - i, V::kLanes));
      store_part(out + i, exp_nonpositive(load_part(x + i, left) - shift), left);
      sum.part[p] = sum.part[p] + load_part(out + i, left);  // lanes that are not there count nothing
    }
    total += static_cast<double>(sum16(sum));
  }
  const V divisor = splat(static_cast<float>(total));
  std::int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) store(out + i, load(out + i) / divisor);
  if (i < n) store_n(out + i, load_n(out + i, static_cast<int>(n - i)) / divisor, static_cast<int>(n - i));
}

void softmax_columns_kernel(const float* x, float* out, std::int64_t stride, std::int64_t n, std::int64_t columns) {
  for (std::int64_t j = 0; j < columns; j += V::kLanes) {
    const auto width = static_cast<int>(std::min<std::int64_t>(columns - j, V::kLanes));
    const float* from = x + j;
    float* to = out + j;
    V highest = splat(-kInfinity);
    for (std::int64_t r = 0; r < n; ++r) highest = extreme<true>(highest, load_part(from + r * stride, width));
    float lanes[V::kLanes];
    store(lanes, highest);
    if (!std::all_of(lanes, lanes + width, [](float v) { return std::isfinite(v); })) {
      for (int i = 0; i < width; ++i) {
        float column[1] = {0.0f};
        if (std::isfinite(lanes[i])) {
          double total = 0;
          for (std::int64_t r = 0; r < n; ++r) {
            column[0] = exp_nonpositive(from[r * stride + i] - lanes[i]);
            to[r * stride + i] = column[0];
            total += static_cast<double>(column[0]);
          }
          for (std::int64_t r = 0; r < n; ++r) to[r * stride + i] /= static_cast<float>(total);
        } else {
          softmax_unusual(from + i, to + i, n, stride, lanes[i]);
        }
      }
      continue;
    }
    V sum = zero();
    for (std::int64_t r = 0; r < n; ++r) {
      const V e = exp_nonpositive(load_part(from + r * stride, width) - highest);
      store_part(to + r * stride, e, width);
      sum = sum + e;
    }
    for (std::int64_t r = 0; r < n; ++r) store_part(to + r * stride, load_part(to + r * stride, width) / sum, width);
  }
}

constexpr ReduceKernels kReduceKernels = {reduce_sum,         reduce_extreme<true>,  reduce_extreme<false>,
                                          sum_columns_kernel, extreme_columns<true>, extreme_columns<false>,
                                          softmax_row,        softmax_columns_kernel};

}  // namespace
}  // namespace coreai::cpu
