// Where the parts of a bundle lie.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "coreai/bundle/model_bundle.h"

namespace coreai::places {

// "folder/" is "folder".
std::filesystem::path without_slash(const std::filesystem::path& path);

// Of canonical paths: whether one is the other or lies below it.
bool inside(const std::filesystem::path& path, const std::filesystem::path& root);

// `where` names the file or folder that speaks of a path, `field` its entry there.
// Throws BundleError (kOutsideBundle) for a path that is not relative or leaves its folder by its text alone.
void require_relative(const std::string& relative, const std::string& field, const std::string& where);
// A path relative to the bundle's folder on disk. Throws as require_relative, and for a folder whose symbolic links
// lead out of the bundle.
std::filesystem::path resolve(const std::filesystem::path& folder, const std::string& relative,
                              const std::string& field, const std::string& where);
// The asset of a role. Throws as resolve with the field "assets.<role>", and BundleError (kNotAFolder, kCompiledAsset,
// kMissingAsset).
std::filesystem::path require_asset(const std::filesystem::path& folder, const std::string& relative,
                                    const std::string& role, const std::string& where);

// The folder with tokenizer.json of a language bundle: "tokenizer", else the folder that `language.tokenizer` names.
// Throws BundleError (kMissingTokenizer, kNotAFolder, kOutsideBundle).
std::filesystem::path language_tokenizer(const std::filesystem::path& folder, const std::string& named);
// Of a speech bundle: "processor", "tokenizer" or the bundle itself. Throws BundleError (kMissingTokenizer).
std::filesystem::path speech_tokenizer(const std::filesystem::path& folder);
// The tokenizers that a bundle of the kind needs or has; `named` is `language.tokenizer`. Throws as those two.
std::vector<std::filesystem::path> tokenizers_of(BundleKind kind, const std::filesystem::path& folder,
                                                 const std::string& named);

}  // namespace coreai::places
