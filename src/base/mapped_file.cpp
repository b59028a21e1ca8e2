#include "coreai/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/sha.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "coreai/base/error.h"

namespace coreai {
namespace {

// Closes a descriptor when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int open_for_reading(const std::filesystem::path& path) {
  // Without O_NONBLOCK a pipe would wait for its writer; regular files do not care.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) throw NotFoundError("the file does not exist", path.string());
  if (fd < 0) throw IoError("the file cannot be opened", path.string(), errno);
  return fd;
}

std::size_t regular_file_size(int fd, const std::filesystem::path& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) throw IoError("the file cannot be examined", path.string(), errno);
  if (!S_ISREG(info.st_mode))
    throw IoError(S_ISDIR(info.st_mode) ? "a folder, not a file" : "not a regular file", path.string(),
                  S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor fd(open_for_reading(path));
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path_ = path;
  file->size_ = regular_file_size(fd.get(), path);
  if (file->size_ > 0) {
    void* data = ::mmap(nullptr, file->size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) throw IoError("the file cannot be mapped", path.string(), errno);
    file->data_ = static_cast<const std::byte*>(data);
  }
  return file;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_text_file(const std::filesystem::path& path, std::size_t limit) {
  const Descriptor fd(open_for_reading(path));
  const std::size_t size = regular_file_size(fd.get(), path);
  if (size > limit)
    throw IoError(fmt::format("the file has {} bytes, at most {} are read", size, limit), path.string(), EFBIG);
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd.get(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError("the file cannot be read", path.string(), errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  struct stat old{};
  const mode_t mode = ::stat(path.c_str(), &old) == 0 ? old.st_mode & 07777 : 0644;
  std::string temporary = path.string() + ".tmp.XXXXXX";
  const int raw = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (raw < 0) throw IoError("no file can be created here", path.string(), errno);
  const auto give_up = [&](const char* what) {
    const int cause = errno;
    ::unlink(temporary.c_str());
    throw IoError(what, path.string(), cause, "Check the free space and the permissions of the folder");
  };
  {
    const Descriptor fd(raw);
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::write(raw, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) give_up("the file cannot be written");
      done += static_cast<std::size_t>(n);
    }
    if (::fchmod(raw, mode) != 0 || ::fsync(raw) != 0) give_up("the file cannot be written");
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) give_up("the file cannot be renamed into place");
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text.data(), text.size())));
}

std::vector<std::byte> sha256(std::span<const std::byte> bytes) {
  std::vector<std::byte> digest(SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

}  // namespace coreai
