#include "runtime/specialization_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "backend/cpu/packed_weights.h"
#include "coreai/base/error.h"
#include "coreai/base/log.h"
#include "coreai/base/mapped_file.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;

// Behind the content: magic and size, so that a truncated file is seen.
struct Trailer {
  std::uint64_t magic = 0x31454843434f4343;  // "CCOCCHE1"
  std::uint64_t content_bytes = 0;
};

constexpr const char* kSuffix = ".packed";

bool read_fully(int fd, std::byte* out, std::size_t bytes, std::size_t offset) {
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, out, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out += n, bytes -= static_cast<std::size_t>(n), offset += static_cast<std::size_t>(n);
  }
  return true;
}

bool write_fully(int fd, const void* data, std::size_t bytes) {
  const auto* p = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// inode, size and time of change as text; empty when the file cannot be examined.
std::string identity(const fs::path& file) {
  struct stat info{};
  if (::stat(file.c_str(), &info) != 0) return {};
  return fmt::format("{}:{}:{}:{}.{:09}", info.st_dev, info.st_ino, info.st_size, info.st_ctim.tv_sec,
                     info.st_ctim.tv_nsec);
}

std::string text_hash(const std::string& text) {
  return to_hex(sha256(std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace

fs::path SpecializationCache::default_directory() {
  if (const char* dir = std::getenv("COREAI_CACHE_DIR"); dir && *dir) return dir;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return fs::path(xdg) / "coreai";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "coreai";
  return {};
}

SpecializationCache SpecializationCache::of(const SpecializationOptions& options) {
  return SpecializationCache(options.cache_directory.empty() ? default_directory() : options.cache_directory);
}

SpecializationCache::SpecializationCache(fs::path directory, std::uint64_t cap)
    : directory_(std::move(directory)), cap_(cap) {}

std::shared_ptr<Storage> SpecializationCache::load(const std::string& key) const {
  if (directory_.empty()) return nullptr;
  const fs::path path = directory_ / (key + kSuffix);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat info{};
  Trailer trailer;
  std::shared_ptr<Storage> block;
  const bool large_enough =
      ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && static_cast<std::size_t>(info.st_size) > sizeof(Trailer);
  if (large_enough) {
    const std::size_t bytes = static_cast<std::size_t>(info.st_size) - sizeof(Trailer);
    if (read_fully(fd, reinterpret_cast<std::byte*>(&trailer), sizeof trailer, bytes) &&
        trailer.magic == Trailer{}.magic && trailer.content_bytes == bytes) {
      block = cpu::allocate_huge(bytes);
      // Two readers: page faults and copies of a large entry take longer than starting a thread.
      const std::size_t half = bytes < (std::size_t{16} << 20) ? bytes : bytes / 2 / 4096 * 4096;
      bool second = true;
      {
        std::jthread helper;
        if (half < bytes)
          helper = std::jthread([&] { second = read_fully(fd, block->data() + half, bytes - half, half); });
        if (!read_fully(fd, block->data(), half, 0)) block = nullptr;
      }
      if (!second) block = nullptr;
    }
  }
  ::futimens(fd, nullptr);  // used now: the oldest entries are removed first
  ::close(fd);
  if (!block)
    log(LogLevel::kWarning, fmt::format("{}: a damaged cache entry is ignored and made again", path.string()));
  return block;
}

void SpecializationCache::store(const std::string& key, std::span<const std::byte> content) const {
  if (directory_.empty()) return;
  std::error_code ignored;
  fs::create_directories(directory_, ignored);
  std::string temporary = (directory_ / (key + ".tmp.XXXXXX")).string();
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0)
    return log(LogLevel::kInfo,
               fmt::format("{}: packed weights are not kept ({})", directory_.string(), std::strerror(errno)));
  const Trailer trailer{.content_bytes = content.size()};
  const bool written = write_fully(fd, content.data(), content.size()) && write_fully(fd, &trailer, sizeof trailer);
  const int cause = errno;
  ::close(fd);
  if (!written || ::rename(temporary.c_str(), (directory_ / (key + kSuffix)).c_str()) != 0) {
    ::unlink(temporary.c_str());
    return log(LogLevel::kInfo,
               fmt::format("{}: packed weights are not kept ({})", directory_.string(), std::strerror(cause)));
  }
  trim();
}

bool SpecializationCache::hash_is_known(const fs::path& file, const std::string& hash_hex) const {
  const std::string id = identity(file);
  if (directory_.empty() || id.empty()) return false;
  try {
    return read_text_file(directory_ / (text_hash(id) + ".hash"), 4096) == hash_hex;
  } catch (const Error&) {
    return false;
  }
}

void SpecializationCache::remember_hash(const fs::path& file, const std::string& hash_hex) const {
  const std::string id = identity(file);
  if (directory_.empty() || id.empty()) return;
  std::error_code ignored;
  fs::create_directories(directory_, ignored);
  try {
    write_file_atomically(directory_ / (text_hash(id) + ".hash"), hash_hex);
  } catch (const Error& e) {
    log(LogLevel::kInfo, e.what());
  }
}

std::vector<SpecializationCache::Entry> SpecializationCache::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const std::string name = it->path().filename().string();
    if (!name.ends_with(kSuffix)) continue;
    const auto bytes = it->file_size(gone);
    const auto used = it->last_write_time(gone);
    if (!gone) entries.push_back({name.substr(0, name.size() - std::strlen(kSuffix)), bytes, used});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used > b.used; });
  return entries;
}

std::uint64_t SpecializationCache::clear() const {
  std::uint64_t freed = 0;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool ours = name.ends_with(kSuffix) || name.ends_with(".hash") || name.find(".tmp.") != std::string::npos;
    if (!ours || !it->is_regular_file()) continue;
    std::error_code failed;
    const auto bytes = it->file_size(failed);
    fs::remove(it->path(), failed);
    if (failed) throw IoError("a cache entry cannot be removed", it->path().string(), failed.value());
    freed += bytes;
  }
  return freed;
}

void SpecializationCache::trim() const {
  std::uint64_t total = 0;
  for (const Entry& e : list()) {  // newest first
    total += e.bytes;
    std::error_code ignored;
    if (total > cap_) fs::remove(directory_ / (e.key + kSuffix), ignored);
  }
}

}  // namespace coreai
