// Any bundle by its path, as the type of its kind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "coreai/bundle/bare_asset.h"
#include "coreai/bundle/language_bundle.h"
#include "coreai/bundle/pipeline_descriptor.h"
#include "coreai/bundle/segmenter_bundle.h"
#include "coreai/bundle/speech_bundle.h"

namespace coreai {

// llm and vlm; diffusion and video-diffusion; speech_recognizer; segmenter and video_segmenter; a bare asset.
using AnyBundle = std::variant<LanguageBundle, PipelineDescriptor, SpeechBundle, SegmenterBundle, BareAsset>;

// A folder with metadata.json by its kind; an .aimodel as a bare asset; without metadata.json the older speech folder
// or a diffusion pipeline by its file names. Throws BundleError (kMissingMetadata names the assets that lie in the
// folder), IoError; for a bare asset as BareAsset::open.
AnyBundle open_bundle(const std::filesystem::path& path);
AnyBundle open_bundle(ModelBundle bundle);

// What every kind can say of itself.
struct BundleDescription {
  std::string kind;  // as metadata.json spells it; "detector" or "unknown" for a bare asset
  std::string name;
  std::filesystem::path path;
  std::vector<std::pair<std::string, std::filesystem::path>> assets;  // role to path, existing or not
  std::vector<std::pair<std::string, std::string>> facts;             // label to value, for people
  std::vector<std::string> warnings;
  std::vector<BundleLink> symlinks;
};
// Reads no weights; a bare asset's functions are among its facts.
BundleDescription describe(const AnyBundle& bundle);
// The envelope; null for a bare asset and for folders without metadata.json.
const ModelBundle* model_bundle(const AnyBundle& bundle);
// Folders with the tokenizers that the bundle needs or has; none of a bare asset. Throws BundleError
// (kMissingTokenizer, kNotAFolder, kOutsideBundle).
std::vector<std::filesystem::path> tokenizer_folders(const AnyBundle& bundle);
// What is not usable: assets that are missing, compiled or no folders, parts of an unfinished export.
std::vector<BundleError> problems(const AnyBundle& bundle);

}  // namespace coreai
