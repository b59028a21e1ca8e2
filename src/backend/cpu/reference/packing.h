// Sub-byte elements, one byte per element while they are worked on. Packed form: one bit stream, lowest bit first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coreai/base/ndarray.h"

namespace coreai::cpu::reference {

// The codes of a packed array, unsigned and unextended.
std::vector<std::uint8_t> unpack_codes(const NDArray& array);
// Writes the low bits of each code.
void pack_codes(std::span<const std::uint8_t> codes, NDArray& out);

}  // namespace coreai::cpu::reference
