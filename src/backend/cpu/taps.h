// The taps of a convolution as panels of a dense product: column = output pixel, row = (channel, tap). Also the direct
// form for one input channel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "coreai/base/dtype.h"

namespace coreai::cpu {

using Triple = std::array<std::int64_t, 3>;  // depth, height, width

// What a tap reads, relative to the first element of a pixel's window.
struct Tap {
  Triple at{};
  std::int64_t offset = 0;  // of `at` in the plane
};

// The planes of a group of channels, row-major, of f32, f16 or bf16.
struct TapInput {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  std::int64_t available = 0;  // elements from `data` on that may be read
  std::int64_t plane = 0;      // elements from one channel to the next
  Triple extents{};
  const Tap* taps = nullptr;
  std::int64_t tap_count = 0;
  std::int64_t step = 1;  // elements between the windows of neighbouring pixels
  bool inside = true;     // no window reaches out of the plane; else zeros are read there
};

// Neighbouring pixels of one row.
struct TapRun {
  std::int64_t lane = 0, count = 0;  // in the panel
  Triple at{};                       // first element of the first window, may lie outside
  std::int64_t offset = 0;           // of `at` in the plane
};

// y[r][i] = sum of w[d][h][v] * x[d * slice + (r * step + h * row) + i + v * tap], d, h, v ascending, r < rows,
// i < columns.
struct DepthwiseArgs {
  const float* x = nullptr;
  const float* w = nullptr;
  float* y = nullptr;
  std::int64_t slice = 0, row = 0, step = 0, tap = 1;
  Triple kernel{};
  std::int64_t rows = 0, columns = 0, y_stride = 0;
};

struct TapKernels {
  // Rows [k_begin, + depth) of one panel of `lanes` columns; those behind the last run are zeros. Runs ascend.
  void (*pack)(const TapInput& in, const TapRun* runs, std::int64_t run_count, std::int64_t k_begin, std::int64_t depth,
               std::int64_t lanes, float* panel) = nullptr;
  void (*depthwise)(const DepthwiseArgs& args) = nullptr;
};

}  // namespace coreai::cpu
