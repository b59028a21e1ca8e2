// Numbers as the reference's text form spells them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "coreai/base/ndarray.h"

namespace coreai::ir {

// A float of `dtype` given by its bits: six digits when they read back as the same value ("2.500000e-01"), else enough
// digits to do so ("9.99999997E-7"), else the bits ("0x7FC00000").
std::string float_text(DType dtype, std::uint64_t bits);

// Element `index` of an array: "-3", "true", "2.500000e-01", "(1.000000e+00,2.000000e+00)".
std::string element_text(const NDArray& array, std::int64_t index);

// An integer of any width in 64-bit words, lowest first.
std::string integer_text(std::span<const std::uint64_t> words, std::uint64_t width, bool is_unsigned);

// "0A0B..." of bytes.
std::string hex_text(std::span<const std::byte> bytes);

// Printable ASCII as it is, the rest and quotes as \XX.
std::string escaped(std::string_view text);
// `text` when it is a bare identifier, else quoted.
std::string identifier_text(std::string_view text);

}  // namespace coreai::ir
