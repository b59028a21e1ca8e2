// What is wrong with a bundle, found before a user finds it. Every check is listed in docs/bundles.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coreai {

enum class Severity {
  kNote,     // worth knowing; the bundle is clean all the same
  kWarning,  // runs here, but something is not as it should be
  kError,    // does not run, or answers wrongly
};
std::string_view severity_name(Severity severity);

enum class AuditRule : std::uint8_t {
#define COREAI_AUDIT_RULE(enumerator, id, severity, meaning, fix) enumerator,
#include "coreai/bundle/audit_rules.inc"
#undef COREAI_AUDIT_RULE
};

struct AuditRuleInfo {
  AuditRule rule;
  std::string_view id;  // kebab-case, stable
  Severity severity;
  std::string_view meaning, fix;
};
std::span<const AuditRuleInfo> audit_rules();  // in the order of AuditRule
const AuditRuleInfo& audit_rule(AuditRule rule);

struct Finding {
  AuditRule rule{};
  std::string path;  // relative to the bundle; "." is the bundle itself
  std::string sentence;
  std::string fix;

  std::string_view id() const { return audit_rule(rule).id; }
  Severity severity() const { return audit_rule(rule).severity; }
};

// Constants of one dtype.
struct StoredShare {
  std::uint64_t elements = 0, bytes = 0;
};

// Weights as they are stored, from the dtypes and bytes of the program's constants. Integers that are positions, shapes
// or masks are no weights; scales, offsets and palettes count in `bytes`, not in `elements`.
struct WeightMeasure {
  std::map<std::string, StoredShare> by_dtype;    // every constant, a blob that is shared once
  std::map<int, std::uint64_t> elements_by_bits;  // of weights
  std::uint64_t elements = 0, bytes = 0;          // of weights; bytes with what dequantises them
  double bits_per_weight() const;                 // 0 without weights
  std::uint64_t elements_of_at_most(int bits) const;
  void add(const WeightMeasure& other);
};

struct AuditedAsset {
  std::string role;                                 // empty for an asset without a bundle
  std::string file, producer, asset_version, hash;  // as declared; hash in hex, empty without one
  std::uint64_t bytes = 0;                          // of its files
  std::vector<std::string> functions;
  WeightMeasure weights;
  bool loaded = false;
};

struct AuditReport {
  std::filesystem::path path;
  std::string kind, name;   // empty when metadata.json does not tell; "detector" or "unknown" for a single asset
  std::uint64_t bytes = 0;  // of all files
  std::vector<AuditedAsset> assets;
  std::vector<Finding> findings;  // errors first, then warnings, then notes; each in the order of the checks

  std::size_t count(Severity severity) const;
  // No errors and no warnings.
  bool clean() const { return count(Severity::kError) + count(Severity::kWarning) == 0; }
};

struct AuditOptions {
  std::optional<std::uint64_t> max_bytes;  // of all files
};

// Looks at everything in a bundle folder, or at a single .aimodel, without running it. Hashes, programs and tokenizers
// are read at once on a few threads. Throws BundleError (kMissingMetadata, kPointedAtAsset for an .aimodelc) where
// there is no bundle to look at, IoError when the folder cannot be read; whatever is wrong inside is a finding.
AuditReport audit_bundle(const std::filesystem::path& path, const AuditOptions& options = {});

}  // namespace coreai
