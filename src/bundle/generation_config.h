// generation_config.json of a tokenizer's folder or of a bundle, for every reader of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "bundle/metadata.h"

namespace coreai::metadata {

// Nothing without the file. Throws BundleError (kMalformedMetadata: as parse(), at most 4 MiB), IoError.
std::optional<Json> read_generation_config(const std::filesystem::path& folder);
// Ids of eos_token_id, which is one or a list; empty without the file or the key. Throws as above, and for a value that
// is no token id.
std::vector<std::int32_t> read_end_tokens(const std::filesystem::path& folder);

}  // namespace coreai::metadata
