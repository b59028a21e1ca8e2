// What slice and slice_update mean; docs/aimodel-format.md, "Slices".
#pragma once

#include <string_view>

#include "backend/cpu/ops/op_arguments.h"

namespace coreai::cpu {

struct SliceRange {
  std::int64_t begin = 0, step = 1, size = 0;
};
// Operands 1, 2, 3 of the operation for an input of `shape`; one range per axis. Throws ShapeError.
std::array<SliceRange, Ints::kMost> slice_ranges(std::span<const OpArray> in, const Shape& shape,
                                                 std::string_view where);

}  // namespace coreai::cpu
