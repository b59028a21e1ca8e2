// Names of a static export's functions: extend_<positions>_<tokens>, gather_embeddings_<tokens> and others.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace coreai {

// Sizes behind the prefix: {256, 16} of "extend_256_16" after "extend"; empty for another form.
std::vector<std::int64_t> sizes_behind(std::string_view name, std::string_view prefix);

}  // namespace coreai
