// A model bundle: a folder with metadata.json, assets and what belongs to them (a tokenizer).
// Here the envelope that every kind shares; kinds read their own block from the raw bytes.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coreai/base/error.h"

namespace coreai {

enum class BundleKind { kLlm, kVlm, kDiffusion, kSegmenter, kSpeechRecognizer, kVideoDiffusion, kVideoSegmenter };
std::string_view bundle_kind_name(BundleKind kind);  // as metadata.json spells it
std::optional<BundleKind> bundle_kind_from_name(std::string_view name);

enum class BundleFault {
  kPointedAtAsset,      // the path is an .aimodel or .aimodelc, not a bundle
  kMissingMetadata,     // no folder, or no metadata.json in it
  kMalformedMetadata,   // not JSON, or a field of the wrong type; `field` names it
  kUnsupportedVersion,  // metadata_version is not 0.2
  kKindMismatch,        // a bundle of another kind
  kMissingField,        // `field` names it
  kMissingAsset,        // a declared asset is not there; `field` is "assets.<role>"
  kNotAFolder,          // a file where a folder belongs: an asset, a tokenizer folder
  kCompiledAsset,       // an asset compiled for an Apple device, .aimodelc
  kOutsideBundle,       // a path of the metadata leaves the folder
  kMissingTokenizer,
  kMissingFunction,   // the metadata names a function or state that the asset does not have
  kExportInProgress,  // parts that the exporter writes last are not there yet
  kInconsistent,      // fields that contradict each other or the asset
  kLegacyFormat,      // pipeline.json of exporters before version 0.2
  kMalformedSidecar,  // a NumPy or JSON file beside the assets
  kUnknownModel,      // no bundle of that name where bundles are looked for
};
std::string_view bundle_fault_name(BundleFault fault);  // "missing-asset": stable, for programs

// What is wrong with a bundle. The error code follows the fault: kNotFound for what is missing, kUnsupported for
// versions, kinds and compiled assets, kMalformed for the rest, kInvalidArgument for an asset in a bundle's place.
class BundleError : public Error {
 public:
  BundleError(BundleFault fault, std::string field, std::string what, std::string where, std::string next_step);
  BundleFault fault() const { return fault_; }
  const std::string& field() const { return field_; }

 private:
  BundleFault fault_;
  std::string field_;
};

// A path as people write it: a leading "~" is the home folder.
std::filesystem::path expand_home(const std::filesystem::path& path);

// A symbolic link inside a bundle, as hub caches make them.
struct BundleLink {
  std::filesystem::path path;    // relative to the bundle
  std::filesystem::path target;  // as the link spells it
};

// The envelope of metadata.json. Immutable.
class ModelBundle {
 public:
  // Reads `directory` (a leading "~" is the home folder). Checks in this order: the path is no asset (by its extension,
  // before anything is read), metadata.json is there, has at most 16 MiB, is UTF-8 and JSON of at most 64 levels
  // without duplicate keys, has metadata_version "0.2" (absent counts as "0.1"), kind, name, assets whose paths stay
  // inside. Throws BundleError, IoError.
  static ModelBundle open(const std::filesystem::path& directory);
  // Metadata that did not come from a file; assets are looked up in `directory`.
  static ModelBundle from_bytes(std::string metadata, const std::filesystem::path& directory);

  const std::string& metadata_version() const { return version_; }
  BundleKind kind() const { return kind_; }
  const std::string& name() const { return name_; }
  const std::filesystem::path& path() const { return path_; }
  // Role to file name, such as "main" to "model.aimodel".
  const std::map<std::string, std::string>& assets() const { return assets_; }
  const std::map<std::string, std::string>& user_data() const { return user_data_; }
  // metadata.json byte for byte: unknown keys stay readable.
  const std::string& raw() const { return raw_; }

  std::vector<std::string> component_keys() const;  // sorted
  // Throws BundleError (kKindMismatch) for a bundle of another kind.
  void require_kind(std::initializer_list<BundleKind> kinds) const;
  // Throws BundleError: the role is not declared, its path leaves the bundle, nothing is there, or it is compiled.
  std::filesystem::path require_model(std::string_view role) const;
  // Requires every declared asset; throws the first of problems().
  void verify() const;
  // What require_model says of each declared asset that is not usable, by role.
  std::vector<BundleError> problems() const;
  // Every symbolic link below the folder, sorted by path; they are followed. At most 10,000 entries are looked at.
  std::vector<BundleLink> symlinks() const;
  // A path of the metadata, relative to the bundle, as a path on disk. Throws BundleError when it is absolute, has
  // "..", or is a folder whose symbolic links lead out of the bundle. `field` names the metadata entry in the error.
  std::filesystem::path resolve(const std::string& relative, const std::string& field) const;

 private:
  ModelBundle() = default;
  std::string version_, name_, raw_;
  BundleKind kind_ = BundleKind::kLlm;
  std::filesystem::path path_;
  std::map<std::string, std::string> assets_, user_data_;
};

}  // namespace coreai
