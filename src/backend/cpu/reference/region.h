// Regions that compute on elements: the combiners of reduce and reduce_index, the update of scatter_nd.
#pragma once

#include "backend/cpu/reference/kernel.h"

namespace coreai::cpu::reference {

// Runs a region on arrays of one shape, element by element; gives as many arrays of that shape as it yields. Throws
// UnsupportedError for an operation that cannot be evaluated, VerificationError for another number of arguments.
std::vector<NDArray> map_region(const Call& call, const ir::Block& block, std::span<const NDArray> arguments);

}  // namespace coreai::cpu::reference
