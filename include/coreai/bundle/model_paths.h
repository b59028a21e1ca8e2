// Bundles by name: where they are looked for.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "coreai/bundle/model_bundle.h"

namespace coreai {

// Immutable.
class ModelPaths {
 public:
  // Folders to look in, in this order: `override_list` (separated by ":"); when that is empty the environment variable
  // COREAI_MODEL_PATH (the same form); when that is unset or empty ".", "./exports" and "~/.coreai-models".
  static ModelPaths standard(std::string_view override_list = {});
  explicit ModelPaths(std::vector<std::filesystem::path> folders) : folders_(std::move(folders)) {}

  const std::vector<std::filesystem::path>& folders() const { return folders_; }
  // A path wins: what exists as given, or begins with "/", "./", "../" or "~". Otherwise the first folder that holds
  // `name` with a metadata.json. Throws BundleError (kUnknownModel) that lists where it looked.
  std::filesystem::path find(std::string_view name) const;

 private:
  std::vector<std::filesystem::path> folders_;
};

}  // namespace coreai
