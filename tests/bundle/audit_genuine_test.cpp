// Bundles that the public exporters wrote: none has an error or a warning, and every note is a true one with its
// reason.
#include "bundle/broken_bundle.h"
#include "coreai/bundle/model_bundle.h"
#include "shared_data.h"

namespace coreai::test {
namespace {

struct TrueFinding {
  const char* bundle;
  const char* id;
  const char* reason;
};

constexpr const char* kStaticMap =
    "exporters write function_map {main: [main]} into every language bundle; static exports have no such function";
constexpr const char* kEmbedding =
    "static exports quantise the embedding to 8 bits even when no compression is asked for";

constexpr TrueFinding kTrueFindings[] = {
    {"mistral_ios_none_b3", "function-map-unmatched", kStaticMap},
    {"qwen3_ios_int8emb_b3", "function-map-unmatched", kStaticMap},
    {"qwen3_ios_int8emb_b3", "compression-unrequested", kEmbedding},
    {"qwen3_ios_mixed_b3", "function-map-unmatched", kStaticMap},
    {"qwen3_ios_noconstraints_b3", "function-map-unmatched", kStaticMap},
    {"qwen3_ios_none_b2", "function-map-unmatched", kStaticMap},
};

// Recordings and listings that lie beside the bundles in the collection; nothing in a bundle refers to them.
bool is_recording(const std::string& path) {
  return path == "cases.json" || path == "cases.bin" || path == "interp.json" || path.ends_with(".txt");
}

void expect_true_findings(const fs::path& bundle) {
  SCOPED_TRACE(bundle.string());
  std::set<std::string> expected;
  for (const TrueFinding& finding : kTrueFindings)
    if (bundle.filename() == finding.bundle) expected.insert(finding.id);
  const AuditReport report = audit_bundle(bundle);
  std::set<std::string> found;
  for (const Finding& finding : report.findings) {
    if (finding.rule == AuditRule::kFileUndeclared && is_recording(finding.path)) continue;
    EXPECT_EQ(finding.severity(), Severity::kNote) << finding.id() << ": " << finding.sentence;
    found.emplace(finding.id());
  }
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(report.clean());
  for (const AuditedAsset& asset : report.assets) {
    EXPECT_TRUE(asset.loaded) << asset.file;
    EXPECT_TRUE(asset.producer.starts_with("coreai-core 1.0.0b")) << asset.producer;
    EXPECT_EQ(asset.asset_version, "2.0");
  }
}

// Bundles of a folder, by whether they have metadata; of the others each asset by itself.
std::pair<int, int> audit_all(const fs::path& parent) {
  int bundles = 0, assets = 0;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(parent))
    if (entry.is_directory()) folders.push_back(entry.path());
  std::ranges::sort(folders);
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / "metadata.json")) {
      expect_true_findings(folder);
      ++bundles;
      continue;
    }
    try {
      audit_bundle(folder);
      ADD_FAILURE() << folder << " has no metadata.json";
    } catch (const BundleError& error) {
      EXPECT_EQ(bundle_fault_name(error.fault()), "missing-metadata") << folder;
    }
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".aimodel") continue;
      const AuditReport report = audit_bundle(entry.path());
      EXPECT_TRUE(report.findings.empty()) << entry.path() << ": " << report.findings.front().sentence;
      EXPECT_EQ(report.kind, folder.filename().string().starts_with("yolos") ? "detector" : "unknown");
      ++assets;
    }
  }
  return {bundles, assets};
}

TEST(AuditGenuine, BundlesOfTheFixtures) {
  const auto [bundles, assets] = audit_all(fixture("genuine"));
  EXPECT_GE(bundles, 20);
  EXPECT_GE(assets, 8);
}

TEST(AuditGenuine, TheWholeCollection) {
  const fs::path data = shared_data();
  if (!fs::exists(data / "genuine")) GTEST_SKIP() << "no " << (data / "genuine");
  const auto [bundles, assets] = audit_all(data / "genuine");
  EXPECT_EQ(bundles, 27);
  EXPECT_EQ(assets, 13);
}

TEST(AuditGenuine, BitsOfTheWeights) {
  const auto bits = [](const char* bundle) { return audit_bundle(fixture("genuine") / bundle).assets.at(0).weights; };
  const WeightMeasure half = bits("qwen3_f16");
  EXPECT_NEAR(half.bits_per_weight(), 16.0, 0.05);
  const WeightMeasure blocks = bits("qwen3_4bit_b3");  // a scale and an offset of 20 bits for 32 weights or more
  EXPECT_GT(blocks.elements_of_at_most(4), blocks.elements * 98 / 100);
  EXPECT_NEAR(blocks.bits_per_weight(), 4.7, 0.3);
  const WeightMeasure palettes = bits("qwen3_ios_mixed_b3");
  EXPECT_GT(palettes.elements_of_at_most(8), palettes.elements * 8 / 10);  // position tables stay in f16
  EXPECT_GT(palettes.elements_of_at_most(4), palettes.elements / 4);
}

}  // namespace
}  // namespace coreai::test
