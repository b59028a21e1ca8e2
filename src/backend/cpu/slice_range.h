// What begin, end and stride of a slice mean along one axis, for kernels and evaluator alike; docs/aimodel-format.md,
// "Slices".
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace coreai::cpu {

struct SliceRange {
  std::int64_t begin = 0, step = 1, size = 0;
};

// Nothing for stride 0.
inline std::optional<SliceRange> slice_range(std::int64_t begin, std::int64_t end, std::int64_t step,
                                             std::int64_t extent) {
  if (step == 0) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // no sum below overflows
  begin = std::clamp(begin, -kMost, kMost), end = std::clamp(end, -kMost, kMost);
  step = std::clamp(step, -kMost, kMost);
  if (begin < 0) begin += extent;
  std::int64_t size = 0;
  if (step > 0) {
    begin = std::clamp<std::int64_t>(begin, 0, extent);
    if (end < 0) end += extent;
    end = std::clamp<std::int64_t>(end, 0, extent);
    size = end > begin ? (end - begin - 1) / step + 1 : 0;
  } else {
    if (extent == 0) return SliceRange{};
    begin = std::clamp<std::int64_t>(begin, 0, extent - 1);
    if (end < -1) end += extent;  // -1 itself means "through index 0"
    end = std::clamp<std::int64_t>(end, -1, extent - 1);
    size = begin > end ? (begin - end - 1) / -step + 1 : 0;
  }
  return SliceRange{begin, size > 1 ? step : 1, size};
}

}  // namespace coreai::cpu
