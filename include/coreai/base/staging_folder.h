// A folder under construction beside its place.
#pragma once

#include <filesystem>

namespace coreai {

// A new folder "<target>.tmp.XXXXXX" that disappears again unless it is published: readers see a whole folder or none.
class StagingFolder {
 public:
  enum class Existing { kKeep, kReplace };

  // Throws IoError: the folder that is to hold the target is absent or not writable.
  explicit StagingFolder(std::filesystem::path target);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Moves it into place in one step. With kReplace the old and the new folder change places, and the old one then goes
  // with this object; with kKeep whatever is there stays. Throws IoError: something is there, or nothing for kReplace.
  void publish(Existing existing = Existing::kKeep);

 private:
  std::filesystem::path target_, path_;
};

}  // namespace coreai
