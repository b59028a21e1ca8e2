#include "coreai/bundle/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <future>

#include "bundle/audit_parts.h"
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

// The folder that a language bundle's tokenizer lies in, or belongs into.
fs::path language_tokenizer(const ModelBundle& bundle, const Json& language) {
  fs::path usual = bundle.path() / "tokenizer";
  std::error_code ignored;
  const auto named = language.find("tokenizer");
  if (fs::exists(usual, ignored) || named == language.end() || !named->is_string()) return usual;
  try {
    // A hub name is no folder of the bundle.
    const fs::path other = bundle.resolve(named->get<std::string>(), "language.tokenizer");
    return fs::exists(other / "tokenizer.json", ignored) ? other : usual;
  } catch (const BundleError&) {
    return usual;
  }
}

fs::path speech_tokenizer(const ModelBundle& bundle) {
  try {
    return SpeechBundle::from(bundle).tokenizer_directory();
  } catch (const Error&) {
    return bundle.path() / "processor";
  }
}

// The tokenizers that a kind has, or that are there.
std::vector<audit::TokenizerQuestion> tokenizers_of(const ModelBundle& bundle, const Json& root) {
  const fs::path& path = bundle.path();
  std::error_code ignored;
  const auto found = root.find("language");
  const Json language = found != root.end() && found->is_object() ? *found : Json::object();
  std::optional<std::int64_t> vocab_size;
  const auto size = language.find("vocab_size");
  if (size != language.end() && size->is_number_integer() && size->get<std::int64_t>() > 0)
    vocab_size = size->get<std::int64_t>();
  std::vector<audit::TokenizerQuestion> questions;
  switch (bundle.kind()) {
    case BundleKind::kLlm:
    case BundleKind::kVlm:
      questions.push_back({language_tokenizer(bundle, language), true, vocab_size});
      break;
    case BundleKind::kDiffusion:
    case BundleKind::kVideoDiffusion:
      questions.push_back({path / "tokenizer", false, std::nullopt});
      if (fs::exists(path / "tokenizer_2", ignored)) questions.push_back({path / "tokenizer_2", false, std::nullopt});
      break;
    case BundleKind::kSpeechRecognizer:
      questions.push_back({speech_tokenizer(bundle), false, std::nullopt});
      break;
    case BundleKind::kSegmenter:
    case BundleKind::kVideoSegmenter:
      if (fs::exists(path / "tokenizer", ignored)) questions.push_back({path / "tokenizer", false, std::nullopt});
      break;
  }
  return questions;
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
    for (const auto& question : tokenizers_of(bundle, root)) audit::audit_tokenizer(question, own);
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
  audit::FilesQuestion files{true, {}};
  for (const auto& [role, path] : description.assets) {
    files.declared.push_back(path.lexically_relative(report.path));
    report.assets.push_back(audit::audit_asset(path, role, findings).report);
  }
  const auto* speech = std::get_if<SpeechBundle>(&bundle);
  audit::TokenizerQuestion question{report.path / "tokenizer", false, std::nullopt};
  try {
    if (speech != nullptr) question.folder = speech->tokenizer_directory();
  } catch (const BundleError& error) {
    findings.add(error);
    question.folder.clear();
  }
  if (!question.folder.empty()) audit::audit_tokenizer(question, findings);
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
  report.path = expand_home(path);
  if (!report.path.has_filename()) report.path = report.path.parent_path();  // "dir/" is "dir"
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
