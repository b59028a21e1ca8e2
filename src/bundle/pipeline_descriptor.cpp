#include "coreai/bundle/pipeline_descriptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bundle/metadata.h"
#include "bundle/pipeline_files.h"
#include "bundle/places.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using metadata::Fields;
using metadata::Json;

constexpr std::array kTypes{DiffusionType::kStableDiffusion, DiffusionType::kStableDiffusionXl,
                            DiffusionType::kStableDiffusion3, DiffusionType::kFlux2};
constexpr std::array kPredictions{PredictionType::kEpsilon, PredictionType::kVPrediction, PredictionType::kFlow,
                                  PredictionType::kFlowMatching};
constexpr std::array kModes{DiffusionMode::kFull, DiffusionMode::kTiled, DiffusionMode::kHalf};

DiffusionScheduler read_scheduler(const Fields& fields) {
  DiffusionScheduler scheduler;
  scheduler.training_steps = fields.optional_integer("training_steps").value_or(scheduler.training_steps);
  scheduler.beta_start = fields.optional_number("beta_start").value_or(scheduler.beta_start);
  scheduler.beta_end = fields.optional_number("beta_end").value_or(scheduler.beta_end);
  scheduler.beta_schedule = fields.optional_text("beta_schedule").value_or(scheduler.beta_schedule);
  return scheduler;
}

std::optional<DiffusionType> read_type(const Fields& fields, std::vector<std::string>& warnings) {
  const auto name = fields.optional_text("type");
  if (!name) return std::nullopt;
  for (const auto known : kTypes)
    if (*name == diffusion_type_name(known)) return known;
  warnings.push_back(fmt::format(
      "the diffusion type {} is not known (known: stable-diffusion, stable-diffusion-xl, stable-diffusion-3, flux2)",
      metadata::quote(*name)));
  return std::nullopt;
}

std::optional<PredictionType> read_prediction(const Fields& fields) {
  const auto name = fields.optional_text("prediction_type");
  if (!name) return std::nullopt;
  for (const auto known : kPredictions)
    if (*name == prediction_type_name(known)) return known;
  throw metadata::malformed(
      fields.path("prediction_type"),
      fmt::format("unknown prediction type {} (known: epsilon, v_prediction, flow, flow_matching)",
                  metadata::quote(*name)),
      fields.where());
}

DiffusionConfiguration read_diffusion(const Fields& fields, std::vector<std::string>& warnings) {
  DiffusionConfiguration made;
  made.type = read_type(fields, warnings);
  made.prediction_type = read_prediction(fields);
  made.image_size = fields.optional_integer("image_size");
  if (const auto scheduler = fields.optional_object("scheduler")) made.scheduler = read_scheduler(*scheduler);
  made.encoder_scale_factor = fields.optional_number("encoder_scale_factor");
  made.decoder_scale_factor = fields.optional_number("decoder_scale_factor");
  made.decoder_shift_factor = fields.optional_number("decoder_shift_factor");
  made.batch_norm_eps = fields.optional_number("batch_norm_eps");
  made.guidance_embeds = fields.optional_flag("guidance_embeds");
  made.rope_axes_dims = fields.optional_integers("rope_axes_dims", 1);
  made.rope_theta = fields.optional_number("rope_theta");
  made.default_guidance_scale = fields.optional_number("default_guidance_scale");
  made.default_steps = fields.optional_integer("default_steps");
  made.text_dim = fields.optional_integer("text_dim");
  made.z_dim = fields.optional_integer("z_dim");
  made.default_num_frames = fields.optional_integer("default_num_frames");
  made.default_shift = fields.optional_number("default_shift");
  return made;
}

bool same_role(std::string_view a, std::string_view b) {
  const auto denoiser = [](std::string_view role) { return role == "unet" ? std::string_view("transformer") : role; };
  return denoiser(a) == denoiser(b);
}

