// Bundles of kinds "diffusion" and "video-diffusion": which asset plays which part, the numbers of the sampler, and the
// modes that the files allow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/bundle/model_bundle.h"

namespace coreai {

enum class DiffusionType { kStableDiffusion, kStableDiffusionXl, kStableDiffusion3, kFlux2 };
enum class PredictionType { kEpsilon, kVPrediction, kFlow, kFlowMatching };
// As metadata.json spells them.
std::string_view diffusion_type_name(DiffusionType type);
std::string_view prediction_type_name(PredictionType type);

struct DiffusionScheduler {
  std::int64_t training_steps = 1000;
  double beta_start = 0.00085, beta_end = 0.012;
  std::string beta_schedule = "scaled_linear";
};

// The `diffusion` block. Absent fields are empty: what they default to is the pipeline's business.
struct DiffusionConfiguration {
  std::optional<DiffusionType> type;  // empty when absent or unknown (then a warning names it)
  std::optional<PredictionType> prediction_type;
  std::optional<std::int64_t> image_size;  // pixels
  std::optional<DiffusionScheduler> scheduler;
  std::optional<double> encoder_scale_factor, decoder_scale_factor, decoder_shift_factor, batch_norm_eps;
  std::optional<bool> guidance_embeds;
  std::vector<std::int64_t> rope_axes_dims;
  std::optional<double> rope_theta, default_guidance_scale;
  std::optional<std::int64_t> default_steps;
  // Of videos.
  std::optional<std::int64_t> text_dim, z_dim, default_num_frames;
  std::optional<double> default_shift;
};

// How a part was found.
enum class ComponentSource { kMetadata, kProbed, kDetected };

struct DiffusionComponent {
  std::string role;  // "transformer", "unet", "text_encoder", "vae_decoder_half", ...
  std::filesystem::path path;
  ComponentSource source = ComponentSource::kMetadata;
};

// Full size; full-size transformer with the half-size decoder over tiles; half size.
enum class DiffusionMode { kFull, kTiled, kHalf };
std::string_view diffusion_mode_name(DiffusionMode mode);

// Statistics that undo the batch norm of the latents, one value per latent channel: f32 [channels].
struct BatchNormStatistics {
  NDArray mean, variance;
};

// Immutable.
class PipelineDescriptor {
 public:
  // metadata.json when there is one; else a pipeline.json is refused (kLegacyFormat) and the parts are found by their
  // file names. Throws BundleError, IoError.
  static PipelineDescriptor open(const std::filesystem::path& directory);
  // Checks: kind, the diffusion block, assets. Mode-dependent parts that the metadata does not name are looked for by
  // the names that exporters use, ".aimodel" before ".aimodelc".
  static PipelineDescriptor from(ModelBundle bundle);
  // Without metadata: *.aimodel and *.aimodelc of the folder by their names, in snake_case or CamelCase. Throws
  // BundleError (kMissingMetadata) when no denoiser is among them.
  static PipelineDescriptor detect(const std::filesystem::path& directory);

  const std::filesystem::path& path() const { return path_; }
  const std::string& name() const { return name_; }
  // Nothing when the parts were found by their file names.
  const std::optional<ModelBundle>& bundle() const { return bundle_; }
  const DiffusionConfiguration& configuration() const { return configuration_; }
  // In the order: as declared, then as found.
  const std::vector<DiffusionComponent>& components() const { return components_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  // "transformer" and "unet" are one part. Null when there is none.
  const DiffusionComponent* find(std::string_view role) const;
  // Its path. Throws BundleError: no such part, nothing there, compiled.
  std::filesystem::path require(std::string_view role) const;
  // What the kind cannot do without and has no part for: of images the parts of a mode and a text encoder, of videos a
  // denoiser.
  std::vector<BundleError> missing_parts() const;
  // Every part as require(), missing_parts() and the sidecars. verify() throws the first of problems().
  void verify() const;
  std::vector<BundleError> problems() const;

  // Those whose parts are there, best first. Pipelines of one size have kFull only.
  std::vector<DiffusionMode> modes() const;
  // The wanted mode, else the best. Throws BundleError (kMissingAsset) that names the combinations of parts.
  DiffusionMode choose_mode(std::optional<DiffusionMode> wanted = {}) const;

  // vae_bn_mean.npy and vae_bn_var.npy; nothing when neither is there. Throws BundleError (kMalformedSidecar) when one
  // is missing or they are not finite f32 rows of one length.
  std::optional<BatchNormStatistics> batch_norm_statistics() const;

 private:
  PipelineDescriptor() = default;
  void probe();
  std::filesystem::path require(const DiffusionComponent& component) const;
  BundleError missing_mode(std::optional<DiffusionMode> wanted) const;
  std::filesystem::path path_;
  std::string name_;
  std::optional<ModelBundle> bundle_;
  DiffusionConfiguration configuration_;
  std::vector<DiffusionComponent> components_;
  std::vector<std::string> warnings_;
};

// A NumPy file beside the assets: magic, version, dtype, shape (kDynamic fits any extent), order and length are
// checked. Throws BundleError (kMalformedSidecar; kMissingAsset without the file).
NDArray read_sidecar(const std::filesystem::path& file, DType dtype, const Shape& shape);

}  // namespace coreai
