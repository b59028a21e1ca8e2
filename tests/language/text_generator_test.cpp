// From a bundle to text, on a tiny random model written by the genuine wheel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "coreai/language/text_generator.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

const fs::path kFixtures = fs::path(COREAI_FIXTURE_DIR) / "tiny_llm";

const Json& golden() {
  static const Json cases = [] {
    std::ifstream file(kFixtures / "golden.json");
    return Json::parse(file).at("cases");
  }();
  return cases;
}

SpecializationOptions options(Precision precision, int threads = 1) {
  SpecializationOptions made;
  made.precision = precision;
  made.threads = threads;
  made.use_cache = false;
  return made;
}

TEST(TextGenerator, RendersEncodesAndStreams) {
  TextGenerator generator = TextGenerator::load(kFixtures / "f32", options(Precision::kFaithful));
  EXPECT_TRUE(generator.has_chat_template());
  EXPECT_GT(generator.load_ms(), 0);
  EXPECT_THAT(generator.end_tokens(), testing::Contains(2));
  for (const Json& c : golden()) {
    const EncodedPrompt prompt = generator.encode(c.at("user").get<std::string>());
    EXPECT_EQ(prompt.ids, c.at("prompt_ids").get<std::vector<TokenId>>());
    EXPECT_EQ(prompt.warning, "");
    TextGeneration generation = generator.generate(prompt.ids, {.max_tokens = 24});
    std::string text;
    while (const auto piece = generation.next()) text += piece->text;
    EXPECT_EQ(generation.tokens(), c.at("greedy_ids").get<std::vector<TokenId>>());
    EXPECT_EQ(text, c.at("text").get<std::string>());
    EXPECT_EQ(generation.stop_reason(), StopReason::kMaxTokens);
    EXPECT_GT(generation.timings().prefill_tokens_per_second, 0);
    EXPECT_GT(generation.timings().decode_tokens_per_second, 0);
  }
}

TEST(TextGenerator, RawAndSystemPrompts) {
  TextGenerator generator = TextGenerator::load(kFixtures / "f32", options(Precision::kFaithful));
  const auto chat = generator.encode("ab").ids;
  const auto raw = generator.encode("ab", {.raw = true}).ids;
  EXPECT_LT(raw.size(), chat.size());
  EXPECT_EQ(generator.tokenizer().decode(raw), "ab");
  const auto system = generator.encode("ab", {.system = "zz"}).ids;
  EXPECT_THAT(generator.tokenizer().decode(system, false), HasSubstr("zz"));
  EXPECT_THROW(generator.encode("ab", {.system = "zz", .raw = true}), InvalidArgumentError);
}

// A copy of the f32 bundle with one file changed.
class BrokenBundle : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) / ("broken_bundle_" + std::to_string(::getpid()));
    fs::remove_all(dir_);
    fs::copy(kFixtures / "f32", dir_, fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(dir_))
      fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
  }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(BrokenBundle, WithoutAChatTemplateThePromptIsRawAndItSaysSo) {
  const fs::path file = dir_ / "tokenizer" / "tokenizer_config.json";
  Json config = Json::parse(std::ifstream(file));
  config.erase("chat_template");
  std::ofstream(file) << config;
  fs::remove(dir_ / "tokenizer" / "chat_template.jinja");
  TextGenerator generator = TextGenerator::load(dir_, options(Precision::kFaithful));
  EXPECT_FALSE(generator.has_chat_template());
  const EncodedPrompt prompt = generator.encode("ab");
  EXPECT_THAT(prompt.warning, HasSubstr("no chat template"));
  EXPECT_EQ(prompt.ids, generator.encode("ab", {.raw = true}).ids);
  EXPECT_THROW(generator.encode("ab", {.system = "zz"}), InvalidArgumentError);
}

TEST_F(BrokenBundle, DeclaredStatesDecideTheirRoles) {
  const auto declare = [&](const Json& states) {
    const fs::path file = dir_ / "metadata.json";
    Json metadata = Json::parse(std::ifstream(file));
    metadata["language"]["states"] = states;
    std::ofstream(file) << metadata;
    return TextGenerator::load(dir_, options(Precision::kFaithful));
  };
  const auto expect = [&](const Json& states, const char* part) {
    try {
      declare(states);
      ADD_FAILURE() << "accepted: " << states;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(part));
    }
  };
  const std::vector<TokenId> prompt{1, 2, 3};
  const auto tokens = [&](TextGenerator generator) {
    TextGeneration generation = generator.generate(prompt, {.max_tokens = 8});
    while (generation.next()) {
    }
    return generation.tokens();
  };
  const auto usual = tokens(TextGenerator::load(kFixtures / "f32", options(Precision::kFaithful)));
  EXPECT_EQ(tokens(declare({{"keyCache", "kv_cache"}, {"valueCache", "kv_cache"}})), usual);
  expect({{"keyCache", "kv_cache"}, {"valueCache", "fixed"}}, "is declared as fixed, but has an unknown extent");
  expect({{"keyCache", "kv_cache"}}, "leaves out \"valueCache\" of function 'main'");
  expect({{"keyCache", "kv_cache"}, {"valueCache", "kv_cache"}, {"conv", "fixed"}},
         "declares \"conv\", which function 'main' does not have");
}

