// coreai-bundle as a user calls it: exit codes, what goes to which stream, the shape of its JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
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
      EXPECT_EQ(outcome.code, kCouldNotLook) << command << " " << path;
      EXPECT_EQ(outcome.out, "");
      EXPECT_THAT(outcome.err, StartsWith("error: "));
    }
  }
}

// A bundle with something wrong in it can be looked at, whatever is wrong.
TEST(CoreaiBundle, AuditAndVerifyAgreeOnWhatIsABundle) {
  const Scratch scratch;
  const std::string bundle = copy_of(scratch, "tiny_llm/f16");
  const fs::path metadata = fs::path(bundle) / "metadata.json";
  for (const char* text : {"{", R"({"metadata_version": "0.1"})", R"({"metadata_version": "0.2", "kind": "llm"})"}) {
    std::ofstream(metadata) << text;
    EXPECT_EQ(run({"audit", bundle}).code, kFailed) << text;
    const Outcome outcome = run({"verify", bundle, "--json"});
    EXPECT_EQ(outcome.code, kFailed) << text;
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["checks"][0]["what"], "metadata.json");
    EXPECT_EQ(run({"inspect", bundle}).code, kCouldNotLook) << text;
  }
  std::ofstream(metadata) << "{";
  EXPECT_EQ(nlohmann::json::parse(run({"verify", bundle, "--json"}).out)["checks"][0]["fault"], "malformed-metadata");
  const std::string asset = bundle + "/tiny-llama-random-f16.aimodel";
  fs::resize_file(fs::path(asset) / "main.mlirb", 1000);
  EXPECT_EQ(run({"audit", asset}).code, kFailed);
  EXPECT_EQ(run({"verify", asset}).code, kFailed);
}

TEST(CoreaiBundle, AnAnswerThatCannotBeWrittenIsTwo) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  for (const char* command : {"audit", "verify", "inspect"}) {
    std::fflush(stdout);
    const int kept = ::dup(STDOUT_FILENO);
    const int full = ::open("/dev/full", O_WRONLY);
    ::dup2(full, STDOUT_FILENO);
    std::vector<std::string> arguments = {"coreai-bundle", command, fixture("tiny_llm/f16")};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    testing::internal::CaptureStderr();
    const int code = coreai_bundle(3, argv.data());
    std::clearerr(stdout);
    ::dup2(kept, STDOUT_FILENO);
    ::close(kept);
    ::close(full);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("could not be written"));
    EXPECT_EQ(code, kCouldNotLook) << command;
  }
}

