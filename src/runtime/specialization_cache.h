// Packed weights on disk, one file per specialisation, and what is known of assets whose hash was checked before.
// A cache never fails a load: a folder that cannot be read or written, a full disk and a damaged entry only cost speed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/runtime/specialization_options.h"

namespace coreai {

class SpecializationCache {
 public:
  struct Entry {
    std::string key;
    std::uint64_t bytes = 0;
    std::filesystem::file_time_type used;
  };
  // Entries used longest ago go first once the folder holds more than this.
  static constexpr std::uint64_t kDefaultCap = std::uint64_t{32} << 30;

  // COREAI_CACHE_DIR, else $XDG_CACHE_HOME/coreai, else ~/.cache/coreai; empty when there is no home.
  static std::filesystem::path default_directory();

  // The cache that the options name.
  static SpecializationCache of(const SpecializationOptions& options);

  explicit SpecializationCache(std::filesystem::path directory, std::uint64_t cap = kDefaultCap);

  // The content of an entry, read into huge pages; null when there is none or it is damaged. Thread-safe.
  std::shared_ptr<Storage> load(const std::string& key) const;
  // Writes under a temporary name and renames; several processes may do so at once.
  void store(const std::string& key, std::span<const std::byte> content) const;

  // Whether the file is the one (inode, size, time of change) whose SHA-256 was found to be `hash_hex` before.
  bool hash_is_known(const std::filesystem::path& file, const std::string& hash_hex) const;
  void remember_hash(const std::filesystem::path& file, const std::string& hash_hex) const;

  std::vector<Entry> list() const;
  // Removes every entry; returns the bytes freed. Throws IoError.
  std::uint64_t clear() const;
  const std::filesystem::path& directory() const { return directory_; }

 private:
  void trim() const;
  std::filesystem::path directory_;
  std::uint64_t cap_;
};

}  // namespace coreai
