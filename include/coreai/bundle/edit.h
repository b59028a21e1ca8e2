// Bundles changed and made. Whatever fails leaves the disk as it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coreai/bundle/model_bundle.h"

namespace coreai {

// Makes `role` of the bundle's metadata.json name `asset`, a folder inside the bundle (relative to it), and appends the
// name to compilation.targets. Every other key keeps its value and its place. Written beside the file, then renamed.
// The role need not exist. Throws BundleError: no bundle, the asset is missing, no folder or outside.
struct RetargetResult {
  std::string previous;  // empty for a new role
  std::string current;
};
RetargetResult retarget_bundle(const std::filesystem::path& bundle, const std::string& role, const std::string& asset);

struct NewBundle {
  BundleKind kind = BundleKind::kLlm;
  std::string name;                                     // empty: of the folder
  std::map<std::string, std::filesystem::path> assets;  // role to .aimodel folder
  std::optional<std::filesystem::path> tokenizer;       // the folder that holds tokenizer.json; copied
  std::string tokenizer_name;                           // where it came from; empty: "tokenizer"
  std::optional<std::int64_t> vocab_size;               // absent: the last extent of the decoder's logits
  std::optional<std::int64_t> max_context_length;       // absent: from caches of fixed length or static functions
  std::string compression;                              // as requested of the exporter; empty: null
  std::map<std::string, std::string> blocks;            // further top-level keys to JSON text: "vision", "diffusion"
};

// Copies assets and tokenizer into a new folder with a metadata.json: made under a temporary name beside `folder`, then
// renamed. The metadata must be readable as its kind. Throws InvalidArgumentError (what cannot be found out and is not
// given, a block that is not JSON), IoError (the folder exists, no space), BundleError, and what opening an asset
// throws.
void create_bundle(const NewBundle& bundle, const std::filesystem::path& folder);

}  // namespace coreai
