#include "coreai/bundle/open_bundle.h"

#include <fmt/format.h>

#include "bundle/pipeline_files.h"
#include "bundle/places.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;

using Facts = std::vector<std::pair<std::string, std::string>>;

bool is_asset_path(const fs::path& path) {
  const fs::path extension = places::without_slash(path).extension();
  return extension == ".aimodel" || extension == ".aimodelc";
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ", "));
}

// A folder without metadata.json: what else it may be.
AnyBundle open_without_metadata(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / "encoder.aimodel", ignored) && fs::exists(path / "decoder.aimodel", ignored))
    return SpeechBundle::open(path);
  if (fs::exists(path / "pipeline.json", ignored)) return PipelineDescriptor::open(path);
  const auto names = pipeline::asset_names(path);
  bool denoiser = false, decoder = false;
  for (const auto& name : names) {
    const std::string role = pipeline::role_of_file(name);
    denoiser = denoiser || role == "unet" || role.starts_with("transformer");
    decoder = decoder || role.starts_with("vae_decoder");
  }
  if (denoiser && decoder) return PipelineDescriptor::detect(path);
  if (names.empty()) return open_bundle(ModelBundle::open(path));  // throws what is wrong
  throw BundleError(
      BundleFault::kMissingMetadata, "", "metadata.json not found", (path / "metadata.json").string(),
      fmt::format("The folder holds {}: name the asset itself to use it without a bundle", joined(names)));
}

void add(Facts& facts, const char* label, const auto& value) {
  facts.emplace_back(label, fmt::format("{}", value));
}

void add_optional(Facts& facts, const char* label, const auto& value) {
  if (value) add(facts, label, *value);
}

void add_declared(const ModelBundle& bundle, BundleDescription& made) {
  made.kind = bundle_kind_name(bundle.kind());
  made.symlinks = bundle.symlinks();
  for (const auto& [role, file] : bundle.assets()) made.assets.emplace_back(role, bundle.path() / file);
}

void fill(const LanguageBundle& bundle, BundleDescription& made) {
  made.warnings = bundle.warnings();
  add(made.facts, "tokenizer", bundle.language().tokenizer);
  add(made.facts, "vocabulary", bundle.vocab_size());
  add(made.facts, "context length", bundle.max_context_length());
  for (const auto& [role, functions] : bundle.language().function_map)
    made.facts.emplace_back("functions of " + role, joined(functions));
  for (const auto& state : bundle.language().states)
    made.facts.emplace_back("state " + state.name, std::string(state_kind_name(state.kind)));
  if (!bundle.vision()) return;
  const VisionConfig& vision = *bundle.vision();
  add(made.facts, "image size", vision.image_size);
  add(made.facts, "patch size", vision.patch_size);
  add(made.facts, "image tokens", vision.image_token_count);
  add(made.facts, "image token", vision.image_token_id);
  add(made.facts, "image mean", fmt::format("{}", fmt::join(vision.image_mean, ", ")));
  add(made.facts, "image std", fmt::format("{}", fmt::join(vision.image_std, ", ")));
  add(made.facts, "image strategy", image_strategy_name(vision.image_strategy));
  if (vision.video) add(made.facts, "video frames", vision.video->max_frames);
}

void fill(const PipelineDescriptor& bundle, BundleDescription& made) {
  made.warnings = bundle.warnings();
  made.assets.clear();
  for (const auto& component : bundle.components()) made.assets.emplace_back(component.role, component.path);
  const DiffusionConfiguration& configuration = bundle.configuration();
  if (configuration.type) add(made.facts, "type", diffusion_type_name(*configuration.type));
  if (configuration.prediction_type)
    add(made.facts, "prediction", prediction_type_name(*configuration.prediction_type));
  add_optional(made.facts, "image size", configuration.image_size);
  add_optional(made.facts, "steps", configuration.default_steps);
  add_optional(made.facts, "guidance scale", configuration.default_guidance_scale);
  add_optional(made.facts, "frames", configuration.default_num_frames);
  std::vector<std::string> modes;
  for (const auto mode : bundle.modes()) modes.emplace_back(diffusion_mode_name(mode));
  made.facts.emplace_back("modes", modes.empty() ? "none" : joined(modes));
}

void fill(const SpeechBundle& bundle, BundleDescription& made) {
  made.warnings = bundle.warnings();
  add(made.facts, "architecture", speech_architecture_name(bundle.architecture()));
  if (!bundle.bundle())
    for (const auto& role : bundle.roles()) made.assets.emplace_back(role, bundle.path() / (role + ".aimodel"));
  if (const auto& parakeet = bundle.parakeet()) {
    add(made.facts, "vocabulary", parakeet->vocab_size);
    add(made.facts, "durations", joined(parakeet->durations));
    add(made.facts, "mel bins", parakeet->num_mel_bins);
    add(made.facts, "subsampling", parakeet->subsampling_factor);
  }
  if (const auto& s = bundle.streaming())
    made.facts.emplace_back(
        "streaming", fmt::format("{} + {} + {} encoder frames, {} mel frames", s->left_context_encoder_frames,
                                 s->chunk_encoder_frames, s->right_context_encoder_frames, s->window_mel_frames));
}