TEST(TextGenerator, RefusesBundlesOfOtherKinds) {
  try {
    TextGenerator::load(fs::path(COREAI_FIXTURE_DIR) / "genuine/qwen3_vl_b3");
    ADD_FAILURE() << "accepted";
  } catch (const BundleError& e) {
    EXPECT_EQ(e.fault(), BundleFault::kKindMismatch);
    EXPECT_THAT(e.what(), HasSubstr("expected bundle kind llm, got vlm"));
  }
}

TEST_F(BrokenBundle, ABeginTokenComesOnce) {
  const auto edit = [&](const char* name, const auto& change) {
    const fs::path file = dir_ / "tokenizer" / name;
    Json json = Json::parse(std::ifstream(file));
    change(json);
    std::ofstream(file) << json;
  };
  edit("tokenizer_config.json", [](Json& config) {
    config["bos_token"] = "<|im_start|>";
    config["chat_template"] = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}";
  });
  edit("tokenizer.json", [](Json& tokenizer) {
    const Json begin = {{"SpecialToken", {{"id", "<|im_start|>"}, {"type_id", 0}}}};
    const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const Json token = {{"id", "<|im_start|>"}, {"ids", {1}}, {"tokens", {"<|im_start|>"}}};
    tokenizer["post_processor"] = {{"type", "TemplateProcessing"},
                                   {"single", {begin, text}},
                                   {"pair", {begin, text, text}},
                                   {"special_tokens", {{"<|im_start|>", token}}}};
  });
  TextGenerator generator = TextGenerator::load(dir_, options(Precision::kFaithful));
  const auto once = generator.encode("ab").ids;
  EXPECT_EQ(std::count(once.begin(), once.end(), 1), 1);
  EXPECT_EQ(once.front(), 1);
  EXPECT_EQ(generator.encode("ab", {.raw = true}).ids, once);
}

TEST_F(BrokenBundle, EveryDeclaredEndTokenCounts) {
  std::ofstream(dir_ / "tokenizer" / "generation_config.json") << R"({"eos_token_id": [2, 168]})";
  TextGenerator generator = TextGenerator::load(dir_, options(Precision::kFaithful));
  const auto prompt = golden()[0].at("prompt_ids").get<std::vector<TokenId>>();
  TextGeneration generation = generator.generate(prompt, {});
  while (generation.next()) {
  }
  EXPECT_THAT(generation.tokens(), testing::ElementsAre(128, 377, 168));
  EXPECT_EQ(generation.stop_reason(), StopReason::kEndToken);
}

TEST_F(BrokenBundle, WrongFunctionIsNamed) {
  const fs::path file = dir_ / "metadata.json";
  Json metadata = Json::parse(std::ifstream(file));
  metadata["language"]["function_map"]["main"] = {"decode"};
  std::ofstream(file) << metadata;
  try {
    TextGenerator::load(dir_, options(Precision::kFaithful));
    FAIL() << "accepted";
  } catch (const BundleError& e) {
    EXPECT_EQ(e.fault(), BundleFault::kMissingFunction);
    EXPECT_THAT(e.what(), HasSubstr("decode"));
    EXPECT_THAT(e.what(), HasSubstr("main"));
  }
}

TEST_F(BrokenBundle, CutFilesAreTypedErrors) {
  const auto cut = [&](const fs::path& file) {
    const auto size = fs::file_size(file);
    fs::resize_file(file, size / 2);
    EXPECT_THROW(TextGenerator::load(dir_, options(Precision::kFaithful)), Error) << file;
  };
  cut(dir_ / "tiny-llama-random-f32.aimodel" / "main.mlirb");
  fs::remove_all(dir_ / "tiny-llama-random-f32.aimodel");
  fs::copy(kFixtures / "f32" / "tiny-llama-random-f32.aimodel", dir_ / "tiny-llama-random-f32.aimodel",
           fs::copy_options::recursive);
  cut(dir_ / "tokenizer" / "tokenizer.json");
}

}  // namespace
}  // namespace coreai