// Names from metadata.json cannot end a line of the report and begin another.
TEST(CoreaiBundle, NamesCannotForgeTheReport) {
  const Scratch scratch;
  const std::string bundle = copy_of(scratch, "tiny_llm/f16");
  const std::string forged = "x\nclean: 0 errors, 0 warnings, 0 notes";
  auto root = nlohmann::json::parse(std::ifstream(fs::path(bundle) / "metadata.json"));
  root["name"] = forged;
  root["assets"][forged] = "gone\n.aimodel";
  root["language"]["tokenizer"] = forged;
  root["language"]["function_map"][forged] = {"main"};
  std::ofstream(fs::path(bundle) / "metadata.json") << root.dump();
  for (const char* command : {"audit", "verify", "inspect"}) {
    const Outcome outcome = run({command, bundle});
    EXPECT_EQ(outcome.code, kFailed) << command;
    EXPECT_THAT(outcome.out + outcome.err, testing::Not(HasSubstr("\nclean: 0 errors, 0 w"))) << command;
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

TEST(CoreaiBundle, VerifyFindsWhatIsDamaged) {
  struct Damage {
    const char* what;
    std::function<void(const fs::path&)> make;
  };
  const auto write = [](const fs::path& path, const std::string& text) { std::ofstream(path) << text; };
  const std::string asset = "tiny-llama-random-f16.aimodel";
  for (const Damage& damage :
       {Damage{"tokenizer", [&](const fs::path& b) { write(b / "tokenizer/tokenizer.json", ""); }},
        {"tokenizer", [&](const fs::path& b) { write(b / "tokenizer/tokenizer_config.json", "{"); }},
        {"tokenizer",
         [&](const fs::path& b) {
           fs::remove(b / "tokenizer/tokenizer.json");
           fs::create_directory(b / "tokenizer/tokenizer.json");
         }},
        {"assets.main",
         [&](const fs::path& b) {
           fs::remove(b / asset / "main.hash");
           write(b / asset / "main.mlirb", std::string(5000, 'x'));
         }},
        {"generation_config.json", [&](const fs::path& b) { write(b / "generation_config.json", "[]"); }}}) {
    const Scratch scratch;
    const std::string bundle = copy_of(scratch, "tiny_llm/f16");
    damage.make(bundle);
    const Outcome outcome = run({"verify", bundle, "--json"});
    EXPECT_EQ(outcome.code, kFailed) << damage.what << outcome.err;
    int bad = 0;
    const auto report = nlohmann::json::parse(outcome.out);
    for (const auto& check : report["checks"]) {
      if (check["good"] == true) continue;
      EXPECT_EQ(check["what"], damage.what);
      ++bad;
    }
    EXPECT_EQ(bad, 1) << damage.what;
  }
  const Scratch scratch;
  const std::string pipeline = copy_of(scratch, "genuine/sd15_f16_b3");
  fs::create_directory(fs::path(pipeline) / "vae_bn_mean.npy");
  EXPECT_EQ(run({"verify", pipeline}).code, kFailed);
  EXPECT_EQ(run({"audit", pipeline}).code, kFailed);
}

TEST(CoreaiBundle, VerifySaysEachProblemOfTheOlderSpeechFolderOnce) {
  const Scratch scratch;
  const fs::path folder = scratch / "speech";
  fs::create_directories(folder / "encoder.aimodel");
  std::ofstream(folder / "decoder.aimodel") << "a file";
  const auto checks = nlohmann::json::parse(run({"verify", folder.string(), "--json"}).out)["checks"];
  std::vector<std::string> what;
  for (const auto& check : checks) what.push_back(check["what"]);
  EXPECT_THAT(what, testing::UnorderedElementsAre("assets.decoder", "assets.encoder", "tokenizer"));
}

TEST(CoreaiBundle, InspectStaysInsideTheBundle) {
  const Scratch scratch;
  const std::string bundle = copy_of(scratch, "tiny_llm/f16");
  const fs::path asset = fs::path(bundle) / "tiny-llama-random-f16.aimodel";
  fs::rename(asset, scratch / "elsewhere.aimodel");
  fs::create_directory_symlink("../elsewhere.aimodel", asset);
  const Outcome outcome = run({"inspect", bundle});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("input_ids")));
  EXPECT_THAT(outcome.err, HasSubstr("outside the bundle"));
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
  const std::string other = (scratch / "x.aimodel").string();
  fs::create_directory(other);
  std::ofstream(fs::path(other) / "main.mlirb") << "no program";
  const std::string said = run({"audit", other}).out;
  EXPECT_THAT(said, HasSubstr("(at byte 0)"));
  EXPECT_THAT(said, testing::Not(HasSubstr("(at byte 0) (at byte 0)")));
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
  EXPECT_THAT(run({"new", made + "2", "--asset", asset, "--vocab-size", "512"}).err, HasSubstr("needs a tokenizer"));
  fs::create_directory(fs::path(made) / "tiny.h18p.aimodelc");
  const Outcome compiled = run({"retarget", made, "--asset", "tiny.h18p.aimodelc"});
  EXPECT_EQ(compiled.code, kDone);
  EXPECT_THAT(compiled.err, HasSubstr("the bundle runs only there"));
}

TEST(CoreaiBundle, WrongUsageIs64) {
  EXPECT_EQ(run({}).code, kWrongUsage);
  for (const char* command : {"audit", "verify", "inspect"}) {
    EXPECT_EQ(run({command}).code, kWrongUsage);
    EXPECT_THAT(run({command}).err, StartsWith("error: bundle is required\n"));
  }
  EXPECT_EQ(run({"retarget", "b"}).code, kWrongUsage);
  EXPECT_EQ(run({"new", "b", "--asset", "a.aimodel", "--kind", "chat"}).code, kWrongUsage);
  for (const char* text : {"=a.aimodel", "main="}) {
    EXPECT_EQ(run({"new", "b", "--asset", text}).code, kWrongUsage);
    EXPECT_THAT(run({"new", "b", "--asset", text}).err, HasSubstr(std::string(text) + "' is not [ROLE=]PATH"));
  }
  EXPECT_THAT(run({"new", "b", "--asset", "a", "--block", "vision"}).err, HasSubstr("'vision' is not KEY=FILE"));
  EXPECT_EQ(run({"new", "b", "--asset", "a.aimodel", "--vocab-size", "0"}).code, kWrongUsage);
  EXPECT_EQ(run({"audit", "b", "--max-bytes", "much"}).code, kWrongUsage);
  EXPECT_THAT(run({"audti", "b"}).err, HasSubstr("there is no subcommand 'audti'"));
}

}  // namespace
}  // namespace coreai::tools
