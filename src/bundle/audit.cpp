#include "coreai/bundle/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <future>
#include <map>

#include "bundle/audit_parts.h"
#include "bundle/places.h"
#include "coreai/base/error.h"
#include "coreai/bundle/open_bundle.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using audit::Findings;
using audit::Json;

constexpr std::array kRules{
#define COREAI_AUDIT_RULE(enumerator, id, severity, meaning, fix) \
  AuditRuleInfo{AuditRule::enumerator, id, Severity::severity, meaning, fix},
#include "coreai/bundle/audit_rules.inc"
#undef COREAI_AUDIT_RULE
};

std::string_view kind_of(const Json& root) {
  const auto found = root.find("kind");
  return found != root.end() && found->is_string() ? std::string_view(found->get_ref<const std::string&>())
                                                   : std::string_view();
}

// The tokenizers of a kind. What their reader says of their places is a finding.
void look_at_tokenizers(BundleKind kind, const Json& root, Findings& findings) {
  const auto found = root.find("language");
  const Json language = found != root.end() && found->is_object() ? *found : Json::object();
  const auto named = language.find("tokenizer");
  const bool text = named != language.end() && named->is_string();
  const bool chat = kind == BundleKind::kLlm || kind == BundleKind::kVlm;
  try {
    for (const fs::path& folder :
         places::tokenizers_of(kind, findings.root(), text ? named->get<std::string>() : std::string()))
      audit::audit_tokenizer({folder, chat, chat ? audit::count_of(language, "vocab_size") : std::nullopt}, findings);
  } catch (const BundleError& error) {
    findings.add(error);
  }
}

audit::FilesQuestion files_of(const ModelBundle& bundle, const Json& root,
                              const std::vector<audit::LoadedAsset>& assets) {
  audit::FilesQuestion question{true, {}};
  for (const auto& [role, file] : bundle.assets()) question.declared.emplace_back(file);
  for (const audit::LoadedAsset& asset : assets) question.declared.emplace_back(asset.report.file);
  const auto language = root.find("language");
  if (language == root.end() || !language->is_object()) return question;
  const auto named = language->find("tokenizer");
  if (named != language->end() && named->is_string()) question.declared.emplace_back(named->get<std::string>());
  return question;
}

// Tokenizers are parsed on a thread of their own while the assets are hashed and read.
void look_inside(const ModelBundle& bundle, const Json& root, AuditReport& report, Findings& findings) {
  auto tokenizers = std::async(std::launch::async, [&] {
    Findings own(bundle.path());
    look_at_tokenizers(bundle.kind(), root, own);
    return own;
  });
  const std::vector<audit::LoadedAsset> assets = audit::audit_assets(bundle, findings);
  audit::audit_kind(bundle, root, assets, findings);
  const bool language = bundle.kind() == BundleKind::kLlm || bundle.kind() == BundleKind::kVlm;
  if (language) audit::audit_language(bundle, root, assets, findings);
  audit::audit_compression(root, assets, findings);
  findings.append(tokenizers.get());
  report.bytes = audit::audit_files(files_of(bundle, root, assets), findings);
  for (const audit::LoadedAsset& asset : assets) report.assets.push_back(asset.report);
}

void look_at_asset(AuditReport& report, Findings& findings) {
  audit::LoadedAsset asset = audit::audit_asset(report.path, "", findings);
  report.kind = bare_asset_kind_name(bare_asset_kind(asset.functions));
  report.name = asset.report.file;
  report.bytes = asset.report.bytes;
  report.assets.push_back(std::move(asset.report));
}

// An older folder whose parts are found by their names. Throws what opening it throws.
void look_at_older(AuditReport& report, Findings& findings) {
  const AnyBundle bundle = open_bundle(report.path);
  const BundleDescription description = describe(bundle);
  report.kind = description.kind;
  report.name = description.name;
  findings.add(AuditRule::kMetadataMissing, report.path, "there is no metadata.json");
  std::map<std::string, BundleError> refused;
  for (const BundleError& error : problems(bundle)) refused.emplace(error.field(), error);
  audit::FilesQuestion files{true, {}};
  for (const auto& [role, path] : description.assets) {
    files.declared.push_back(path.lexically_relative(report.path));
    if (const auto found = refused.find("assets." + role); found != refused.end()) {
      findings.add(found->second);
    } else {
      report.assets.push_back(audit::audit_asset(path, role, findings).report);
    }
  }
  if (const auto* pipeline = std::get_if<PipelineDescriptor>(&bundle)) audit::audit_parts(*pipeline, findings);
  const bool speech = std::holds_alternative<SpeechBundle>(bundle);
  look_at_tokenizers(speech ? BundleKind::kSpeechRecognizer : BundleKind::kDiffusion, Json::object(), findings);
  report.bytes = audit::audit_files(files, findings);
}

void settle(AuditReport& report, const AuditOptions& options, Findings& findings) {
  if (options.max_bytes && report.bytes > *options.max_bytes)
    findings.add(AuditRule::kSizeLimit, findings.root(),
                 fmt::format("the bundle has {} bytes, {} are allowed", report.bytes, *options.max_bytes));
  std::vector<Finding> found = findings.take();
  for (const Severity severity : {Severity::kError, Severity::kWarning, Severity::kNote})
    for (Finding& finding : found)
      if (finding.severity() == severity) report.findings.push_back(std::move(finding));
}

}  // namespace

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "unknown";
}

std::span<const AuditRuleInfo> audit_rules() {
  return kRules;
}

const AuditRuleInfo& audit_rule(AuditRule rule) {
  return kRules.at(static_cast<std::size_t>(rule));
}

std::size_t AuditReport::count(Severity severity) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(findings, [&](const Finding& finding) { return finding.severity() == severity; }));
}

AuditReport audit_bundle(const fs::path& path, const AuditOptions& options) {
  AuditReport report;
  report.path = places::without_slash(expand_home(path));
  Findings findings(report.path);
  std::error_code ignored;
  if (report.path.extension() == ".aimodel" && fs::is_directory(report.path, ignored)) {
    look_at_asset(report, findings);
  } else if (fs::is_directory(report.path, ignored) &&
             !fs::exists(fs::symlink_status(report.path / "metadata.json", ignored)) &&
             report.path.extension() != ".aimodelc") {
    look_at_older(report, findings);
  } else {
    Json root;
    const std::optional<ModelBundle> bundle = audit::audit_metadata(root, findings);
    report.kind = kind_of(root);
    if (bundle) {
      report.name = bundle->name();
      look_inside(*bundle, root, report, findings);
    } else {
      report.bytes = audit::audit_files({}, findings);
    }
  }
  settle(report, options, findings);
  return report;
}

}  // namespace coreai
