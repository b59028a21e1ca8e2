#include "coreai/bundle/model_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "coreai/base/mapped_file.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kVersion = "0.2";
// Genuine files have about 1 KB; a larger one is not a bundle's metadata.
constexpr std::size_t kMetadataLimit = std::size_t{16} << 20;

struct KindName {
  BundleKind kind;
  std::string_view name;
};
constexpr std::array kKindNames{
    KindName{BundleKind::kLlm, "llm"},
    KindName{BundleKind::kVlm, "vlm"},
    KindName{BundleKind::kDiffusion, "diffusion"},
    KindName{BundleKind::kSegmenter, "segmenter"},
    KindName{BundleKind::kSpeechRecognizer, "speech_recognizer"},
    KindName{BundleKind::kVideoDiffusion, "video-diffusion"},
    KindName{BundleKind::kVideoSegmenter, "video_segmenter"},
};

ErrorCode code_of(BundleFault fault) {
  switch (fault) {
    case BundleFault::kPointedAtAsset:
      return ErrorCode::kInvalidArgument;
    case BundleFault::kMissingMetadata:
    case BundleFault::kMissingAsset:
    case BundleFault::kMissingTokenizer:
      return ErrorCode::kNotFound;
    case BundleFault::kUnsupportedVersion:
    case BundleFault::kKindMismatch:
    case BundleFault::kCompiledAsset:
      return ErrorCode::kUnsupported;
    case BundleFault::kMalformedMetadata:
    case BundleFault::kMissingField:
    case BundleFault::kOutsideBundle:
      return ErrorCode::kMalformed;
  }
  return ErrorCode::kMalformed;
}

fs::path expand_home(const fs::path& path) {
  const std::string text = path.string();
  const char* home = std::getenv("HOME");
  if (home == nullptr || (text != "~" && !text.starts_with("~/"))) return path;
  return fs::path(home) / (text.size() > 2 ? text.substr(2) : std::string());
}

// "dir/model.aimodel/" and "dir/model.aimodel" are the same folder.
fs::path last_component(const fs::path& path) {
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

// Before anything is read: a compiled asset is a folder with an unrelated metadata.json of its own.
void refuse_asset(const fs::path& path) {
  const fs::path name = last_component(path);
  if (name.extension() != ".aimodel" && name.extension() != ".aimodelc") return;
  throw BundleError(BundleFault::kPointedAtAsset, "",
                    fmt::format("'{}' is a model asset, not a model bundle folder", name.string()), path.string(),
                    "Name the bundle, the folder around it that holds metadata.json, the asset and tokenizer/");
}

fs::path metadata_file(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::exists(directory, ignored))
    throw BundleError(BundleFault::kMissingMetadata, "", "the folder does not exist", directory.string(),
                      "Name a model bundle: a folder that holds metadata.json");
  if (!fs::is_directory(directory, ignored))
    throw BundleError(BundleFault::kMissingMetadata, "", "a file, not a model bundle folder", directory.string(),
                      "Name a model bundle: a folder that holds metadata.json. A checkpoint becomes one by "
                      "'coreai-export llm <checkpoint> --output DIR'");
  const fs::path file = directory / "metadata.json";
  if (fs::exists(file, ignored)) return file;
  throw BundleError(BundleFault::kMissingMetadata, "", "metadata.json not found", file.string(),
                    "A model bundle is a folder that holds metadata.json, the assets it names and tokenizer/");
}

BundleError malformed(std::string field, std::string what, const std::string& where) {
  return BundleError(BundleFault::kMalformedMetadata, std::move(field), std::move(what), where,
                     "Export the bundle again, or correct the file");
}

const Json& require(const Json& root, const char* key, const std::string& where) {
  const auto found = root.find(key);
  if (found != root.end() && !found->is_null()) return *found;
  throw BundleError(BundleFault::kMissingField, key, fmt::format("required field '{}' is missing", key), where,
                    "Export the bundle again, or add the field");
}

std::string require_string(const Json& root, const char* key, const std::string& where) {
  const Json& value = require(root, key, where);
  if (!value.is_string()) throw malformed(key, fmt::format("'{}' is {}, not a string", key, value.dump()), where);
  return value.get<std::string>();
}

std::map<std::string, std::string> string_map(const Json& root, const char* key, const std::string& where) {
  std::map<std::string, std::string> entries;
  const auto found = root.find(key);
  if (found == root.end() || found->is_null()) return entries;
  if (!found->is_object()) throw malformed(key, fmt::format("'{}' is not an object", key), where);
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string())
      throw malformed(fmt::format("{}.{}", key, name), fmt::format("'{}.{}' is not a string", key, name), where);
    entries[name] = value.get<std::string>();
  }
  return entries;
}

Json parse(const std::string& text, const std::string& where) {
  try {
    Json root = Json::parse(text);
    if (!root.is_object()) throw malformed("", "metadata.json is JSON, but not an object", where);
    return root;
  } catch (const Json::parse_error& e) {
    throw malformed("", fmt::format("metadata.json is not JSON (at byte {})", e.byte), where);
  }
}

