// Copies of elements that are never interpreted.
#pragma once

#include <vector>

#include "backend/cpu/reference/kernel.h"
#include "backend/cpu/slice_range.h"

namespace coreai::cpu::reference {

// For each axis of a result, the index of the source along that axis; -1 takes `fill` (one element, as RawElements).
using AxisMaps = std::vector<std::vector<std::int64_t>>;
NDArray remap(const NDArray& source, const Shape& out_shape, const AxisMaps& maps, const std::byte* fill = nullptr);

// One range per axis. Throws ShapeError.
std::vector<SliceRange> slice_ranges(const Call& call, const Shape& shape);

}  // namespace coreai::cpu::reference
