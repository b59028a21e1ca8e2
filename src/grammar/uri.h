// References between schema documents (RFC 3986).
#pragma once

#include <string>
#include <string_view>

namespace coreai::grammar {

// Section 5.2: what `reference` means in a document at `base`, without its fragment. A base without a scheme is
// resolved as a path.
std::string resolve_uri(std::string_view base, std::string_view reference);

// %41 as A; what is no escape stays.
std::string percent_decoded(std::string_view text);

}  // namespace coreai::grammar
