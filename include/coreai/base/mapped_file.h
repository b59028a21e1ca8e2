// Read-only mapping of a file, and atomic writing.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coreai {

// A whole file mapped for reading. An empty file gives an empty span. Immutable and thread-safe.
class MappedFile {
 public:
  // Throws NotFoundError or IoError.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::filesystem::path path_;
};

// The whole file as text or bytes. Throws NotFoundError, or IoError when it is larger than `limit` bytes.
std::string read_text_file(const std::filesystem::path& path, std::size_t limit = std::size_t{64} << 20);

// Writes under a temporary name in the same folder, syncs, then renames: readers see the old or the new file, never
// half. A file that is replaced gives the new one its mode. Throws IoError; then nothing is left behind.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// SHA-256 (FIPS 180-4) of bytes; 32 bytes.
std::vector<std::byte> sha256(std::span<const std::byte> bytes);
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace coreai
