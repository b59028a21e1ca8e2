// An `.aimodel` without a bundle around it, as exporters of detectors, encoders and classifiers write it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/asset/asset.h"

namespace coreai {

// kDetector: a function from one image [n,3,h,w] to class logits [n,queries,classes] and boxes [n,queries,4].
enum class BareAssetKind { kDetector, kUnknown };
std::string_view bare_asset_kind_name(BareAssetKind kind);
BareAssetKind bare_asset_kind(std::span<const FunctionDescriptor> functions);

// Immutable.
struct BareAsset {
  std::filesystem::path path;
  BareAssetKind kind = BareAssetKind::kUnknown;
  std::vector<FunctionDescriptor> functions;
  AIModelAssetMetadata metadata;

  // Throws BundleError (kCompiledAsset, kNotAFolder, kMissingAsset) and as AIModelAsset::open and load_module.
  static BareAsset open(const std::filesystem::path& path);
};

// "main(pixel_values: tensor<1x3x64x64xf32>) -> (logits: ...)", states in brackets after the inputs.
std::string signature_text(const FunctionDescriptor& function);

}  // namespace coreai
