// The text of every recorded asset against the text that the reference printed of it.
#include "coreai/ir/printer.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "../asset/fixtures.h"
#include "coreai/base/error.h"
#include "genuine_text.h"

namespace coreai::ir {
namespace {

namespace fs = std::filesystem;
using test::first_difference;
using test::section;
using test::trimmed;

// Loads the asset, or says why the test has to leave it out.
std::unique_ptr<Module> load(const fs::path& asset, std::string& refusal) {
  try {
    return AIModelAsset::open(asset).load_module();
  } catch (const Error& error) {
    refusal = error.what();
    return nullptr;
  }
}

struct Tally {
  int equal = 0;
  std::set<std::string> different;
  std::string first_lines;  // where they differ, for the message of a failure
};

// Compares each asset of a folder with the section of its recorded text.
Tally compare(const fs::path& folder, const std::string& heading, const PrintOptions& options) {
  Tally tally;
  for (const fs::path& asset : test::assets_below(folder)) {
    const std::string name = asset.stem();
    const std::string text = test::read_text(folder / (name + ".txt"));
    std::string want = heading.empty() ? text : section(text, heading);
    if (heading.empty()) test::replace_all(want, "\n{-#\n\n#-}\n", "");  // a list of blobs without its blobs
    if (options.form == TextForm::kDisk) want = test::expand_disk_text(want);
    if (want.find("module {") == std::string::npos) continue;  // the reference refused it
    std::string refusal;
    const auto module = load(asset, refusal);
    std::string have = module ? to_text(*module, options) : refusal;
    if (options.form == TextForm::kDisk && want.find("{version = ") == std::string::npos) {
      have = test::without_version(have);
    }
    const std::string difference = first_difference(trimmed(have), trimmed(want));
    if (difference.empty()) {
      ++tally.equal;
    } else {
      tally.different.insert(name);
      tally.first_lines += name + ", " + difference + "\n";
    }
  }
  return tally;
}

// Attributes that only live in memory: `__coreai_pure__` marks a graph that the reference rewrote before it saved.
const std::set<std::string> kMemoryOnlyAttributes = {"states_two", "static_shapes"};
// Disk texts recorded before the writer merged equal constants and operations.
const std::set<std::string> kRecordedBeforeMerging = {"asymmetric_quantization_statistics",
                                                      "broadcasting_batch_matmul",
                                                      "broadcasting_where",
                                                      "composite_rms_norm",
                                                      "dequantize",
                                                      "quantize",
                                                      "sigmoid",
                                                      "silu"};
// Older versions, upgraded when they are read.
const std::set<std::string> kUpgraded = {
    "blockwise_shift_scale_v1", "delegate_v1", "dequantize_v1", "get_shape_v1", "quantize_v1", "reshape_v1", "tile_v1"};

PrintOptions everything(TextForm form) {
  PrintOptions options;
  options.element_limit = -1;
  options.form = form;
  return options;
}

TEST(Printer, ProgramFormOfOpAssets) {
  const Tally tally = compare(test::fixture("op_assets"), "// in memory", everything(TextForm::kProgram));
  EXPECT_EQ(tally.different, kMemoryOnlyAttributes) << tally.first_lines;
  EXPECT_EQ(tally.equal, 149);
}

TEST(Printer, DiskFormOfOpAssets) {
  const Tally tally = compare(test::fixture("op_assets"), "// on disk", everything(TextForm::kDisk));
  std::set<std::string> known = kRecordedBeforeMerging;
  known.insert(kUpgraded.begin(), kUpgraded.end());
  EXPECT_EQ(tally.different, known) << tally.first_lines;
  EXPECT_EQ(tally.equal, 136);
}

TEST(Printer, ProgramFormOfFormatFixtures) {
  const Tally tally = compare(test::fixture("format_fixtures"), "// in memory", everything(TextForm::kProgram));
  EXPECT_EQ(tally.different, std::set<std::string>{}) << tally.first_lines;
  EXPECT_EQ(tally.equal, 26);
}

TEST(Printer, DiskFormOfFormatFixtures) {
  const Tally tally = compare(test::fixture("format_fixtures"), "// on disk", everything(TextForm::kDisk));
  EXPECT_EQ(tally.different, std::set<std::string>{}) << tally.first_lines;
  EXPECT_EQ(tally.equal, 28);
}

// Read without the upgrade: the program form has no spelling for older versions, the disk form shows them as they are.
TEST(Printer, OlderVersionsAsTheyAre) {
  const AIModelAsset asset = AIModelAsset::open(test::fixture("op_assets/quantize_v1.aimodel"));
  const auto module = read_bytecode(test::storage_of(asset.program_bytes()), "quantize_v1", {.upgrade = false});
  const std::string program = to_text(*module);
  EXPECT_NE(program.find("= \"aicode.quantize_v1\"(%arg0, %arg1, %arg2, "), std::string::npos) << program;
  EXPECT_EQ(program.find("unknown value"), std::string::npos) << program;
  EXPECT_NE(to_text(*module, everything(TextForm::kDisk)).find("\"aicode.dataflow.yield_v1\""), std::string::npos);
}

TEST(Printer, ProgramFormOfExportedModels) {
  const fs::path root = test::shared_data() / "genuine";
  if (!fs::exists(root)) GTEST_SKIP() << "the exporters' models are not on this machine (" << root << ")";
  PrintOptions options;
  options.element_limit = 16;  // what the recorded texts were printed with
  Tally tally;
  for (const auto& folder : fs::directory_iterator(root)) {
    if (!folder.is_directory()) continue;
    const Tally one = compare(folder.path(), "", options);
    tally.equal += one.equal;
    tally.different.insert(one.different.begin(), one.different.end());
    tally.first_lines += one.first_lines;
  }
  // Its text was recorded from another export: names of its private graphs end in other random letters.
  EXPECT_EQ(tally.different, std::set<std::string>{"roberta_float32_dynamic"}) << tally.first_lines;
  EXPECT_GE(tally.equal, 48);
}

}  // namespace
}  // namespace coreai::ir
