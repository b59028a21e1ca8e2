// Extents of a convolution and the rules that its operands obey; two spatial axes are three with a depth of one.
#pragma once

#include <string_view>

#include "backend/cpu/ops/op_arguments.h"
#include "backend/cpu/taps.h"

namespace coreai::cpu {

struct ConvShape {
  std::int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  Triple in{}, kernel{}, out{}, stride{}, dilation{}, padding{};
  bool transposed = false;

  std::int64_t in_per_group() const { return in_channels / groups; }
  std::int64_t out_per_group() const { return out_channels / groups; }
  friend bool operator==(const ConvShape&, const ConvShape&) = default;
};

inline std::int64_t product(const Triple& t) {
  return t[0] * t[1] * t[2];
}

// Operands (x, weight, stride, dilation, groups), or transposed (x, weight, stride, padding, dilation, output padding,
// groups). Throws ShapeError when they or the result do not fit.
ConvShape conv_shape(std::span<const OpArray> in, const OpArray& out, bool transposed, std::string_view where);

}  // namespace coreai::cpu