// Roles of the denoiser and of the decoder in a mode.
std::string_view denoiser_of(DiffusionMode mode) {
  return mode == DiffusionMode::kHalf ? "transformer_512" : "transformer";
}
std::string_view decoder_of(DiffusionMode mode) {
  return mode == DiffusionMode::kFull ? "vae_decoder" : "vae_decoder_half";
}

BundleError missing_part(std::string_view role, const fs::path& folder) {
  return BundleError(BundleFault::kMissingAsset, fmt::format("assets.{}", role),
                     fmt::format("required component '{}' not found in the model's folder", role), folder.string(),
                     "Export the pipeline again with that component, or copy its .aimodel there");
}

}  // namespace

std::string_view diffusion_type_name(DiffusionType type) {
  switch (type) {
    case DiffusionType::kStableDiffusion:
      return "stable-diffusion";
    case DiffusionType::kStableDiffusionXl:
      return "stable-diffusion-xl";
    case DiffusionType::kStableDiffusion3:
      return "stable-diffusion-3";
    case DiffusionType::kFlux2:
      return "flux2";
  }
  return "unknown";
}

std::string_view prediction_type_name(PredictionType type) {
  switch (type) {
    case PredictionType::kEpsilon:
      return "epsilon";
    case PredictionType::kVPrediction:
      return "v_prediction";
    case PredictionType::kFlow:
      return "flow";
    case PredictionType::kFlowMatching:
      return "flow_matching";
  }
  return "unknown";
}

std::string_view diffusion_mode_name(DiffusionMode mode) {
  switch (mode) {
    case DiffusionMode::kFull:
      return "full";
    case DiffusionMode::kTiled:
      return "tiled";
    case DiffusionMode::kHalf:
      return "half";
  }
  return "unknown";
}

PipelineDescriptor PipelineDescriptor::open(const fs::path& directory) {
  const fs::path path = expand_home(directory);
  std::error_code ignored;
  if (fs::exists(path / "metadata.json", ignored) || !fs::is_directory(path, ignored))
    return from(ModelBundle::open(path));
  if (fs::exists(path / "pipeline.json", ignored))
    throw BundleError(BundleFault::kLegacyFormat, "",
                      "this bundle uses the legacy pipeline.json format, which is no longer supported",
                      (path / "pipeline.json").string(),
                      "Export it again with coreai.diffusion.export, which writes metadata.json");
  return detect(path);
}

PipelineDescriptor PipelineDescriptor::from(ModelBundle bundle) {
  bundle.require_kind({BundleKind::kDiffusion, BundleKind::kVideoDiffusion});
  const std::string where = metadata::where_of(bundle);
  const Json root = metadata::parse(bundle);
  const Fields fields(root, "", where);
  PipelineDescriptor made;
  made.path_ = bundle.path();
  made.name_ = bundle.name();
  made.configuration_ = read_diffusion(fields.object("diffusion"), made.warnings_);
  const Fields assets = fields.object("assets");
  for (const auto& [role, file] : assets.json().items())
    made.components_.push_back({role, made.path_ / file.get<std::string>(), ComponentSource::kMetadata});
  made.bundle_ = std::move(bundle);
  made.probe();
  return made;
}

PipelineDescriptor PipelineDescriptor::detect(const fs::path& directory) {
  PipelineDescriptor made;
  made.path_ = expand_home(directory);
  made.name_ = places::without_slash(made.path_).filename().string();
  for (const auto& name : pipeline::asset_names(made.path_)) {
    const std::string role = pipeline::role_of_file(name);
    if (!role.empty() && made.find(role) == nullptr)
      made.components_.push_back({role, made.path_ / name, ComponentSource::kDetected});
  }
  if (made.find("transformer") == nullptr)
    throw BundleError(BundleFault::kMissingMetadata, "",
                      "metadata.json not found, and no file is named like a denoiser", made.path_.string(),
                      "A diffusion bundle is a folder that holds metadata.json and the assets it names");
  made.probe();
  return made;
}

