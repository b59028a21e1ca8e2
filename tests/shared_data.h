// Recorded data that lies beside the repository and need not be there.
#pragma once

#include <filesystem>

namespace coreai::test {

// The folder beside the checkout, or beside one of the two folders around it.
inline std::filesystem::path shared_data() {
  std::filesystem::path folder = std::filesystem::path(COREAI_SOURCE_DIR).parent_path();
  for (int level = 0; level < 2 && !std::filesystem::exists(folder / "shared/data"); ++level)
    folder = folder.parent_path();
  return folder / "shared/data";
}

}  // namespace coreai::test
