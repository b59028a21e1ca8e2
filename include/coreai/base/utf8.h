// UTF-8 as Unicode 15, table 3-7, has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace coreai {

constexpr std::uint32_t kMaxCodePoint = 0x10ffff;
constexpr std::uint32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;

// The code point that begins at `at`, which moves behind it; nothing, and `at` stays, where none is well-formed.
std::optional<std::uint32_t> next_code_point(std::string_view text, std::size_t& at);
// The first byte that is not part of well-formed UTF-8.
std::optional<std::size_t> invalid_utf8(std::string_view text);
// `point` is a scalar value.
void append_utf8(std::uint32_t point, std::string& out);

}  // namespace coreai
