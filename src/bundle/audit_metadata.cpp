// metadata.json as the readers see it, with a finding for each of their errors.
#include <fmt/format.h>

#include <algorithm>

#include "bundle/audit_parts.h"
#include "bundle/metadata.h"
#include "coreai/base/error.h"

namespace coreai::audit {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kExcerptBytes = 80;
constexpr std::size_t kSentenceBytes = 600;  // names from hostile files may have any length

// At most `limit` bytes, cut between characters.
std::string cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0U) == 0x80U) --limit;
  return std::string(text.substr(0, limit)) + "...";
}

// At most `limit` bytes and one line: what a file says must not look like another finding.
std::string line_of(std::string_view text, std::size_t limit) {
  std::string line = cut(text, limit);
  std::ranges::replace_if(line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

bool names_a_block(const std::string& field) {
  return field == "language" || field == "vision" || field == "diffusion" || field == "config" || field == "runtime" ||
         field == "tracking";
}

AuditRule rule_of_missing_field(const std::string& field) {
  if (names_a_block(field)) return AuditRule::kBlockMissing;
  return field.starts_with("assets.") ? AuditRule::kRoleMissing : AuditRule::kFieldMissing;
}

AuditRule rule_of_malformed(const BundleError& error) {
  const std::string& problem = error.problem();
  if (problem.find(" twice in one object") != std::string::npos) return AuditRule::kMetadataDuplicateKey;
  const bool unreadable = problem.find("at most") != std::string::npos || problem.find("a folder") != std::string::npos;
  if (error.field().empty()) return unreadable ? AuditRule::kMetadataUnreadable : AuditRule::kMetadataNotJson;
  return error.field() == "kind" ? AuditRule::kKindUnknown : AuditRule::kFieldInvalid;
}

// Files that compiled targets name; they are for other devices, so a missing one is only worth a note.
void audit_targets(const Json& root, Findings& findings) {
  const auto compilation = root.find("compilation");
  if (compilation == root.end() || !compilation->is_object()) return;
  const auto targets = compilation->find("targets");
  if (targets == compilation->end() || !targets->is_array()) return;
  std::error_code ignored;
  for (const Json& target : *targets) {
    if (!target.is_string()) continue;
    const fs::path file(target.get_ref<const std::string&>());
    if (file.is_absolute() || fs::exists(findings.root() / file, ignored)) continue;
    findings.add(AuditRule::kTargetMissing, findings.root() / "metadata.json",
                 fmt::format("compilation.targets names '{}', which is not in the bundle", excerpt(file.string())));
  }
}

}  // namespace

void Findings::add(AuditRule rule, const fs::path& path, std::string_view sentence, std::string_view fix) {
  const fs::path relative = path.lexically_relative(root_);
  std::string shown = relative.empty() || *relative.begin() == ".." ? path.string() : relative.string();
  if (fix.empty()) fix = audit_rule(rule).fix;
  list_.push_back({rule, std::move(shown), line_of(sentence, kSentenceBytes), line_of(fix, kSentenceBytes)});
}

void Findings::add(const BundleError& error) {
  add(rule_of(error), error.where().empty() ? root_ : fs::path(error.where()), error.problem(), error.next_step());
}

void Findings::append(Findings other) {
  std::ranges::move(other.list_, std::back_inserter(list_));
}

bool Findings::has(AuditRule rule) const {
  return std::ranges::any_of(list_, [&](const Finding& finding) { return finding.rule == rule; });
}

std::string excerpt(std::string_view text) {
  return line_of(text, kExcerptBytes);
}

std::optional<std::int64_t> count_of(const Json& block, const char* key, std::int64_t low) {
  const auto found = block.find(key);
  if (found == block.end() || !metadata::is_integer(*found, low, metadata::Fields::kMax)) return std::nullopt;
  return found->get<std::int64_t>();
}

AuditRule rule_of(const BundleError& error) {
  switch (error.fault()) {
    case BundleFault::kUnsupportedVersion:
      return AuditRule::kMetadataVersion;
    case BundleFault::kMissingField:
      return rule_of_missing_field(error.field());
    case BundleFault::kMissingAsset:
      return error.field().ends_with(".npy") ? AuditRule::kSidecarMissing : AuditRule::kAssetMissing;
    case BundleFault::kCompiledAsset:
      return AuditRule::kAssetCompiled;
    case BundleFault::kOutsideBundle:
      return AuditRule::kOutsideBundle;
    case BundleFault::kMissingTokenizer:
      return AuditRule::kTokenizerMissing;
    case BundleFault::kNotAFolder:
      return error.field().starts_with("assets.") ? AuditRule::kAssetNotFolder : AuditRule::kTokenizerMissing;
    case BundleFault::kMissingFunction:
      return error.field().starts_with("language.states.") ? AuditRule::kStateUnknown : AuditRule::kFunctionMissing;
    case BundleFault::kExportInProgress:
      return AuditRule::kExportInProgress;
    case BundleFault::kLegacyFormat:
      return AuditRule::kLegacyPipeline;
    case BundleFault::kMalformedSidecar:
      return AuditRule::kSidecarMalformed;
    case BundleFault::kInconsistent:
      if (error.field() == "language.states") return AuditRule::kStateUndeclared;
      return error.field().starts_with("language.states.") ? AuditRule::kStateKind : AuditRule::kInconsistent;
    case BundleFault::kMalformedMetadata:
      return rule_of_malformed(error);
    case BundleFault::kPointedAtAsset:
    case BundleFault::kMissingMetadata:
    case BundleFault::kKindMismatch:
    case BundleFault::kUnknownModel:
      break;
  }
  return AuditRule::kFieldInvalid;
}

std::optional<ModelBundle> audit_metadata(Json& root, Findings& findings) {
  root = Json::object();
  const fs::path file = findings.root() / "metadata.json";
  try {
    ModelBundle bundle = ModelBundle::open(findings.root());
    root = Json::parse(bundle.raw());
    audit_targets(root, findings);
    return bundle;
  } catch (const BundleError& error) {
    if (error.fault() == BundleFault::kMissingMetadata || error.fault() == BundleFault::kPointedAtAsset) throw;
    findings.add(error);
  } catch (const Error& error) {
    findings.add(AuditRule::kMetadataUnreadable, file, error.problem());
  }
  return std::nullopt;
}

}  // namespace coreai::audit
