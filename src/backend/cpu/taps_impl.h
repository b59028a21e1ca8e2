// Copies of taps into panels, and the direct convolution of one channel; included once per level after simd_*.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "backend/cpu/taps.h"

namespace coreai::cpu {
namespace {

template <DType kType>
constexpr std::int64_t kTapWidth = kType == DType::kF32 ? 4 : 2;

template <DType kType>
inline V load_taps(const std::byte* p) {
  if constexpr (kType == DType::kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (kType == DType::kF16) return load_f16(reinterpret_cast<const std::uint16_t*>(p));
  return load_bf16(reinterpret_cast<const std::uint16_t*>(p));
}

// `count` elements `step` apart to `to`. May write up to `room` floats and, with step 1, read up to `available`
// elements: whole vectors where both allow it.
template <DType kType>
inline void copy_taps(const std::byte* from, std::int64_t step, std::int64_t count, std::int64_t available, float* to,
                      std::int64_t room) {
  constexpr std::int64_t kWidth = kTapWidth<kType>, kLanes = V::kLanes;
  std::int64_t i = 0;
  if (step == 1) {
    for (; i < count && i + kLanes <= room && i + kLanes <= available; i += kLanes) {
      store(to + i, load_taps<kType>(from + i * kWidth));
    }
  }
  for (; i < count; i += kLanes) {
    alignas(64) std::byte some[kLanes * kWidth] = {};
    const std::int64_t n = std::min(count - i, kLanes);
    for (std::int64_t j = 0; j < n; ++j) std::memcpy(some + j * kWidth, from + (i + j) * step * kWidth, kWidth);
    if (i + kLanes <= room) {
      store(to + i, load_taps<kType>(some));
    } else {
      store_n(to + i, load_taps<kType>(some), static_cast<int>(n));
    }
  }
}

// A run of which a part may lie outside the plane: zeros there.
template <DType kType>
inline void copy_clipped(const TapInput& in, const Tap& tap, const TapRun& run, std::int64_t channel, float* to,
                         std::int64_t room) {
  const std::int64_t d = run.at[0] + tap.at[0], h = run.at[1] + tap.at[1], v = run.at[2] + tap.at[2];
  const std::int64_t columns = in.extents[2];
  std::int64_t first = 0, last = 0;  // of the pixels that read inside
  if (d >= 0 && d < in.extents[0] && h >= 0 && h < in.extents[1]) {
    first = v >= 0 ? 0 : std::min(run.count, (-v + in.step - 1) / in.step);
    last = v >= columns ? 0 : std::min(run.count, (columns - 1 - v) / in.step + 1);
    last = std::max(first, last);
  }
  std::fill(to, to + first, 0.0f);
  if (last > first) {
    const std::int64_t at = channel * in.plane + run.offset + tap.offset + first * in.step;
    copy_taps<kType>(in.data + at * kTapWidth<kType>, in.step, last - first, in.available - at, to + first,
                     room - first);
  }
  std::fill(to + last, to + run.count, 0.0f);
}

template <DType kType>
void pack_taps_of(const TapInput& in, const TapRun* runs, std::int64_t run_count, std::int64_t k_begin,
                  std::int64_t depth, std::int64_t lanes, float* panel) {
  const std::int64_t covered = run_count ? runs[run_count - 1].lane + runs[run_count - 1].count : 0;
  std::int64_t channel = k_begin / in.tap_count, t = k_begin % in.tap_count;
  for (std::int64_t k = 0; k < depth; ++k, panel += lanes) {
    const Tap& tap = in.taps[t];
    const std::int64_t base = channel * in.plane + tap.offset;
    for (std::int64_t r = 0; r < run_count; ++r) {
      const TapRun& run = runs[r];
      if (!in.inside) {
        copy_clipped<kType>(in, tap, run, channel, panel + run.lane, lanes - run.lane);
        continue;
      }
      const std::int64_t at = base + run.offset;
      copy_taps<kType>(in.data + at * kTapWidth<kType>, in.step, run.count, in.available - at, panel + run.lane,
                       lanes - run.lane);
    }
    std::fill(panel + covered, panel + lanes, 0.0f);
    if (++t == in.tap_count) t = 0, ++channel;
  }
}

void pack_taps(const TapInput& in, const TapRun* runs, std::int64_t run_count, std::int64_t k_begin, std::int64_t depth,
               std::int64_t lanes, float* panel) {
  if (in.dtype == DType::kF32) return pack_taps_of<DType::kF32>(in, runs, run_count, k_begin, depth, lanes, panel);
  if (in.dtype == DType::kF16) return pack_taps_of<DType::kF16>(in, runs, run_count, k_begin, depth, lanes, panel);
  return pack_taps_of<DType::kBF16>(in, runs, run_count, k_begin, depth, lanes, panel);
}

// kCount vectors of one row of the result.
template <int kCount>
inline void depthwise_block(const DepthwiseArgs& a, const float* x, float* y) {
  V sum[kCount];
  for (V& s : sum) s = zero();
  const float* w = a.w;
  for (std::int64_t d = 0; d < a.kernel[0]; ++d) {
    for (std::int64_t h = 0; h < a.kernel[1]; ++h) {
      const float* from = x + d * a.slice + h * a.row;
      for (std::int64_t v = 0; v < a.kernel[2]; ++v, from += a.tap) {
        const V weight = splat(*w++);
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) sum[i] = fma(weight, load(from + i * V::kLanes), sum[i]);
      }
    }
  }
  for (int i = 0; i < kCount; ++i) store(y + i * V::kLanes, sum[i]);
}

inline void depthwise_few(const DepthwiseArgs& a, const float* x, float* y, int count) {
  V sum = zero();
  const float* w = a.w;
  for (std::int64_t d = 0; d < a.kernel[0]; ++d) {
    for (std::int64_t h = 0; h < a.kernel[1]; ++h) {
      const float* from = x + d * a.slice + h * a.row;
      for (std::int64_t v = 0; v < a.kernel[2]; ++v, from += a.tap) sum = fma(splat(*w++), load_n(from, count), sum);
    }
  }
  store_n(y, sum, count);
}

void depthwise_kernel(const DepthwiseArgs& a) {
  constexpr std::int64_t kLanes = V::kLanes;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* x = a.x + r * a.step;
    float* y = a.y + r * a.y_stride;
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= a.columns; i += 4 * kLanes) depthwise_block<4>(a, x + i, y + i);
    for (; i + kLanes <= a.columns; i += kLanes) depthwise_block<1>(a, x + i, y + i);
    if (i == a.columns) continue;
    if (a.columns >= kLanes) {  // the last whole vector again: the same sums
      depthwise_block<1>(a, x + a.columns - kLanes, y + a.columns - kLanes);
    } else {
      depthwise_few(a, x, y, static_cast<int>(a.columns));
    }
  }
}

constexpr TapKernels kTapKernels = {pack_taps, depthwise_kernel};

}  // namespace
}  // namespace coreai::cpu
