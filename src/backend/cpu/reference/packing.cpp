#include "backend/cpu/reference/packing.h"

#include <algorithm>

namespace coreai::cpu::reference {

std::vector<std::uint8_t> unpack_codes(const NDArray& array) {
  const auto count = static_cast<std::size_t>(array.element_count());
  const auto bits = static_cast<unsigned>(dtype_bits(array.dtype()));
  const std::span<const std::byte> bytes = array.bytes();
  std::vector<std::uint8_t> codes(count);
  if (bits == 4) {
    for (std::size_t i = 0; i < count; ++i) {
      codes[i] = static_cast<std::uint8_t>((static_cast<unsigned>(bytes[i / 2]) >> (i % 2 * 4)) & 15u);
    }
    return codes;
  }
  const unsigned mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bit = i * bits;
    const std::size_t shift = bit % 8;
    unsigned word = static_cast<unsigned>(bytes[bit / 8]) >> shift;
    if (shift + bits > 8) word |= static_cast<unsigned>(bytes[bit / 8 + 1]) << (8 - shift);
    codes[i] = static_cast<std::uint8_t>(word & mask);
  }
  return codes;
}

void pack_codes(std::span<const std::uint8_t> codes, NDArray& out) {
  const auto bits = static_cast<unsigned>(dtype_bits(out.dtype()));
  const std::span<std::byte> bytes = out.mutable_bytes();
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  const unsigned mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t bit = i * bits;
    const std::size_t shift = bit % 8;
    const unsigned word = (codes[i] & mask) << shift;
    bytes[bit / 8] |= static_cast<std::byte>(word & 0xffu);
    if (shift + bits > 8) bytes[bit / 8 + 1] |= static_cast<std::byte>(word >> 8);
  }
}

}  // namespace coreai::cpu::reference