// The mode-dependent parts of exporters that name only some of them in the metadata.
void PipelineDescriptor::probe() {
  for (const auto& [role, name] : pipeline::kProbedNames) {
    if (find(role) != nullptr) continue;
    std::error_code ignored;
    for (const char* extension : {".aimodel", ".aimodelc"}) {
      const fs::path candidate = path_ / (std::string(name) + extension);
      if (!fs::exists(candidate, ignored)) continue;
      components_.push_back({std::string(role), candidate, ComponentSource::kProbed});
      break;
    }
  }
}

const DiffusionComponent* PipelineDescriptor::find(std::string_view role) const {
  const auto found = std::find_if(components_.begin(), components_.end(),
                                  [&](const auto& component) { return same_role(component.role, role); });
  return found == components_.end() ? nullptr : &*found;
}

fs::path PipelineDescriptor::require(std::string_view role) const {
  const DiffusionComponent* component = find(role);
  if (component == nullptr) throw missing_part(role, path_);
  return require(*component);
}

fs::path PipelineDescriptor::require(const DiffusionComponent& component) const {
  const std::string where = bundle_ ? metadata::where_of(*bundle_) : path_.string();
  return places::require_asset(path_, component.path.lexically_relative(path_).string(), component.role, where);
}

std::vector<BundleError> PipelineDescriptor::missing_parts() const {
  std::vector<BundleError> found;
  // Videos have one size; their exporters' names for the other parts are not fixed.
  if (bundle_ && bundle_->kind() == BundleKind::kVideoDiffusion) {
    if (find("transformer") == nullptr) found.push_back(missing_part("transformer", path_));
    return found;
  }
  if (modes().empty()) found.push_back(missing_mode(std::nullopt));
  if (find("text_encoder") == nullptr && find("text_encoder_2") == nullptr)
    found.push_back(missing_part("text_encoder", path_));
  return found;
}

std::vector<BundleError> PipelineDescriptor::problems() const {
  std::vector<BundleError> found;
  const auto note = [&](const auto& check) {
    try {
      check();
    } catch (const BundleError& e) {
      found.push_back(e);
    }
  };
  for (const auto& component : components_) note([&] { require(component); });
  for (auto& missing : missing_parts()) found.push_back(std::move(missing));
  note([&] { batch_norm_statistics(); });
  return found;
}

void PipelineDescriptor::verify() const {
  const auto found = problems();
  if (!found.empty()) throw BundleError(found.front());
}

std::vector<DiffusionMode> PipelineDescriptor::modes() const {
  std::vector<DiffusionMode> possible;
  for (const auto mode : kModes)
    if (find(denoiser_of(mode)) != nullptr && find(decoder_of(mode)) != nullptr) possible.push_back(mode);
  return possible;
}

DiffusionMode PipelineDescriptor::choose_mode(std::optional<DiffusionMode> wanted) const {
  const auto possible = modes();
  if (!wanted && !possible.empty()) return possible.front();
  if (wanted && std::find(possible.begin(), possible.end(), *wanted) != possible.end()) return *wanted;
  throw BundleError(missing_mode(wanted));
}

BundleError PipelineDescriptor::missing_mode(std::optional<DiffusionMode> wanted) const {
  std::string there;
  for (const auto& component : components_) there += (there.empty() ? "" : ", ") + component.role;
  return BundleError(BundleFault::kMissingAsset, "assets",
                     wanted ? fmt::format("the parts for mode '{}' are not all there", diffusion_mode_name(*wanted))
                            : "the parts for no mode are all there",
                     path_.string(),
                     fmt::format("full needs transformer (or unet) and vae_decoder; tiled transformer and "
                                 "vae_decoder_half; half transformer_512 and vae_decoder_half. There are: {}",
                                 there.empty() ? "none" : there));
}

std::optional<BatchNormStatistics> PipelineDescriptor::batch_norm_statistics() const {
  std::error_code ignored;
  const fs::path mean = path_ / "vae_bn_mean.npy", variance = path_ / "vae_bn_var.npy";
  if (!fs::exists(mean, ignored) && !fs::exists(variance, ignored)) return std::nullopt;
  return pipeline::read_statistics(mean, variance);
}

}  // namespace coreai
