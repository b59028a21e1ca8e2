// Finding and opening the assets in tests/fixtures.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "coreai/asset/asset.h"

namespace coreai::test {

inline std::filesystem::path fixture(const std::string& relative) {
  return std::filesystem::path(COREAI_FIXTURE_DIR) / relative;
}

// Every `.aimodel` folder below `root`, in alphabetical order.
inline std::vector<std::filesystem::path> assets_below(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.is_directory() && entry.path().extension() == ".aimodel") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

inline std::shared_ptr<Storage> storage_of(std::span<const std::byte> bytes) {
  auto storage = Storage::allocate(bytes.size());
  std::copy(bytes.begin(), bytes.end(), storage->data());
  return storage;
}

}  // namespace coreai::test
