// coreai-bundle as a user calls it: exit codes, what goes to which stream, the shape of its JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "call_tool.h"
#include "coreai-bundle/commands.h"
#include "scratch_folder.h"

namespace coreai::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

using Scratch = test::ScratchFolder;

Outcome run(std::vector<std::string> arguments) {
  return call_tool(coreai_bundle, "coreai-bundle", std::move(arguments));
}

std::string copy_of(const Scratch& scratch, const std::string& relative) {
  const fs::path target = scratch / "copy";
  fs::copy(fixture(relative), target, fs::copy_options::recursive);
  return target.string();
}

TEST(CoreaiBundle, AuditOfACleanBundle) {
  const Outcome outcome = run({"audit", fixture("tiny_llm/q4")});
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("tiny-llama-random-q4.aimodel"));
  EXPECT_THAT(outcome.out, HasSubstr("bits each"));
  EXPECT_THAT(outcome.out, testing::EndsWith("\nclean: 0 errors, 0 warnings, 0 notes\n"));
}

// The model that scripts/models makes: 97 MB to hash, 49,152 tokens to parse.
TEST(CoreaiBundle, AuditOfARealModelIsClean) {
  const std::string bundle = std::string(COREAI_SOURCE_DIR) + "/models/smollm2-135m";
  if (!fs::exists(bundle)) GTEST_SKIP() << "no " << bundle << ": scripts/models makes it";
  EXPECT_EQ(run({"audit", bundle}).code, kDone);
}

TEST(CoreaiBundle, AuditFindsAndSaysWhatToDo) {
  const Scratch scratch;
  const std::string bundle = copy_of(scratch, "tiny_llm/f16");
  fs::remove_all(fs::path(bundle) / "tokenizer");
  const Outcome outcome = run({"audit", bundle});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("error: tokenizer/tokenizer.json [tokenizer-missing]\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  fix: "));
  EXPECT_THAT(outcome.out, HasSubstr("not clean: 1 error, 0 warnings, 0 notes\n"));
}

TEST(CoreaiBundle, AuditJsonIsOneDocument) {
  const Outcome outcome = run({"audit", fixture("tiny_llm/f16"), "--json", "--max-bytes", "1000"});
  EXPECT_EQ(outcome.code, kFailed);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["kind"], "llm");
  EXPECT_EQ(json["clean"], false);
  EXPECT_EQ(json["errors"], 1);
  ASSERT_EQ(json["findings"].size(), 1u);
  for (const char* key : {"id", "severity", "path", "sentence", "fix"})
    EXPECT_TRUE(json["findings"][0][key].is_string()) << key;
  EXPECT_EQ(json["findings"][0]["id"], "size-exceeds-limit");
  EXPECT_EQ(json["assets"][0]["functions"], nlohmann::json::array({"main"}));
  EXPECT_NEAR(json["assets"][0]["weights"]["bits_per_weight"].get<double>(), 16.0, 0.01);
  EXPECT_GT(json["assets"][0]["weights"]["constants"]["f16"]["bytes"], 200'000);
}

TEST(CoreaiBundle, AuditThatCannotLookIsTwo) {
  const Scratch scratch;
  for (const std::string& path : {(scratch / "none").string(), fixture("tiny_llm/tokenizer"), fixture("genuine/yolos"),
                                  fixture("tiny_llm/golden.json"), (scratch / "x.aimodelc").string()}) {
    for (const char* command : {"audit", "verify", "inspect"}) {
      const Outcome outcome = run({command, path, "--json"});
      EXPECT_EQ(outcome.code, std::string(command) == "inspect" ? kFailed : kCouldNotLook) << command << " " << path;
      EXPECT_EQ(outcome.out, "");
      EXPECT_THAT(outcome.err, StartsWith("error: "));
    }
  }
}

TEST(CoreaiBundle, AuditPrintsItsRules) {
  const Outcome outcome = run({"audit", "--rules", "--json"});
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_EQ(nlohmann::json::parse(outcome.out).size(), audit_rules().size());
  EXPECT_THAT(run({"audit", "--rules"}).out, HasSubstr("compression-not-achieved"));
}

