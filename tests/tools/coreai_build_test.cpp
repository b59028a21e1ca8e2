// coreai-build as a user calls it: exit codes, what goes to which stream, and its documents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../ir/genuine_text.h"
#include "call_tool.h"
#include "coreai-build/commands.h"
#include "scratch_folder.h"

namespace coreai::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

using Scratch = test::ScratchFolder;

Outcome run(std::vector<std::string> arguments) {
  return call_tool(coreai_build, "coreai-build", std::move(arguments));
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(CoreaiBuild, InspectShowsFunctionsStatesAndBytes) {
  const Outcome outcome = run({"inspect", fixture("op_assets/handles.aimodel")});
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"coreai-core 1.0.0b3", "function main", "state", "(checked)", "read_handle"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(CoreaiBuild, InspectJsonIsOneObject) {
  const Outcome outcome = run({"inspect", fixture("op_assets/handles.aimodel"), "--json", "--text"});
  ASSERT_EQ(outcome.code, kDone);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["functions"][0]["states"][0]["name"], "state");
  EXPECT_EQ(json["functions"][0]["inputs"][0]["shape"], (std::vector<int>{4}));
  EXPECT_EQ(json.at("operations").at("read_handle"), 1);
  EXPECT_EQ(json["hash"].get<std::string>().size(), 64u);
  EXPECT_THAT(json["text"].get<std::string>(), StartsWith("module {\n  coreai.graph @main("));
}

TEST(CoreaiBuild, InspectTextIsTheProgramAlone) {
  const Outcome outcome = run({"inspect", fixture("op_assets/add.aimodel"), "--text"});
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_THAT(outcome.out, StartsWith("module {\n"));
  EXPECT_THAT(outcome.out, testing::EndsWith("}\n"));
  EXPECT_THAT(run({"inspect", fixture("op_assets/add.aimodel"), "--text", "--disk"}).out,
              HasSubstr("\"aicode.primitive.add_v1\"(%arg0, %arg1)"));
  EXPECT_THAT(run({"inspect", fixture("format_fixtures/loc_python.aimodel"), "--text", "--locations"}).out,
              HasSubstr("loc(\"model.py\":9:0)"));
}

TEST(CoreaiBuild, BadAssetsGiveOneErrorLineAndExitCodeOne) {
  Scratch scratch;
  const fs::path good = fixture("op_assets/softmax.aimodel");
  const std::string program = test::read_text(good / "main.mlirb");
  const fs::path bad = scratch / "bad.aimodel";
  fs::create_directory(bad);
  const auto expect_failure = [&](const std::string& what) {
    const Outcome outcome = run({"inspect", bad.string()});
    EXPECT_EQ(outcome.code, kFailed) << what;
    EXPECT_EQ(outcome.out, "") << what;
    EXPECT_THAT(outcome.err, StartsWith("error: ")) << what;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << what;
  };
  expect_failure("an empty folder");
  write_file(bad / "metadata.json", R"({"assetVersion": "2.0"})");
  for (std::size_t size = 0; size < program.size(); size += 1 + size / 16) {
    write_file(bad / "main.mlirb", program.substr(0, size));
    expect_failure("cut to " + std::to_string(size));
  }
  write_file(bad / "main.mlirb", std::string(5000, '\x7f'));
  expect_failure("garbage");
  write_file(bad / "main.mlirb", program);
  write_file(bad / "main.hash", std::string(32, 'x'));
  expect_failure("wrong hash");
  EXPECT_EQ(run({"inspect", (scratch / "none.aimodel").string()}).code, kFailed);
}

TEST(CoreaiBuild, RewriteKeepsTheProgram) {
  Scratch scratch;
  const std::string output = (scratch / "out.aimodel").string();
  const std::string input = fixture("format_fixtures/loc_python.aimodel");
  const Outcome outcome = run({"rewrite", input, "--output", output, "--strip-locations"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(run({"inspect", output, "--text"}).out, run({"inspect", input, "--text"}).out);
  EXPECT_THAT(run({"inspect", output, "--text", "--locations"}).out, testing::Not(HasSubstr("model.py")));
  const Outcome again = run({"rewrite", input, "--output", output});
  EXPECT_EQ(again.code, kFailed);
  EXPECT_THAT(again.err, HasSubstr("exists already"));
}

TEST(CoreaiBuild, WrongUsageIs64) {
  EXPECT_EQ(run({}).code, kWrongUsage);
  EXPECT_EQ(run({"inspect"}).code, kWrongUsage);
  EXPECT_EQ(run({"rewrite", "a.aimodel"}).code, kWrongUsage);
  EXPECT_THAT(run({"inspct", "a"}).err, HasSubstr("there is no subcommand 'inspct'"));
  EXPECT_THAT(run({"inspect", "a", "--elements", "-2"}).err, HasSubstr("coreai-build inspect --help"));
}

TEST(CoreaiBuild, PlanTakesExtentsInOrderOrByName) {
  const std::string asset = fixture("op_assets/composite_rms_norm.aimodel");
  const Outcome outcome = run({"inspect", asset, "--plan", "q=5"});
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("function main ("));
  EXPECT_EQ(run({"inspect", asset, "--plan", "x.1=5"}).out, outcome.out);
  const auto json = nlohmann::json::parse(run({"inspect", asset, "--plan", "q=5", "--json"}).out);
  EXPECT_TRUE(json.contains("plan"));
  EXPECT_THAT(run({"inspect", asset, "--plan", "q=5,r=6"}).err, HasSubstr("no dimension left for r=6"));
  EXPECT_EQ(run({"inspect", asset, "--plan", "q=5,r=6"}).code, kFailed);
  EXPECT_EQ(run({"inspect", asset, "--plan", "q"}).code, kWrongUsage);
  EXPECT_EQ(run({"inspect", asset, "--plan", "q=0"}).code, kWrongUsage);
  EXPECT_EQ(run({"inspect", asset, "--disable-pass", "x"}).code, kWrongUsage);
  EXPECT_THAT(run({"inspect", asset, "--plan", "q=5", "--function", "decode"}).err, HasSubstr("main"));
}

nlohmann::json ops_of(const std::string& asset) {
  const Outcome outcome = run({"inspect", fixture(asset), "--ops", "--json"});
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  return nlohmann::json::parse(outcome.out).at("ops").at(0);
}

TEST(CoreaiBuild, OpsTellFusedFromKernelsAndBodies) {
  const auto decoder = ops_of("genuine/qwen3_f32_b3/qwen3_f32_b3.aimodel");
  EXPECT_EQ(decoder["execution"], "compiled");
  EXPECT_GT(decoder["paths"]["fused"], 0);
  EXPECT_EQ(decoder["paths"]["refused"], 0);
  std::int64_t sum = 0;
  for (const auto& usage : decoder["operations"]) sum += usage["count"].get<std::int64_t>();
  std::int64_t total = 0;
  for (const auto& path : decoder["paths"]) total += path.get<std::int64_t>();
  EXPECT_EQ(sum, total);
  const auto alone = run({"inspect", fixture("genuine/qwen3_f32_b3/qwen3_f32_b3.aimodel"), "--ops", "--json",
                          "--disable-pass", "resolve"});
  ASSERT_EQ(alone.code, kDone) << alone.err;
  EXPECT_GT(nlohmann::json::parse(alone.out).at("ops").at(0)["paths"]["body"], decoder["paths"]["body"]);
  EXPECT_EQ(ops_of("op_assets/softmax.aimodel")["paths"]["kernel"], 1);
  EXPECT_EQ(ops_of("op_assets/scan.aimodel")["paths"]["reference"], 1);
  const std::string text = run({"inspect", fixture("op_assets/scan.aimodel"), "--ops"}).out;
  EXPECT_THAT(text, StartsWith("function main (compiled)\n"));
  EXPECT_THAT(text, HasSubstr("reference  primitive.scan_v1"));
}

TEST(CoreaiBuild, OpsNameWhatIsRefusedAndWhatToDo) {
  const auto refused = ops_of("op_assets/delegate.aimodel");
  EXPECT_EQ(refused["paths"]["refused"], 1);
  const std::string text = run({"inspect", fixture("op_assets/delegate.aimodel"), "--ops"}).out;
  EXPECT_THAT(text, HasSubstr("execution.delegate_v2"));
  EXPECT_THAT(text, HasSubstr("Give the source asset"));
}

TEST(CoreaiBuild, CacheListsAndClears) {
  Scratch scratch;
  const fs::path folder = scratch / "cache";
  fs::create_directory(folder);
  write_file(folder / "abc.packed", std::string(1500, 'x'));
  write_file(folder / "foreign.txt", "kept");
  ASSERT_EQ(setenv("COREAI_CACHE_DIR", folder.c_str(), 1), 0);
  const auto json = nlohmann::json::parse(run({"cache", "list", "--json"}).out);
  EXPECT_EQ(json["bytes"], 1500);
  EXPECT_EQ(json["entries"][0]["key"], "abc");
  EXPECT_THAT(run({"cache", "list"}).out, HasSubstr("1 entry in "));
  EXPECT_EQ(run({"cache"}).code, kWrongUsage);
  const Outcome cleared = run({"cache", "clear"});
  EXPECT_EQ(cleared.code, kDone);
  EXPECT_THAT(cleared.out, HasSubstr("removed 1 entry"));
  EXPECT_FALSE(fs::exists(folder / "abc.packed"));
  EXPECT_TRUE(fs::exists(folder / "foreign.txt"));
  EXPECT_THAT(run({"cache", "list"}).out, HasSubstr("0 entries"));
  unsetenv("COREAI_CACHE_DIR");
}

TEST(CoreaiBuild, FormatDocumentIsUpToDate) {
  const std::string path = std::string(COREAI_SOURCE_DIR) + "/docs/aimodel-format.md";
  const std::string document = test::read_text(path);
  EXPECT_TRUE(with_dialect_tables(document, path) == document) << "the tables are stale: run scripts/update_docs";
  EXPECT_EQ(run({"dialect", "--check", path}).code, kDone);
}

TEST(CoreaiBuild, StaleTablesAreNoticed) {
  Scratch scratch;
  const std::string path = std::string(COREAI_SOURCE_DIR) + "/docs/aimodel-format.md";
  std::string document = test::read_text(path);
  const std::string wrong = "| `primitive.add_v9` | ";
  const std::size_t at = document.find("| `primitive.add_v1` | ");
  ASSERT_NE(at, std::string::npos);
  document.replace(at, wrong.size(), wrong);
  const fs::path copy = scratch / "format.md";
  write_file(copy, document);
  EXPECT_EQ(run({"dialect", "--check", copy.string()}).code, kFailed);
  EXPECT_EQ(run({"dialect", "--update", copy.string()}).code, kDone);
  EXPECT_EQ(test::read_text(copy), test::read_text(path));
  write_file(copy, "no markers");
  EXPECT_THAT(run({"dialect", "--check", copy.string()}).err, HasSubstr("markers"));
}

}  // namespace
}  // namespace coreai::tools
