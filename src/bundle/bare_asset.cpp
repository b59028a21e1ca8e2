#include "coreai/bundle/bare_asset.h"

#include <fmt/format.h>

#include <algorithm>

#include "bundle/places.h"
#include "bundle/value_names.h"
#include "coreai/bundle/model_bundle.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;

// The source says: image input = a name with "pixel" or "image"; logits = "logit" without "presence"; boxes = "box".
bool is_detector(const FunctionDescriptor& function) {
  if (function.inputs.size() != 1 || !function.states.empty()) return false;
  const ValueDescriptor& image = function.inputs.front();
  if (!names_image(image.name) || image.shape.rank() != 4 || image.shape[1] != 3) return false;
  const ValueDescriptor* logits = nullptr;
  const ValueDescriptor* boxes = nullptr;
  for (const auto& output : function.outputs) {
    if (logits == nullptr && names_logits(output.name)) logits = &output;
    if (boxes == nullptr && names_boxes(output.name)) boxes = &output;
    if (contains_ignoring_case(output.name, "mask")) return false;  // a segmenter gives boxes too
  }
  return logits != nullptr && boxes != nullptr && logits->shape.rank() == 3 && boxes->shape.rank() == 3 &&
         boxes->shape[2] == 4 && logits->shape[1] == boxes->shape[1];
}

std::string list_text(const std::vector<ValueDescriptor>& values) {
  std::string text;
  for (const auto& value : values)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", value.name, value.type_name);
  return text;
}

}  // namespace

std::string_view bare_asset_kind_name(BareAssetKind kind) {
  return kind == BareAssetKind::kDetector ? "detector" : "unknown";
}

BareAssetKind bare_asset_kind(std::span<const FunctionDescriptor> functions) {
  const bool detector = std::any_of(functions.begin(), functions.end(), is_detector);
  return detector ? BareAssetKind::kDetector : BareAssetKind::kUnknown;
}

std::string signature_text(const FunctionDescriptor& function) {
  const std::string states = function.states.empty() ? "" : fmt::format(" [{}]", list_text(function.states));
  return fmt::format("{}({}){} -> ({})", function.name, list_text(function.inputs), states,
                     list_text(function.outputs));
}

BareAsset BareAsset::open(const fs::path& given) {
  const fs::path path = places::without_slash(expand_home(given));
  std::error_code ignored;
  if (path.extension() == ".aimodelc")
    throw BundleError(BundleFault::kCompiledAsset, "",
                      fmt::format("'{}' is compiled for an Apple device and runs only there", path.filename().string()),
                      path.string(), "Use the portable .aimodel that it was compiled from");
  if (!fs::exists(path, ignored))
    throw BundleError(BundleFault::kMissingAsset, "", "the asset does not exist", path.string(),
                      "Name an .aimodel folder");
  if (!fs::is_directory(path, ignored))
    throw BundleError(BundleFault::kNotAFolder, "", "a file, not the folder that an asset is", path.string(),
                      "An .aimodel is a folder of three files: copy it whole, or export it again");
  const AIModelAsset asset = AIModelAsset::open(path);
  BareAsset bare;
  bare.path = path;
  bare.metadata = asset.metadata();
  bare.functions = asset.summary().functions;
  bare.kind = bare_asset_kind(bare.functions);
  return bare;
}

}  // namespace coreai