void fill(const SegmenterBundle& bundle, BundleDescription& made) {
  for (const auto& [name, value] : bundle.runtime()) made.facts.emplace_back("runtime " + name, value);
  for (const auto& [name, value] : bundle.tracking()) made.facts.emplace_back("tracking " + name, value);
}

void fill(const BareAsset& asset, BundleDescription& made) {
  made.kind = bare_asset_kind_name(asset.kind);
  made.name = asset.path.stem().string();
  made.path = asset.path;
  made.assets.emplace_back("main", asset.path);
  if (!asset.metadata.producer.empty()) add(made.facts, "producer", asset.metadata.producer);
  for (const auto& function : asset.functions) made.facts.emplace_back("function", signature_text(function));
}

}  // namespace

AnyBundle open_bundle(const fs::path& given) {
  const fs::path path = expand_home(given);
  if (is_asset_path(path)) return BareAsset::open(path);
  std::error_code ignored;
  const fs::path file = path / "metadata.json";
  if (fs::is_directory(path, ignored) && !fs::exists(file, ignored) && !fs::is_symlink(file, ignored))
    return open_without_metadata(path);
  return open_bundle(ModelBundle::open(path));
}

AnyBundle open_bundle(ModelBundle bundle) {
  switch (bundle.kind()) {
    case BundleKind::kLlm:
    case BundleKind::kVlm:
      return LanguageBundle::from(std::move(bundle));
    case BundleKind::kDiffusion:
    case BundleKind::kVideoDiffusion:
      return PipelineDescriptor::from(std::move(bundle));
    case BundleKind::kSpeechRecognizer:
      return SpeechBundle::from(std::move(bundle));
    case BundleKind::kSegmenter:
    case BundleKind::kVideoSegmenter:
      return SegmenterBundle::from(std::move(bundle));
  }
  throw InternalError("a bundle of no kind", bundle.path().string());
}

const ModelBundle* model_bundle(const AnyBundle& bundle) {
  struct Visitor {
    const ModelBundle* operator()(const LanguageBundle& b) const { return &b.bundle(); }
    const ModelBundle* operator()(const SegmenterBundle& b) const { return &b.bundle(); }
    const ModelBundle* operator()(const PipelineDescriptor& b) const { return b.bundle() ? &*b.bundle() : nullptr; }
    const ModelBundle* operator()(const SpeechBundle& b) const { return b.bundle() ? &*b.bundle() : nullptr; }
    const ModelBundle* operator()(const BareAsset& /*asset*/) const { return nullptr; }
  };
  return std::visit(Visitor{}, bundle);
}

std::vector<fs::path> tokenizer_folders(const AnyBundle& bundle) {
  struct Visitor {
    std::vector<fs::path> operator()(const LanguageBundle& b) const { return {b.tokenizer_directory()}; }
    std::vector<fs::path> operator()(const SegmenterBundle& b) const {
      return places::tokenizers_of(b.kind(), b.path(), "");
    }
    std::vector<fs::path> operator()(const PipelineDescriptor& b) const {
      return places::tokenizers_of(BundleKind::kDiffusion, b.path(), "");
    }
    std::vector<fs::path> operator()(const SpeechBundle& b) const { return {b.tokenizer_directory()}; }
    std::vector<fs::path> operator()(const BareAsset& /*asset*/) const { return {}; }
  };
  return std::visit(Visitor{}, bundle);
}

std::vector<BundleError> problems(const AnyBundle& bundle) {
  struct Visitor {
    std::vector<BundleError> operator()(const LanguageBundle& b) const { return b.problems(); }
    std::vector<BundleError> operator()(const SegmenterBundle& b) const { return b.bundle().problems(); }
    std::vector<BundleError> operator()(const PipelineDescriptor& b) const { return b.problems(); }
    std::vector<BundleError> operator()(const SpeechBundle& b) const { return b.problems(); }
    std::vector<BundleError> operator()(const BareAsset& /*asset*/) const { return {}; }
  };
  return std::visit(Visitor{}, bundle);
}

BundleDescription describe(const AnyBundle& bundle) {
  BundleDescription made;
  if (const ModelBundle* envelope = model_bundle(bundle)) add_declared(*envelope, made);
  if (made.kind.empty()) made.kind = std::holds_alternative<SpeechBundle>(bundle) ? "speech_recognizer" : "diffusion";
  std::visit(
      [&](const auto& one) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(one)>, BareAsset>) {
          made.name = one.name();
          made.path = one.path();
        }
        fill(one, made);
      },
      bundle);
  return made;
}

}  // namespace coreai
