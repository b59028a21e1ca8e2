#include "backend/cpu/ops/slices.h"

#include <algorithm>

namespace coreai::cpu {
namespace {

SliceRange slice_range(std::int64_t begin, std::int64_t end, std::int64_t step, std::int64_t extent,
                       std::string_view where) {
  if (step == 0) shape_error(where, "a slice has stride 0");
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
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
    if (extent == 0) return {0, 1, 0};
    begin = std::clamp<std::int64_t>(begin, 0, extent - 1);
    if (end < -1) end += extent;  // -1 itself means "through index 0"
    end = std::clamp<std::int64_t>(end, -1, extent - 1);
    size = begin > end ? (begin - end - 1) / -step + 1 : 0;
  }
  return {begin, size > 1 ? step : 1, size};
}

}  // namespace

std::array<SliceRange, Ints::kMost> slice_ranges(std::span<const OpArray> in, const Shape& shape,
                                                 std::string_view where) {
  const Ints begins = read_ints(in[1], where), ends = read_ints(in[2], where), steps = read_ints(in[3], where);
  const std::size_t rank = shape.rank();
  if (begins.size() != rank || ends.size() != rank || steps.size() != rank)
    shape_error(where, "begin, end and stride need one element per axis");
  std::array<SliceRange, Ints::kMost> ranges;
  for (std::size_t d = 0; d < rank; ++d) ranges[d] = slice_range(begins[d], ends[d], steps[d], shape[d], where);
  return ranges;
}

}  // namespace coreai::cpu
