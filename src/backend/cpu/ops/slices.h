// The ranges that slice and slice_update take of an array.
#pragma once

#include <string_view>

#include "backend/cpu/ops/op_arguments.h"
#include "backend/cpu/slice_range.h"

namespace coreai::cpu {

// Operands 1, 2, 3 of the operation for an input of `shape`; one range per axis. Throws ShapeError.
std::array<SliceRange, Ints::kMost> slice_ranges(std::span<const OpArray> in, const Shape& shape,
                                                 std::string_view where);

}  // namespace coreai::cpu
