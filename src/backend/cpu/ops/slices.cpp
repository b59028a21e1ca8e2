#include "backend/cpu/ops/slices.h"

namespace coreai::cpu {
std::array<SliceRange, Ints::kMost> slice_ranges(std::span<const OpArray> in, const Shape& shape,
                                                 std::string_view where) {
  const Ints begins = read_ints(in[1], where), ends = read_ints(in[2], where), steps = read_ints(in[3], where);
  const std::size_t rank = shape.rank();
  if (begins.size() != rank || ends.size() != rank || steps.size() != rank)
    shape_error(where, "begin, end and stride need one element per axis");
  std::array<SliceRange, Ints::kMost> ranges;
  for (std::size_t d = 0; d < rank; ++d) {
    const auto range = slice_range(begins[d], ends[d], steps[d], shape[d]);
    if (!range) shape_error(where, "a slice has stride 0");
    ranges[d] = *range;
  }
  return ranges;
}

}  // namespace coreai::cpu