TEST(CoreaiBundle, VerifyChecksWhatIsDeclared) {
  const Outcome good = run({"verify", fixture("genuine/sd15_f16_b3")});
  EXPECT_EQ(good.code, kDone) << good.out << good.err;
  EXPECT_THAT(good.out, HasSubstr("vae_decoder"));
  const Scratch scratch;
  const std::string bundle = copy_of(scratch, "tiny_llm/f16");
  fs::resize_file(fs::path(bundle) / "tiny-llama-random-f16.aimodel/main.mlirb", 1000);
  const Outcome bad = run({"verify", bundle, "--json"});
  EXPECT_EQ(bad.code, kFailed);
  const auto json = nlohmann::json::parse(bad.out);
  EXPECT_EQ(json["good"], false);
  EXPECT_EQ(json["checks"][0]["good"], false);
  EXPECT_THAT(json["checks"][0]["problem"].get<std::string>(), HasSubstr("SHA-256"));
  EXPECT_EQ(json["checks"][1]["good"], true);
}

TEST(CoreaiBundle, InspectShowsTheBundle) {
  const Outcome outcome = run({"inspect", fixture("tiny_llm/f16")});
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* part : {"kind", "llm", "tiny-llama-random-f16.aimodel", "vocabulary", "512", "coreai-core 1.0.0b3",
                           "main(input_ids: tensor<1x?xsi32>", "logits"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

TEST(CoreaiBundle, InspectJsonOfEveryKind) {
  for (const auto& [bundle, kind] : {std::pair{"tiny_llm/q4", "llm"},
                                     {"genuine/qwen3_vl_b3", "vlm"},
                                     {"genuine/sd15_f16_b3", "diffusion"},
                                     {"genuine/parakeet_dyn", "speech_recognizer"},
                                     {"genuine/yolos/yolos_float32_static.aimodel", "detector"},
                                     {"genuine/onnx_cnn/onnx_cnn.aimodel", "unknown"}}) {
    const Outcome outcome = run({"inspect", fixture(bundle), "--json"});
    ASSERT_EQ(outcome.code, kDone) << bundle << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json["kind"], kind);
    ASSERT_FALSE(json["assets"].empty()) << bundle;
    EXPECT_FALSE(json["assets"][0]["functions"].empty()) << bundle;
    EXPECT_TRUE(json["facts"].is_object());
  }
}

TEST(CoreaiBundle, InspectGoesOnWhenAnAssetIsBroken) {
  const Scratch scratch;
  const std::string bundle = copy_of(scratch, "tiny_llm/f16");
  fs::remove_all(fs::path(bundle) / "tiny-llama-random-f16.aimodel");
  const Outcome outcome = run({"inspect", bundle});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.out, HasSubstr("vocabulary"));
  EXPECT_THAT(outcome.err, StartsWith("error: "));
}

TEST(CoreaiBundle, RetargetAndNew) {
  const Scratch scratch;
  const std::string made = (scratch / "made").string();
  const std::string asset = fixture("tiny_llm/f32/tiny-llama-random-f32.aimodel");
  const Outcome outcome = run({"new", made, "--asset", asset, "--tokenizer", fixture("tiny_llm/tokenizer"),
                               "--max-context-length", "512", "--name", "tiny"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.out, made + "\n");
  EXPECT_EQ(run({"audit", made}).code, kDone);
  fs::copy(asset, fs::path(made) / "second.aimodel", fs::copy_options::recursive);
  const Outcome changed = run({"retarget", made, "--role", "main", "--asset", "second.aimodel"});
  EXPECT_EQ(changed.code, kDone) << changed.err;
  EXPECT_EQ(changed.out, "main: tiny-llama-random-f32.aimodel -> second.aimodel\n");
  EXPECT_EQ(run({"verify", made}).code, kDone);
  EXPECT_EQ(run({"retarget", made, "--asset", "third.aimodel"}).code, kFailed);
  EXPECT_EQ(run({"new", made, "--asset", asset}).code, kFailed);
}

TEST(CoreaiBundle, WrongUsageIs64) {
  EXPECT_EQ(run({}).code, kWrongUsage);
  EXPECT_EQ(run({"audit"}).code, kWrongUsage);
  EXPECT_EQ(run({"verify"}).code, kWrongUsage);
  EXPECT_EQ(run({"retarget", "b"}).code, kWrongUsage);
  EXPECT_EQ(run({"new", "b", "--asset", "a.aimodel", "--kind", "chat"}).code, kWrongUsage);
  EXPECT_EQ(run({"new", "b", "--asset", "=a.aimodel"}).code, kWrongUsage);
  EXPECT_EQ(run({"new", "b", "--asset", "a.aimodel", "--vocab-size", "0"}).code, kWrongUsage);
  EXPECT_EQ(run({"audit", "b", "--max-bytes", "much"}).code, kWrongUsage);
  EXPECT_THAT(run({"audti", "b"}).err, HasSubstr("there is no subcommand 'audti'"));
}

}  // namespace
}  // namespace coreai::tools
