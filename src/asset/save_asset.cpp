#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "bytecode_writer.h"
#include "coreai/base/error.h"
#include "coreai/base/staging_folder.h"
#include "coreai/ir/verifier.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Writes a file piece by piece and hashes it on the way.
class HashingFile {
 public:
  explicit HashingFile(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)), hash_(EVP_MD_CTX_new()) {
    if (fd_ < 0 || !hash_ || EVP_DigestInit_ex(hash_, EVP_sha256(), nullptr) != 1) {
      const int cause = errno;
      release();
      throw IoError("the file cannot be created", path.string(), cause);
    }
  }
  ~HashingFile() { release(); }
  HashingFile(const HashingFile&) = delete;
  HashingFile& operator=(const HashingFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    EVP_DigestUpdate(hash_, bytes.data(), bytes.size());
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  std::vector<std::byte> finish() {
    if (::fsync(fd_) != 0) fail();
    std::vector<std::byte> digest(32);
    EVP_DigestFinal_ex(hash_, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    return digest;
  }

 private:
  [[noreturn]] void fail() const {
    throw IoError("the file cannot be written", path_.string(), errno, "Check the free space of the disk");
  }
  void release() {
    if (fd_ >= 0) ::close(fd_);
    EVP_MD_CTX_free(hash_);
    fd_ = -1;
    hash_ = nullptr;
  }

  fs::path path_;
  int fd_;
  EVP_MD_CTX* hash_;
};

// Keys that the metadata was read with are kept, known ones are replaced.
std::string metadata_text(const AIModelAssetMetadata& metadata) {
  Json json = Json::parse(metadata.raw_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) json = Json::object();
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  json["assetVersion"] = metadata.asset_version.empty() ? "2.0" : metadata.asset_version;
  set("author", metadata.author);
  set("license", metadata.license);
  set("description", metadata.description);
  set("producer", metadata.producer);
  set("creationDate", metadata.creation_date);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void save_asset(const ir::Module& module, const std::filesystem::path& path, const AIModelAssetMetadata& metadata,
                const WriteOptions& options) {
  std::error_code ignored;
  const fs::path target = path.filename().empty() ? path.parent_path() : path;  // "x.aimodel/" is "x.aimodel"
  if (target.extension() != ".aimodel") {
    throw InvalidArgumentError("an asset's folder must end in .aimodel", target.string());
  }
  if (fs::exists(target, ignored)) {
    throw IoError("the asset exists already", target.string(), EEXIST, "Remove it or choose another name");
  }
  ir::verify(module);
  const asset::BytecodeImage image(module, options);
  StagingFolder staging(target);
  HashingFile program(staging.path() / "main.mlirb");
  image.for_each_part([&](std::span<const std::byte> part) { program.write(part); });
  write_file_atomically(staging.path() / "main.hash", std::span<const std::byte>(program.finish()));
  write_file_atomically(staging.path() / "metadata.json", metadata_text(metadata));
  staging.publish();
}

}  // namespace coreai
