// What each kind needs beside the envelope: roles, its block of metadata.json, files, and parts that fit each other.
#include <fmt/format.h>

#include <algorithm>

#include "bundle/audit_parts.h"
#include "coreai/base/error.h"
#include "coreai/bundle/language_bundle.h"
#include "coreai/bundle/pipeline_descriptor.h"
#include "coreai/bundle/segmenter_bundle.h"
#include "coreai/bundle/speech_bundle.h"

namespace coreai::audit {
namespace {

namespace fs = std::filesystem;

struct KindRoles {
  std::vector<std::vector<std::string_view>> needed;  // of each list one
  std::vector<std::string_view> known;
};

std::string text_member(const Json& root, const char* block, const char* key) {
  const auto found = root.find(block);
  if (found == root.end() || !found->is_object()) return {};
  const auto value = found->find(key);
  return value != found->end() && value->is_string() ? value->get<std::string>() : std::string();
}

KindRoles roles_of(BundleKind kind, const Json& root) {
  static const std::vector<std::string_view> diffusion = {"transformer",      "transformer_512", "unet",
                                                          "text_encoder",     "text_encoder_2",  "vae_decoder",
                                                          "vae_decoder_half", "vae_encoder",     "vae_encoder_half"};
  switch (kind) {
    case BundleKind::kLlm:
    case BundleKind::kSegmenter:
    case BundleKind::kVideoSegmenter:
      return {{{"main"}}, {"main"}};
    case BundleKind::kVlm:
      return {{{"main"}, {"embedding"}}, {"main", "embedding", "vision"}};
    case BundleKind::kDiffusion:
    case BundleKind::kVideoDiffusion:
      return {{}, diffusion};  // audit_parts() tells what is missing
    case BundleKind::kSpeechRecognizer:
      if (text_member(root, "config", "architecture") == "parakeet_tdt")
        return {{{"encoder"}, {"decoder_step"}, {"joint"}}, {"encoder", "decoder_step", "joint"}};
      return {{{"encoder", "main"}}, {"encoder", "decoder", "main"}};
  }
  return {};
}

void check_roles(const ModelBundle& bundle, const Json& root, Findings& findings) {
  const fs::path metadata = bundle.path() / "metadata.json";
  const KindRoles roles = roles_of(bundle.kind(), root);
  const auto& assets = bundle.assets();
  const auto declared = [&](std::string_view role) { return assets.contains(std::string(role)); };
  if (assets.empty()) return;  // reported by itself
  for (const auto& alternatives : roles.needed) {
    if (std::ranges::any_of(alternatives, declared)) continue;
    std::string names;
    for (const std::string_view role : alternatives) names += fmt::format("{}'{}'", names.empty() ? "" : " or ", role);
    findings.add(AuditRule::kRoleMissing, metadata,
                 fmt::format("a bundle of kind {} needs an asset for {}", bundle_kind_name(bundle.kind()), names));
  }
  if (bundle.kind() == BundleKind::kVlm && !declared("vision"))
    findings.add(AuditRule::kExportInProgress, metadata,
                 "the vision part is missing; exporters add it last, after decoder and embedding");
  for (const auto& [role, file] : assets)
    if (std::ranges::find(roles.known, role) == roles.known.end())
      findings.add(
          AuditRule::kRoleUnknown, metadata,
          fmt::format("no reader of kind {} looks for the role '{}'", bundle_kind_name(bundle.kind()), excerpt(role)));
}

const LoadedAsset* find_asset(const std::vector<LoadedAsset>& assets, std::string_view role) {
  const auto found = std::ranges::find_if(
      assets, [&](const LoadedAsset& asset) { return asset.report.role == role && asset.report.loaded; });
  return found == assets.end() ? nullptr : &*found;
}

// Empty when function_map has no entry for the role.
std::string mapped_function(const Json& root, std::string_view role) {
  const Json::json_pointer place = Json::json_pointer("/language/function_map") / std::string(role) / std::size_t{0};
  if (!root.contains(place)) return {};
  const Json& name = root.at(place);
  return name.is_string() ? name.get<std::string>() : std::string();
}

// The function that function_map gives a part, else the one called like it or "main", else its first; of that the first
// input or output. Null where there is none.
const ValueDescriptor* first_value(const Json& root, const std::vector<LoadedAsset>& assets, std::string_view role,
                                   bool output) {
  const LoadedAsset* asset = find_asset(assets, role);
  if (asset == nullptr || asset->functions.empty()) return nullptr;
  const FunctionDescriptor* function = find_function(*asset, mapped_function(root, role));
  for (const std::string_view usual : {role, std::string_view("main")})
    if (function == nullptr) function = find_function(*asset, usual);
  if (function == nullptr) function = &asset->functions.front();
  const auto& values = output ? function->outputs : function->inputs;
  return values.empty() ? nullptr : &values.front();
}

std::int64_t last_extent(const ValueDescriptor* value, std::size_t from_end) {
  return value != nullptr && value->shape.rank() >= from_end ? value->shape[value->shape.rank() - from_end] : kDynamic;
}

bool differ(std::int64_t a, std::int64_t b) {
  return a != kDynamic && b != kDynamic && a != b;
}

void check_vision(const ModelBundle& bundle, const Json& root, const std::vector<LoadedAsset>& assets,
                  Findings& findings) {
  const fs::path metadata = bundle.path() / "metadata.json";
  const auto language = root.find("language");
  const bool has_language = language != root.end() && language->is_object();
  Json vision = root.value("vision", Json());
  if (vision.is_null() && has_language && language->contains("vision")) {
    vision = *language->find("vision");
    findings.add(AuditRule::kVisionMisplaced, metadata, "the vision block stands inside 'language'");
  }
  if (!vision.is_object()) vision = Json::object();
  const std::int64_t image_token = count_of(vision, "image_token_id", 0).value_or(kDynamic);
  const std::int64_t vocabulary = has_language ? count_of(*language, "vocab_size").value_or(kDynamic) : kDynamic;
  if (image_token != kDynamic && vocabulary != kDynamic && image_token >= vocabulary)
    findings.add(AuditRule::kImageTokenOutside, metadata,
                 fmt::format("vision.image_token_id is {}, the model's vocabulary has {}", image_token, vocabulary));
  const ValueDescriptor* pixels = first_value(root, assets, "vision", false);
  const ValueDescriptor* features = first_value(root, assets, "vision", true);
  const std::int64_t size = count_of(vision, "image_size").value_or(kDynamic);
  const std::int64_t tokens = count_of(vision, "image_token_count").value_or(kDynamic);
  if (differ(last_extent(pixels, 1), size) || differ(last_extent(pixels, 2), size))
    findings.add(AuditRule::kVisionMismatch, metadata,
                 fmt::format("vision.image_size is {}, the vision part takes {}", size, pixels->type_name));
  if (differ(last_extent(features, 2), tokens))
    findings.add(AuditRule::kVisionMismatch, metadata,
                 fmt::format("vision.image_token_count is {}, the vision part gives {}", tokens, features->type_name));
  const ValueDescriptor* embeddings = first_value(root, assets, "embedding", true);
  const ValueDescriptor* embedded = first_value(root, assets, "main", false);
  for (const ValueDescriptor* part : {features, embeddings})
    if (part != nullptr && embedded != nullptr && differ(last_extent(part, 1), last_extent(embedded, 1)))
      findings.add(AuditRule::kHiddenMismatch, metadata,
                   fmt::format("'{}' is {}, the decoder's '{}' is {}", part->name, part->type_name, embedded->name,
                               embedded->type_name));
}

// What the readers of the kind's block say of it. Roles have been reported already.
template <typename Read>
void read_block(Findings& findings, const Read& read) {
  try {
    read();
  } catch (const BundleError& error) {
    const AuditRule rule = rule_of(error);
    const bool said = findings.has(rule) || findings.has(AuditRule::kAssetsEmpty);
    if (!said || (rule != AuditRule::kRoleMissing && rule != AuditRule::kExportInProgress)) findings.add(error);
  } catch (const Error& error) {
    findings.add(AuditRule::kFieldInvalid, findings.root() / "metadata.json", error.what());
  }
}

void check_embedded(const Json& root, Findings& findings) {
  const auto language = root.find("language");
  if (language == root.end() || !language->is_object()) return;
  const auto embedded = language->find("embedded_tokenizer");
  std::error_code ignored;
  if (embedded == language->end() || *embedded != false) return;
  if (fs::exists(findings.root() / "tokenizer" / "tokenizer.json", ignored))
    findings.add(AuditRule::kTokenizerNotEmbedded, findings.root() / "metadata.json",
                 "language.embedded_tokenizer is false although tokenizer/ is there");
}

void check_diffusion(const ModelBundle& bundle, Findings& findings) {
  std::error_code ignored;
  read_block(findings, [&] {
    const PipelineDescriptor pipeline = PipelineDescriptor::from(bundle);
    if (!bundle.assets().empty()) audit_parts(pipeline, findings);
    const bool statistics = pipeline.batch_norm_statistics().has_value();
    if (statistics || pipeline.configuration().type != DiffusionType::kFlux2) return;
    for (const char* name : {"vae_bn_mean.npy", "vae_bn_var.npy"})
      findings.add(AuditRule::kSidecarMissing, findings.root() / name, fmt::format("a flux2 pipeline needs {}", name));
  });
  if (fs::exists(findings.root() / "pipeline.json", ignored))
    findings.add(AuditRule::kLegacyPipeline, findings.root() / "pipeline.json", "there is a pipeline.json");
}

void check_segmenter(const ModelBundle& bundle, const std::vector<LoadedAsset>& assets, Findings& findings) {
  read_block(findings, [&] { SegmenterBundle::from(bundle); });
  const LoadedAsset* main = find_asset(assets, "main");
  if (main == nullptr || main->functions.empty() || segmenter_form(main->functions) != SegmenterForm::kUnknown) return;
  std::string names;
  for (const FunctionDescriptor& function : main->functions) names += (names.empty() ? "" : ", ") + function.name;
  findings.add(AuditRule::kSegmenterUnknown, main->path,
               fmt::format("none of the functions can be asked with text or points: {}", excerpt(names)));
}

}  // namespace

void audit_parts(const PipelineDescriptor& pipeline, Findings& findings) {
  const fs::path file = pipeline.bundle() ? findings.root() / "metadata.json" : findings.root();
  for (const BundleError& error : pipeline.missing_parts())
    findings.add(AuditRule::kRoleMissing, file, error.problem(), error.next_step());
}

void audit_kind(const ModelBundle& bundle, const Json& root, const std::vector<LoadedAsset>& assets,
                Findings& findings) {
  check_roles(bundle, root, findings);
  switch (bundle.kind()) {
    case BundleKind::kVlm:
      check_vision(bundle, root, assets, findings);
      [[fallthrough]];
    case BundleKind::kLlm:
      read_block(findings, [&] { LanguageBundle::from(bundle); });
      check_embedded(root, findings);
      break;
    case BundleKind::kDiffusion:
    case BundleKind::kVideoDiffusion:
      check_diffusion(bundle, findings);
      break;
    case BundleKind::kSpeechRecognizer:
      read_block(findings, [&] { SpeechBundle::from(bundle).whisper_generation(); });
      break;
    case BundleKind::kSegmenter:
    case BundleKind::kVideoSegmenter:
      check_segmenter(bundle, assets, findings);
      break;
  }
}

}  // namespace coreai::audit
