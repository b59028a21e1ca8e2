#include "coreai/bundle/segmenter_bundle.h"

#include <algorithm>

#include "bundle/metadata.h"
#include "bundle/value_names.h"

namespace coreai {
namespace {

using metadata::Fields;

bool has_function(std::span<const FunctionDescriptor> functions, std::string_view name) {
  return std::any_of(functions.begin(), functions.end(), [&](const auto& function) { return function.name == name; });
}

// Slot geometry and thresholds: their names are the tracker's business, so every value is kept as JSON text.
std::map<std::string, std::string> read_values(const Fields& root, const char* key) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : root.object(key).json().items()) values[name] = value.dump();
  return values;
}

}  // namespace

SegmenterForm segmenter_form(std::span<const FunctionDescriptor> functions) {
  const bool split = has_function(functions, "image_encode") && has_function(functions, "text_encode") &&
                     has_function(functions, "detect");
  if (split) return has_function(functions, "tracker_step") ? SegmenterForm::kVideo : SegmenterForm::kSplit;
  const auto main = std::find_if(functions.begin(), functions.end(), [](const auto& f) { return f.name == "main"; });
  if (main == functions.end()) return SegmenterForm::kUnknown;
  const auto has_input = [&](bool (*names)(std::string_view)) {
    return std::any_of(main->inputs.begin(), main->inputs.end(), [&](const auto& input) { return names(input.name); });
  };
  if (!has_input(names_image)) return SegmenterForm::kUnknown;
  if (has_input(names_points)) return SegmenterForm::kPoints;
  return has_input(names_text) ? SegmenterForm::kText : SegmenterForm::kUnknown;
}

SegmenterBundle SegmenterBundle::open(const std::filesystem::path& directory) {
  return from(ModelBundle::open(directory));
}

SegmenterBundle SegmenterBundle::from(ModelBundle bundle) {
  bundle.require_kind({BundleKind::kSegmenter, BundleKind::kVideoSegmenter});
  metadata::require_role(bundle, "main", "the segmenter's .aimodel");
  SegmenterBundle made(std::move(bundle));
  if (made.kind() == BundleKind::kSegmenter) return made;
  const metadata::Json root = metadata::parse(made.bundle_);
  const Fields fields(root, "", metadata::where_of(made.bundle_));
  made.runtime_ = read_values(fields, "runtime");
  made.tracking_ = read_values(fields, "tracking");
  return made;
}

}  // namespace coreai
