// Bundles of kinds "segmenter" and "video_segmenter": one asset, what it is asked with is read from its functions.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "coreai/asset/asset.h"
#include "coreai/bundle/model_bundle.h"

namespace coreai {

// One function asked with text or with points, or image_encode, text_encode and detect.
enum class SegmenterForm { kText, kPoints, kSplit, kVideo, kUnknown };
// kVideo: the split functions together with a tracker.
SegmenterForm segmenter_form(std::span<const FunctionDescriptor> functions);

// Immutable.
class SegmenterBundle {
 public:
  // Checks: those of ModelBundle, kind, assets.main, for "video_segmenter" the blocks `runtime` and `tracking`. Throws
  // BundleError, IoError.
  static SegmenterBundle open(const std::filesystem::path& directory);
  static SegmenterBundle from(ModelBundle bundle);

  const ModelBundle& bundle() const { return bundle_; }
  BundleKind kind() const { return bundle_.kind(); }
  const std::string& name() const { return bundle_.name(); }
  const std::filesystem::path& path() const { return bundle_.path(); }
  std::filesystem::path model_path() const { return bundle_.require_model("main"); }
  // Slot geometry and thresholds of "video_segmenter": names to values, each as JSON text. Empty for "segmenter".
  const std::map<std::string, std::string>& runtime() const { return runtime_; }
  const std::map<std::string, std::string>& tracking() const { return tracking_; }

 private:
  explicit SegmenterBundle(ModelBundle bundle) : bundle_(std::move(bundle)) {}
  ModelBundle bundle_;
  std::map<std::string, std::string> runtime_, tracking_;
};

}  // namespace coreai
