// Every recorded asset is accepted; modules that break one rule are refused with that rule's name.
#include "coreai/ir/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../asset/fixtures.h"
#include "coreai/base/error.h"
#include "coreai/ir/builder.h"
#include "genuine_text.h"

namespace coreai::ir {
namespace {

namespace fs = std::filesystem;

// Refusals of the assets below a folder that can be read at all.
std::string refusals(const fs::path& root, int& accepted) {
  std::string text;
  for (const fs::path& asset : test::assets_below(root)) {
    std::unique_ptr<Module> module;
    try {
      module = AIModelAsset::open(asset).load_module();
    } catch (const Error&) {
      continue;  // reading has its own tests
    }
    try {
      verify(*module);
      ++accepted;
    } catch (const VerificationError& error) {
      text += asset.filename().string() + ": " + error.what() + "\n";
    }
  }
  return text;
}

TEST(Verifier, AcceptsTheRecordedAssets) {
  int accepted = 0;
  EXPECT_EQ(refusals(test::fixture("op_assets"), accepted), "");
  EXPECT_EQ(refusals(test::fixture("format_fixtures"), accepted), "");
  EXPECT_GE(accepted, 178);
}

TEST(Verifier, AcceptsWhatTheExportersWrite) {
  const fs::path root = test::shared_data();
  if (!fs::exists(root)) GTEST_SKIP() << "the exporters' models are not on this machine (" << root << ")";
  int accepted = 0;
  EXPECT_EQ(refusals(root / "genuine", accepted), "");
  EXPECT_EQ(refusals(root / "tiny_llm", accepted), "");
  EXPECT_EQ(refusals(root / "op_goldens", accepted), "");
  EXPECT_GE(accepted, 191);
}

}  // namespace
}  // namespace coreai::ir
