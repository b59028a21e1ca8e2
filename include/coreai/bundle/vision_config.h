// The `vision` block of a vision-language bundle: how an image becomes the vision asset's input.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace coreai {

// How an image is brought to image_size x image_size pixels.
enum class ImageStrategy { kStretch, kCenterCrop, kPad };
std::string_view image_strategy_name(ImageStrategy strategy);  // as metadata.json spells it

// Of videos and image sequences; absent from bundles that take one image.
struct VideoFrames {
  std::int64_t max_frames = 0;
  std::int64_t tokens_per_frame = 0;
  std::int64_t temporal_patch_size = 1;  // frames that share tokens
};

// A pixel p of 0..255 becomes (p / 255 * rescale_factor - image_mean[c]) / image_std[c].
struct VisionConfig {
  std::int64_t image_size = 0;         // pixels, width and height
  std::int64_t patch_size = 0;         // pixels
  std::int64_t image_token_count = 0;  // tokens that one input takes in the prompt, all frames together
  std::int32_t image_token_id = 0;     // the placeholder that the features replace
  std::array<double, 3> image_mean = kClipMean;
  std::array<double, 3> image_std = kClipStd;
  double rescale_factor = 1.0;
  ImageStrategy image_strategy = ImageStrategy::kStretch;
  bool include_image_info = false;
  std::optional<VideoFrames> video;

  // What the reference takes when the block has none.
  static constexpr std::array<double, 3> kClipMean{0.48145466, 0.4578275, 0.40821073};
  static constexpr std::array<double, 3> kClipStd{0.26862954, 0.26130258, 0.27577711};
};

}  // namespace coreai
