#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/ir/verifier.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxMetadataBytes = std::size_t{16} << 20;
constexpr std::size_t kHashBytes = 32;

// A trailing comma before a closing bracket is tolerated, as the reference does; text in quotes stays as it is.
std::string without_trailing_commas(const std::string& text) {
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == ',') {
      const std::size_t next = text.find_first_not_of(" \t\r\n", i + 1);
      if (next != std::string::npos && (text[next] == '}' || text[next] == ']')) continue;
    }
    out += text[i];
  }
  return out;
}

std::string text_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Only the major number counts: "2", "2.0" and "2.9" are the same to a reader.
bool is_supported_version(const std::string& version) {
  return version == "2" || version.starts_with("2.");
}

AIModelAssetMetadata parse_metadata(const std::string& text, const std::string& where) {
  AIModelAssetMetadata metadata;
  metadata.raw_json = text;
  std::string_view body = text;
  if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);  // a byte order mark is legal
  const Json json = Json::parse(without_trailing_commas(std::string(body)), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw MalformedError("the asset's metadata is not JSON", where, 0, "Export the asset again");
  if (!json.is_object()) throw MalformedError("the asset's metadata is not a JSON object", where, 0);
  metadata.asset_version = text_member(json, "assetVersion");
  if (metadata.asset_version.empty() && (!json.contains("assetVersion") || !json["assetVersion"].is_string())) {
    const bool is_bundle = json.contains("metadata_version");
    throw MalformedError("the asset's metadata names no assetVersion", where, 0,
                         is_bundle ? "This is a bundle: give the .aimodel folder inside it" : "Export the asset again");
  }
  if (!is_supported_version(metadata.asset_version)) {
    throw UnsupportedError(fmt::format("asset version \"{}\" is not supported, only 2.x is", metadata.asset_version),
                           where, "Export the asset again with coreai-core 1.0");
  }
  metadata.author = text_member(json, "author");
  metadata.license = text_member(json, "license");
  metadata.description = text_member(json, "description");
  metadata.producer = text_member(json, "producer");
  metadata.creation_date = text_member(json, "creationDate");
  return metadata;
}

// The commonest mistakes first, each with what to do instead.
void refuse_other_things(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status)) throw NotFoundError("the asset does not exist", path.string(), "Check the path");
  if (!fs::is_directory(status)) {
    throw UnsupportedError(
        "an .aimodel asset is a folder, this is a file", path.string(),
        path.filename() == "main.mlirb" ? "Give the folder that holds main.mlirb" : "Give the .aimodel folder");
  }
  if (path.extension() == ".aimodelc") {
    throw UnsupportedError("a compiled .aimodelc is tied to one kind of Apple device", path.string(),
                           "Use the .aimodel it was compiled from");
  }
  if (fs::exists(path / "main.mlirb", ignored)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".aimodel") {
      throw UnsupportedError("this is a bundle, an asset is needed", path.string(),
                             fmt::format("Give {}, or open it as a bundle", entry.path().string()));
    }
    if (entry.path().filename().string().starts_with("main-") && entry.path().extension() == ".mlirb") {
      throw UnsupportedError("the asset is compiled for one kind of Apple device", path.string(),
                             "Use the .aimodel it was compiled from");
    }
  }
  throw NotFoundError("the asset holds no main.mlirb", path.string(), "Copy the whole .aimodel folder");
}

}  // namespace

AIModelAsset AIModelAsset::open(const std::filesystem::path& path, HashCheck check) {
  refuse_other_things(path);
  AIModelAsset asset;
  asset.path_ = path;
  const fs::path metadata_path = path / "metadata.json";
  if (fs::exists(metadata_path)) {
    asset.metadata_ = parse_metadata(read_text_file(metadata_path, kMaxMetadataBytes), metadata_path.string());
  } else {
    asset.metadata_.asset_version.clear();  // the reference accepts an asset without metadata
  }
  asset.program_ = MappedFile::open(path / "main.mlirb");
  const fs::path hash_path = path / "main.hash";
  if (!fs::exists(hash_path)) return asset;
  const std::string hash = read_text_file(hash_path, kMaxMetadataBytes);
  asset.hash_hex_ = to_hex(std::as_bytes(std::span(hash.data(), hash.size())));
  if (check == HashCheck::kSkip) return asset;
  const char* next_step = "The file is damaged or incomplete: copy or download the asset again";
  if (hash.size() != kHashBytes) {
    throw HashMismatchError(fmt::format("main.hash has {} bytes, {} are needed", hash.size(), kHashBytes),
                            hash_path.string(), next_step);
  }
  const std::string actual = to_hex(sha256(asset.program_->bytes()));
  if (actual != asset.hash_hex_) {
    throw HashMismatchError(fmt::format("main.mlirb has the SHA-256 {}, main.hash says {}", actual, asset.hash_hex_),
                            (path / "main.mlirb").string(), next_step);
  }
  return asset;
}

bool AIModelAsset::is_valid(const std::filesystem::path& path) {
  if (path.extension() != ".aimodel") return false;
  try {
    open(path, HashCheck::kSkip);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<ir::Module> AIModelAsset::load_module(ProgramCheck check) const {
  const std::span<const std::byte> bytes = program_->bytes();
  // The mapping is read-only; Storage hands out a mutable pointer only to writable storage.
  auto storage = Storage::borrow(const_cast<std::byte*>(bytes.data()), bytes.size(), /*writable=*/false, program_);
  auto module = read_bytecode(storage, program_->path().string());
  if (check == ProgramCheck::kVerify) ir::verify(*module);
  return module;
}

}  // namespace coreai
