#include "bundle/vision_config.h"

#include <fmt/format.h>

#include <algorithm>

namespace coreai {

std::string_view image_strategy_name(ImageStrategy strategy) {
  switch (strategy) {
    case ImageStrategy::kStretch:
      return "stretch";
    case ImageStrategy::kCenterCrop:
      return "center_crop";
    case ImageStrategy::kPad:
      return "pad";
  }
  return "unknown";
}

namespace metadata {
namespace {

ImageStrategy read_strategy(const Fields& fields) {
  const auto name = fields.optional_text("image_strategy");
  if (!name) return ImageStrategy::kStretch;
  for (const auto strategy : {ImageStrategy::kStretch, ImageStrategy::kCenterCrop, ImageStrategy::kPad})
    if (*name == image_strategy_name(strategy)) return strategy;
  throw malformed(fields.path("image_strategy"),
                  fmt::format("unknown image strategy {} (known: stretch, center_crop, pad)", quote(*name)),
                  fields.where());
}

void read_channels(const Fields& fields, const char* key, bool positive, std::array<double, 3>& channels) {
  const auto values = fields.optional_numbers(key, channels.size());
  if (values.empty()) return;
  for (const double value : values)
    if (positive && value <= 0)
      throw malformed(fields.path(key), fmt::format("'{}' holds {}, pixels are divided by it", fields.path(key), value),
                      fields.where());
  std::copy(values.begin(), values.end(), channels.begin());
}

}  // namespace

VisionConfig read_vision(const Fields& fields) {
  VisionConfig vision;
  vision.image_size = fields.integer("image_size");
  vision.patch_size = fields.integer("patch_size");
  vision.image_token_count = fields.integer("image_token_count");
  vision.image_token_id = static_cast<std::int32_t>(fields.integer("image_token_id", 0));
  read_channels(fields, "image_mean", false, vision.image_mean);
  read_channels(fields, "image_std", true, vision.image_std);
  vision.rescale_factor = fields.optional_number("rescale_factor").value_or(1.0);
  vision.image_strategy = read_strategy(fields);
  vision.include_image_info = fields.optional_flag("include_image_info").value_or(false);
  if (const auto frames = fields.optional_integer("max_video_frames")) {
    VideoFrames video;
    video.max_frames = *frames;
    video.tokens_per_frame = fields.integer("tokens_per_frame");
    video.temporal_patch_size = fields.optional_integer("temporal_patch_size").value_or(1);
    vision.video = video;
  }
  if (vision.patch_size > vision.image_size)
    throw BundleError(BundleFault::kInconsistent, fields.path("patch_size"),
                      fmt::format("'{}' is {}, larger than the image of {} pixels", fields.path("patch_size"),
                                  vision.patch_size, vision.image_size),
                      fields.where(), "Export the bundle again, or correct the file");
  return vision;
}

}  // namespace metadata
}  // namespace coreai
