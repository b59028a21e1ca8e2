#include "coreai/bundle/model_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "bundle/metadata.h"
#include "bundle/places.h"
#include "coreai/base/ascii.h"
#include "coreai/base/mapped_file.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using metadata::Fields;
using metadata::Json;
using metadata::malformed;
using metadata::quote;
using metadata::shown;

constexpr std::string_view kVersion = "0.2";

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
    case BundleFault::kMissingFunction:
    case BundleFault::kExportInProgress:
    case BundleFault::kUnknownModel:
      return ErrorCode::kNotFound;
    case BundleFault::kUnsupportedVersion:
    case BundleFault::kKindMismatch:
    case BundleFault::kCompiledAsset:
    case BundleFault::kLegacyFormat:
      return ErrorCode::kUnsupported;
    case BundleFault::kMalformedMetadata:
    case BundleFault::kNotAFolder:
    case BundleFault::kInconsistent:
    case BundleFault::kMalformedSidecar:
    case BundleFault::kMissingField:
    case BundleFault::kOutsideBundle:
      return ErrorCode::kMalformed;
  }
  return ErrorCode::kMalformed;
}

// Before anything is read: a compiled asset is a folder with an unrelated metadata.json of its own.
void refuse_asset(const fs::path& path) {
  const fs::path name = places::without_slash(path).filename();
  const std::string extension = lower_case(name.extension().string());
  if (extension != ".aimodel" && extension != ".aimodelc") return;
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
  if (fs::is_directory(file, ignored))
    throw BundleError(BundleFault::kMalformedMetadata, "", "metadata.json is a folder, not a file", file.string(),
                      "Export the bundle again");
  if (fs::exists(file, ignored)) return file;
  if (fs::is_symlink(file, ignored))
    throw BundleError(BundleFault::kMissingMetadata, "", "metadata.json is a link to a file that is not there",
                      file.string(), "Download or copy the bundle again, with the files that its links name");
  throw BundleError(BundleFault::kMissingMetadata, "", "metadata.json not found", file.string(),
                    "A model bundle is a folder that holds metadata.json, the assets it names and tokenizer/");
}

std::string read_metadata(const fs::path& file) {
  std::error_code ignored;
  const auto size = fs::file_size(file, ignored);
  if (!ignored && size > metadata::kSizeLimit)
    throw malformed("", fmt::format("metadata.json has {} bytes, at most {} are read", size, metadata::kSizeLimit),
                    file.string());
  return read_text_file(file, metadata::kSizeLimit);
}

std::map<std::string, std::string> string_map(const Fields& root, const char* key) {
  std::map<std::string, std::string> entries;
  const auto block = root.optional_object(key);
  if (!block) return entries;
  for (const auto& [name, value] : block->json().items()) {
    if (!value.is_string())
      throw malformed(block->path(name), fmt::format("'{}' is not a string", block->path(name)), root.where());
    entries[name] = value.get<std::string>();
  }
  return entries;
}

// First of all fields: an old bundle is told so, and not that it lacks what its version never had.
std::string checked_version(const Json& root, const std::string& where) {
  const auto found = root.find("metadata_version");
  const bool absent = found == root.end() || found->is_null();
  if (!absent && found->is_string() && found->get<std::string>() == kVersion) return std::string(kVersion);
  throw BundleError(BundleFault::kUnsupportedVersion, "metadata_version",
                    fmt::format("unsupported metadata_version {}{} (known: \"{}\")",
                                absent ? "\"0.1\", which is what a missing one means" : shown(*found),
                                !absent && found->is_number() ? ", a number" : "", kVersion),
                    where, "Export the model again with a current exporter, which writes version \"0.2\"");
}

struct FaultName {
  BundleFault fault;
  std::string_view name;
};
constexpr std::array kFaultNames{
    FaultName{BundleFault::kPointedAtAsset, "pointed-at-asset"},
    FaultName{BundleFault::kMissingMetadata, "missing-metadata"},
    FaultName{BundleFault::kMalformedMetadata, "malformed-metadata"},
    FaultName{BundleFault::kUnsupportedVersion, "unsupported-version"},
    FaultName{BundleFault::kKindMismatch, "kind-mismatch"},
    FaultName{BundleFault::kMissingField, "missing-field"},
    FaultName{BundleFault::kMissingAsset, "missing-asset"},
    FaultName{BundleFault::kNotAFolder, "not-a-folder"},
    FaultName{BundleFault::kCompiledAsset, "compiled-asset"},
    FaultName{BundleFault::kOutsideBundle, "outside-bundle"},
    FaultName{BundleFault::kMissingTokenizer, "missing-tokenizer"},
    FaultName{BundleFault::kMissingFunction, "missing-function"},
    FaultName{BundleFault::kExportInProgress, "export-in-progress"},
    FaultName{BundleFault::kInconsistent, "inconsistent"},
    FaultName{BundleFault::kLegacyFormat, "legacy-format"},
    FaultName{BundleFault::kMalformedSidecar, "malformed-sidecar"},
    FaultName{BundleFault::kUnknownModel, "unknown-model"},
};

}  // namespace

