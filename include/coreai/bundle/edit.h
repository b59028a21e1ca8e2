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
// name to compilation.targets. Every other byte of the file stays, its mode too; where it is a link, the file that the
// link names is the one that changes. Written beside the file, then renamed. The role need not exist. The asset is an
// .aimodel that can be opened, or an .aimodelc, with which the bundle runs on Apple devices only. Throws BundleError
// (no bundle; the asset is missing, no folder or outside), InvalidArgumentError (a name of another kind, or not UTF-8),
// and what opening an asset throws.
struct RetargetResult {
  std::string previous;  // empty for a new role
  std::string current;
  bool compiled = false;  // an .aimodelc
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
  std::map<std::string, std::string> blocks;            // further top-level keys to JSON objects, as text: "vision"
};

// Copies assets and tokenizer (files, and what links to files) into a new folder with a metadata.json: made under a
// temporary name beside `folder`, then renamed. The bundle opens as its kind and has no problems(); kinds llm and vlm
// need a tokenizer. A leading "~" is the home folder in every path. Throws InvalidArgumentError (what cannot be found
// out and is not given, a block that is written by itself, a folder inside what is copied, an entry that is no file),
// IoError (the folder exists, no space), BundleError (a block that is no JSON object, what the kind lacks), and what
// opening an asset throws.
void create_bundle(const NewBundle& bundle, const std::filesystem::path& folder);

}  // namespace coreai
