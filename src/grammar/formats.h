// The formats of JSON Schema as patterns.
#pragma once

#include <optional>
#include <string_view>

namespace coreai::grammar {

// A pattern of ECMA-262 for the whole string; nothing for a word that is no format of the drafts, which then says
// nothing. Throws UnsupportedError (where: "grammar") for a format of the drafts that is not regular or not built.
std::optional<std::string_view> format_pattern(std::string_view name);

}  // namespace coreai::grammar
