// Bundles that the public exporters wrote: each is read as its kind and verified.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "coreai/bundle/open_bundle.h"
#include "shared_data.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kFixtures = COREAI_FIXTURE_DIR;

std::vector<fs::path> folders_of(const fs::path& parent) {
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(parent))
    if (entry.is_directory()) folders.insert(entry.path());
  return {folders.begin(), folders.end()};
}

std::string kind_of(const std::string& name) {
  if (name.starts_with("flux2") || name.starts_with("sd15")) return "diffusion";
  if (name.starts_with("parakeet")) return "speech_recognizer";
  if (name.starts_with("sam3")) return "segmenter";
  return name.starts_with("qwen3_vl") ? "vlm" : "llm";
}

void expect_reads_and_verifies(const fs::path& folder, const std::string& kind) {
  SCOPED_TRACE(folder.string());
  const AnyBundle bundle = open_bundle(folder);
  const BundleDescription description = describe(bundle);
  EXPECT_EQ(description.kind, kind);
  EXPECT_EQ(description.path, folder);
  EXPECT_FALSE(description.name.empty());
  EXPECT_FALSE(description.assets.empty());
  EXPECT_TRUE(description.warnings.empty());
  ASSERT_NE(model_bundle(bundle), nullptr);
  model_bundle(bundle)->verify();
  for (const auto& problem : problems(bundle)) ADD_FAILURE() << problem.what();
}

void expect_bare(const fs::path& folder) {
  SCOPED_TRACE(folder.string());
  try {
    open_bundle(folder);
    ADD_FAILURE() << "opened without metadata.json";
  } catch (const BundleError& e) {
    EXPECT_EQ(e.fault(), BundleFault::kMissingMetadata);
    EXPECT_THAT(e.next_step(), HasSubstr(".aimodel"));
  }
  int assets = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".aimodel") continue;
    ++assets;
    const AnyBundle opened = open_bundle(entry.path());
    const auto* bare = std::get_if<BareAsset>(&opened);
    ASSERT_NE(bare, nullptr);
    const bool detector = folder.filename().string().starts_with("yolos");
    EXPECT_EQ(bare_asset_kind_name(bare->kind), detector ? "detector" : "unknown");
    ASSERT_FALSE(bare->functions.empty());
    for (const auto& function : bare->functions) {
      EXPECT_THAT(signature_text(function), HasSubstr(" -> ("));
      EXPECT_FALSE(function.outputs.empty());
    }
    EXPECT_EQ(describe(opened).kind, bare_asset_kind_name(bare->kind));
  }
  EXPECT_EQ(assets, 1);
}

struct Counts {
  int bundles = 0, bare = 0;
};

// Every folder reads as its kind, or without metadata as one asset.
Counts expect_all_read(const fs::path& root) {
  Counts counts;
  for (const auto& folder : folders_of(root)) {
    if (fs::exists(folder / "metadata.json")) {
      expect_reads_and_verifies(folder, kind_of(folder.filename().string()));
      ++counts.bundles;
    } else {
      expect_bare(folder);
      ++counts.bare;
    }
  }
  return counts;
}

TEST(GenuineBundles, OfTheFixturesReadAsTheirKind) {
  const auto [bundles, bare] = expect_all_read(kFixtures / "genuine");
  EXPECT_GE(bundles, 20);
  EXPECT_GE(bare, 8);
  for (const auto& folder : folders_of(kFixtures / "tiny_llm"))
    if (folder.filename() != "tokenizer") expect_reads_and_verifies(folder, "llm");
}

// Their assets are not among the fixtures: everything else is read.
TEST(GenuineBundles, MetadataOfTheLargerOnesReadsAsItsKind) {
  for (const auto& folder : folders_of(kFixtures / "bundle_metadata")) {
    SCOPED_TRACE(folder.string());
    const AnyBundle bundle = open_bundle(folder);
    const BundleDescription description = describe(bundle);
    EXPECT_EQ(description.kind, kind_of(folder.filename().string()));
    EXPECT_FALSE(description.facts.empty() && description.kind != "segmenter");
    const auto found = problems(bundle);
    EXPECT_EQ(found.size(), description.assets.size());
    for (const auto& problem : found) EXPECT_EQ(problem.fault(), BundleFault::kMissingAsset) << problem.what();
  }
  const auto flux = PipelineDescriptor::open(kFixtures / "bundle_metadata/flux2_f16_b3");
  using enum DiffusionMode;
  EXPECT_EQ(flux.modes(), (std::vector{kFull, kTiled, kHalf}));
  EXPECT_EQ(flux.configuration().batch_norm_eps, 0.0001);
  const auto statistics = flux.batch_norm_statistics();
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->mean.element_count(), 16);
  EXPECT_GT(statistics->variance.values<float>()[0], 0);
}

TEST(GenuineBundles, OfSharedDataReadAsTheirKind) {
  const fs::path data = test::shared_data();
  if (!fs::exists(data / "genuine")) GTEST_SKIP() << "no " << (data / "genuine");
  const auto [bundles, bare] = expect_all_read(data / "genuine");
  EXPECT_EQ(bundles, 27);
  EXPECT_EQ(bare, 13);
  for (const auto& folder : folders_of(data / "tiny_llm")) expect_reads_and_verifies(folder, "llm");
}

}  // namespace
}  // namespace coreai