// First of all fields: an old bundle is told so, and not that it lacks what its version never had.
std::string checked_version(const Json& root, const std::string& where) {
  const auto found = root.find("metadata_version");
  const bool absent = found == root.end() || found->is_null();
  const std::string version = absent ? "0.1" : found->is_string() ? found->get<std::string>() : found->dump();
  if (!absent && found->is_string() && version == kVersion) return version;
  throw BundleError(BundleFault::kUnsupportedVersion, "metadata_version",
                    fmt::format("unsupported metadata_version {}{} (known: \"{}\")",
                                absent || found->is_string() ? fmt::format("\"{}\"", version) : version,
                                absent ? ", which is what a missing one means" : "", kVersion),
                    where, "Export the model again with a current exporter, which writes version \"0.2\"");
}

bool inside(const fs::path& path, const fs::path& root) {
  const auto [end, ignored] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return end == root.end();
}

}  // namespace

std::string_view bundle_kind_name(BundleKind kind) {
  for (const auto& entry : kKindNames)
    if (entry.kind == kind) return entry.name;
  return "unknown";
}

std::optional<BundleKind> bundle_kind_from_name(std::string_view name) {
  for (const auto& entry : kKindNames)
    if (entry.name == name) return entry.kind;
  return std::nullopt;
}

BundleError::BundleError(BundleFault fault, std::string field, std::string what, std::string where,
                         std::string next_step)
    : Error(code_of(fault), std::move(what), std::move(where), std::move(next_step)),
      fault_(fault),
      field_(std::move(field)) {}

ModelBundle ModelBundle::open(const fs::path& directory) {
  const fs::path path = expand_home(directory);
  refuse_asset(path);
  const fs::path file = metadata_file(path);
  return from_bytes(read_text_file(file, kMetadataLimit), path);
}

ModelBundle ModelBundle::from_bytes(std::string metadata, const fs::path& directory) {
  const fs::path path = expand_home(directory);
  refuse_asset(path);
  const std::string where = (path / "metadata.json").string();
  const Json root = parse(metadata, where);
  ModelBundle bundle;
  bundle.path_ = path;
  bundle.version_ = checked_version(root, where);
  const std::string kind = require_string(root, "kind", where);
  const auto known = bundle_kind_from_name(kind);
  if (!known) {
    std::string names;
    for (const auto& entry : kKindNames) names += (names.empty() ? "" : ", ") + std::string(entry.name);
    throw malformed("kind", fmt::format("unknown bundle kind \"{}\" (known: {})", kind, names), where);
  }
  bundle.kind_ = *known;
  bundle.name_ = require_string(root, "name", where);
  bundle.assets_ = string_map(root, "assets", where);
  bundle.user_data_ = string_map(root, "user_data", where);
  bundle.raw_ = std::move(metadata);
  return bundle;
}

std::vector<std::string> ModelBundle::component_keys() const {
  std::vector<std::string> keys;
  for (const auto& [role, file] : assets_) keys.push_back(role);
  return keys;
}

fs::path ModelBundle::resolve(const std::string& relative, const std::string& field) const {
  const fs::path path(relative);
  const auto escape = [&](std::string what) {
    return BundleError(BundleFault::kOutsideBundle, field, std::move(what), (path_ / "metadata.json").string(),
                       "Paths of a bundle are relative and stay inside its folder");
  };
  if (relative.empty() || relative.find('\0') != std::string::npos)
    throw escape(fmt::format("'{}' is not a path", field));
  if (path.is_absolute()) throw escape(fmt::format("'{}' is the absolute path '{}'", field, relative));
  for (const auto& part : path)
    if (part == "..") throw escape(fmt::format("'{}' is '{}', which leaves the bundle", field, relative));
  const fs::path full = path_ / path;
  std::error_code error;
  // Hub caches link single files to a store beside the folder; a linked folder is another matter.
  if (!fs::is_directory(full, error)) return full;
  const fs::path root = fs::canonical(path_, error);
  if (error) return full;
  const fs::path real = fs::canonical(full, error);
  if (!error && !inside(real, root))
    throw escape(fmt::format("'{}' is '{}', a link to '{}' outside the bundle", field, relative, real.string()));
  return full;
}

std::optional<fs::path> ModelBundle::find_model(std::string_view role) const {
  if (!assets_.contains(std::string(role))) return std::nullopt;
  return require_model(role);
}

fs::path ModelBundle::require_model(std::string_view role) const {
  const std::string field = fmt::format("assets.{}", role);
  const std::string where = (path_ / "metadata.json").string();
  const auto found = assets_.find(std::string(role));
  if (found == assets_.end())
    throw BundleError(BundleFault::kMissingField, field, fmt::format("required field '{}' is missing", field), where,
                      "Name the asset of that role in \"assets\"");
  const fs::path path = resolve(found->second, field);
  std::error_code ignored;
  const bool compiled_name = last_component(path).extension() == ".aimodelc";
  if (fs::exists(path, ignored) && !compiled_name) return path;
  const fs::path twin = path.string() + "c";
  if (compiled_name || fs::exists(twin, ignored))
    throw BundleError(BundleFault::kCompiledAsset, field,
                      fmt::format("'{}' is compiled for an Apple device and runs only there",
                                  (compiled_name ? path : twin).filename().string()),
                      path.string(), "Use a bundle with the portable .aimodel that it was compiled from");
  throw BundleError(BundleFault::kMissingAsset, field, fmt::format("asset '{}' not found", role), path.string(),
                    fmt::format("Copy the asset to that place, or name the right file in \"assets\" of {}", where));
}

void ModelBundle::verify() const {
  for (const auto& [role, file] : assets_) require_model(role);
}

}  // namespace coreai