std::string_view bundle_fault_name(BundleFault fault) {
  for (const auto& entry : kFaultNames)
    if (entry.fault == fault) return entry.name;
  return "unknown";
}

fs::path expand_home(const fs::path& path) {
  const std::string text = path.string();
  const char* home = std::getenv("HOME");
  if (home == nullptr || (text != "~" && !text.starts_with("~/"))) return path;
  return fs::path(home) / (text.size() > 2 ? text.substr(2) : std::string());
}

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
  return from_bytes(read_metadata(file), path);
}

ModelBundle ModelBundle::from_bytes(std::string text, const fs::path& directory) {
  const fs::path path = expand_home(directory);
  refuse_asset(path);
  const std::string where = (path / "metadata.json").string();
  const Json root = metadata::parse(text, "metadata.json", where);
  ModelBundle bundle;
  bundle.path_ = path;
  bundle.version_ = checked_version(root, where);
  const Fields fields(root, "", where);
  const std::string kind = fields.text("kind");
  const auto known = bundle_kind_from_name(kind);
  if (!known) {
    std::string names;
    for (const auto& entry : kKindNames) names += (names.empty() ? "" : ", ") + std::string(entry.name);
    throw malformed("kind", fmt::format("unknown bundle kind {} (known: {})", quote(kind), names), where);
  }
  bundle.kind_ = *known;
  bundle.name_ = fields.text("name");
  bundle.assets_ = string_map(fields, "assets");
  for (const auto& [role, file] : bundle.assets_) places::require_relative(file, "assets." + role, where);
  bundle.user_data_ = string_map(fields, "user_data");
  bundle.raw_ = std::move(text);
  return bundle;
}

std::vector<std::string> ModelBundle::component_keys() const {
  std::vector<std::string> keys;
  keys.reserve(assets_.size());
  for (const auto& [role, file] : assets_) keys.push_back(role);
  return keys;
}

fs::path ModelBundle::resolve(const std::string& relative, const std::string& field) const {
  return places::resolve(path_, relative, field, metadata::where_of(*this));
}

void ModelBundle::require_kind(std::initializer_list<BundleKind> kinds) const {
  std::string expected;
  for (const BundleKind kind : kinds) {
    if (kind == kind_) return;
    expected += (expected.empty() ? "" : " or ") + std::string(bundle_kind_name(kind));
  }
  throw BundleError(BundleFault::kKindMismatch, "kind",
                    fmt::format("expected bundle kind {}, got {}", expected, bundle_kind_name(kind_)),
                    metadata::where_of(*this), "Use the program that runs bundles of that kind");
}

fs::path ModelBundle::require_model(std::string_view role) const {
  const auto found = assets_.find(std::string(role));
  if (found == assets_.end()) {
    const std::string field = fmt::format("assets.{}", role);
    throw BundleError(BundleFault::kMissingField, field, fmt::format("required field '{}' is missing", field),
                      metadata::where_of(*this), "Name the asset of that role in \"assets\"");
  }
  return places::require_asset(path_, found->second, found->first, metadata::where_of(*this));
}

void ModelBundle::verify() const {
  for (const auto& [role, file] : assets_) require_model(role);
}

std::vector<BundleError> ModelBundle::problems() const {
  std::vector<BundleError> found;
  for (const auto& [role, file] : assets_) {
    try {
      require_model(role);
    } catch (const BundleError& e) {
      found.push_back(e);
    }
  }
  return found;
}

std::vector<BundleLink> ModelBundle::symlinks() const {
  constexpr int kEntryLimit = 10000;
  std::vector<BundleLink> links;
  std::error_code error;
  fs::recursive_directory_iterator entry(path_, fs::directory_options::skip_permission_denied, error);
  for (int seen = 0; !error && entry != fs::recursive_directory_iterator() && seen < kEntryLimit; ++seen) {
    std::error_code ignored;
    if (entry->is_symlink(ignored))
      links.push_back({entry->path().lexically_relative(path_), fs::read_symlink(entry->path(), ignored)});
    entry.increment(error);
  }
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return links;
}

}  // namespace coreai
