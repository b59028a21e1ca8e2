// Letters A to Z in any case, whatever the locale: names in files are compared so.
#pragma once

#include <string>
#include <string_view>

namespace coreai {

// A to Z as a to z; every other byte stays.
std::string lower_case(std::string_view text);
// Whether `part`, given in lower case, stands somewhere in `text`.
bool contains_ignoring_case(std::string_view text, std::string_view part);

}  // namespace coreai
