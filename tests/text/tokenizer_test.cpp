#include "coreai/text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "coreai/base/error.h"
#include "text/fixtures.h"

namespace coreai {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct EncodeCase {
  const char* text;
  std::vector<TokenId> ids;
};

// Ids by the Python package `tokenizers` 0.23.3.
const std::vector<EncodeCase>& encode_cases() {
  static const std::vector<EncodeCase> cases = {
      {"<|im_start|>user\nHello, wörld! 42 times €😀<|im_end|>\n",
       {1,  376, 259, 198, 56,  478, 95,  28,  267, 142, 131, 98,  400, 17, 216,
        36, 34,  252, 306, 266, 216, 173, 220, 122, 187, 249, 242, 218, 2,  198}},
      {"  two  spaces\tand\n\nlines", {216, 252, 103, 95, 216, 262, 96, 387, 266, 197, 397, 198, 198, 92, 254, 266}},
      {"日本語 text", {177, 241, 115, 177, 246, 122, 179, 120, 248, 252, 85, 104, 100}},
      {"def f(x):\n    return x+1", {84, 85, 86, 275, 24, 104, 25, 42, 472, 298, 100, 315, 94, 216, 104, 27, 33}},
      {"", {}},
  };
  return cases;
}

TEST(Tokenizer, EncodesLikeTheReferenceImplementation) {
  const auto tokenizer = Tokenizer::from_directory(test::tiny_tokenizer());
  for (const auto& c : encode_cases()) EXPECT_EQ(tokenizer.encode(c.text), c.ids) << c.text;
}

TEST(Tokenizer, DecodesWhatItEncodes) {
  const auto tokenizer = Tokenizer::from_directory(test::tiny_tokenizer());
  for (const auto& c : encode_cases()) EXPECT_EQ(tokenizer.decode(c.ids, false), c.text);
  EXPECT_EQ(tokenizer.decode(encode_cases()[0].ids, true), "user\nHello, wörld! 42 times €😀\n");
}

TEST(Tokenizer, KnowsItsVocabularyAndSpecialTokens) {
  const auto tokenizer = Tokenizer::from_directory(test::tiny_tokenizer());
  EXPECT_EQ(tokenizer.vocab_size(), 512u);
  EXPECT_EQ(tokenizer.token_to_id("<|im_start|>"), 1);
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(2), "<|im_end|>");
  EXPECT_EQ(tokenizer.id_to_token(512), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.special_token("pad_token"), "<|im_end|>");
  EXPECT_EQ(tokenizer.special_token("cls_token"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(16));
  EXPECT_FALSE(tokenizer.is_special(17));
}

TEST(Tokenizer, EndIdsComeFromTheConfigFirstThenFromSpecialTokens) {
  const auto tokenizer = Tokenizer::from_directory(test::tiny_tokenizer());
  EXPECT_THAT(tokenizer.end_ids(), ElementsAre(2, 0));  // eos_token <|im_end|>, special <|endoftext|>
}

TEST(Tokenizer, EndIdsFromEveryFormOfConfig) {
  const std::string json = test::byte_fallback_tokenizer();  // <s> 1, </s> 2, <end_of_turn> 3
  const auto ends = [&](const char* config) { return Tokenizer::from_json(json, config).end_ids(); };
  EXPECT_THAT(ends(R"({"eos_token": "</s>"})"), ElementsAre(2, 3));
  EXPECT_THAT(ends(R"({"eos_token": {"content": "</s>", "lstrip": false}})"), ElementsAre(2, 3));
  EXPECT_THAT(ends(R"({"eos_token": ["<s>", {"content": "</s>"}, 7, "missing"]})"), ElementsAre(1, 2, 3));
  EXPECT_THAT(ends(R"({"eos_token_id": 2, "eos_token_ids": [3, 5, -1, "x", 1e3]})"), ElementsAre(2, 3, 5));
  EXPECT_THAT(ends(R"({"eot_token": "</s>"})"), ElementsAre(2, 3));
  EXPECT_THAT(ends(""), ElementsAre(3));
}

TEST(Tokenizer, GenerationConfigAndSpecialTokensMapBesideTheTokenizer) {
  test::ScratchFolder folder;
  folder.write("tokenizer.json", test::byte_fallback_tokenizer());
  folder.write("generation_config.json", R"({"eos_token_id": [2, 1]})");
  folder.write("special_tokens_map.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  folder.write("tokenizer_config.json", R"({"eos_token": "<end_of_turn>"})");
  const auto tokenizer = Tokenizer::from_directory(folder.path());
  EXPECT_THAT(tokenizer.end_ids(), ElementsAre(3, 2, 1));
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.special_token("eos_token"), "<end_of_turn>");
}

// Objects keep their members' order in a list, so a quadratic cost would show.
TEST(Tokenizer, ManyAddedTokensInTheConfigCostLittle) {
  std::string config = R"({"eos_token": "</s>", "added_tokens_decoder": {"0": {"content": "<unk>"})";
  for (int id = 1; id < 100000; ++id) config += fmt::format(R"(, "{}": {{"content": "<{}>"}})", id, id);
  config += R"(}, "bos_token": "<s>"})";
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = Tokenizer::from_json(test::byte_fallback_tokenizer(), config);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_THAT(tokenizer.end_ids(), ElementsAre(2, 3));
  EXPECT_EQ(tokenizer.bos_id(), 1);
  const std::string deep = R"({"added_tokens_decoder": )" + std::string(100000, '[');
  EXPECT_THROW(Tokenizer::from_json(test::byte_fallback_tokenizer(), deep), MalformedError);
}

TEST(Tokenizer, PostProcessorAddsTheBeginToken) {
  const auto tokenizer = Tokenizer::from_json(test::byte_fallback_tokenizer());
  EXPECT_THAT(tokenizer.encode("a"), ElementsAre(1, tokenizer.token_to_id("▁a").value()));
  EXPECT_THAT(tokenizer.encode("a", false), ElementsAre(tokenizer.token_to_id("▁a").value()));
}

TEST(Tokenizer, AddedTokensHonourTheirFlags) {
  auto json = nlohmann::ordered_json::parse(test::byte_fallback_tokenizer());
  json["added_tokens"].push_back({{"id", 900},
                                  {"content", "<tag>"},
                                  {"single_word", false},
                                  {"lstrip", true},
                                  {"rstrip", true},
                                  {"normalized", false},
                                  {"special", false}});
  json["added_tokens"].push_back({{"id", 901},
                                  {"content", "<tag><tag>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", false}});
  const auto tokenizer = Tokenizer::from_json(json.dump());
  const TokenId a = tokenizer.token_to_id("▁a").value();
  // Ids follow the vocabulary without a gap, whatever the file says, as in the reference implementation.
  EXPECT_THAT(tokenizer.encode("a <tag> a", false), ElementsAre(a, 267, a));
  EXPECT_THAT(tokenizer.encode("<tag><tag>", false), ElementsAre(268));
}

TEST(Tokenizer, ByteFallbackKeepsValidCharactersOfABrokenRun) {
  const auto tokenizer = Tokenizer::from_json(test::byte_fallback_tokenizer());
  const auto bytes = [&](std::initializer_list<const char*> tokens) {
    std::vector<TokenId> ids;
    for (const char* token : tokens) ids.push_back(tokenizer.token_to_id(token).value());
    return tokenizer.decode(ids);
  };
  EXPECT_EQ(bytes({"<0xE2>", "<0x82>", "<0xAC>"}), "€");
  EXPECT_EQ(bytes({"<0xE2>", "<0x82>", "<0xAC>", "<0xFF>"}), "€\uFFFD");
  EXPECT_EQ(bytes({"<0xE2>", "<0x82>"}), "\uFFFD");
  EXPECT_EQ(bytes({"<0xC3>", "<0x27>"}), "\uFFFD'");
}

TEST(Tokenizer, PaddingAndTruncationOfTheFileAreOff) {
  auto json = nlohmann::ordered_json::parse(test::byte_fallback_tokenizer());
  json["truncation"] = {{"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {{"strategy", {{"Fixed", 1000000000000}}},
                     {"direction", "Right"},
                     {"pad_to_multiple_of", nullptr},
                     {"pad_id", 0},
                     {"pad_type_id", 0},
                     {"pad_token", "<unk>"}};
  const auto tokenizer = Tokenizer::from_json(json.dump());
  EXPECT_EQ(tokenizer.encode("a a a a").size(), 5u);
}

TEST(Tokenizer, ReportsWhatIsWrongWithItsFiles) {
  test::ScratchFolder folder;
  try {
    Tokenizer::from_directory(folder.path());
    FAIL() << "a missing file was accepted";
  } catch (const NotFoundError& e) {
    EXPECT_THAT(e.where(), HasSubstr((folder.path() / "tokenizer.json").string()));
    EXPECT_FALSE(e.next_step().empty());
  }
  for (const char* json : {"", "{", "[]", "null", "{\"model\": {}}", "{\"version\": \"9.9\"}", "\xFF\xFE", "{}"}) {
    folder.write("tokenizer.json", json);
    EXPECT_THROW(Tokenizer::from_directory(folder.path()), MalformedError) << json;
  }
  folder.write("tokenizer.json", test::byte_fallback_tokenizer());
  for (const char* config : {"", "{", "[]", "3", "\"text\""}) {
    folder.write("tokenizer_config.json", config);
    EXPECT_THROW(Tokenizer::from_directory(folder.path()), MalformedError) << config;
  }
}

TEST(Tokenizer, EveryTruncationIsMalformed) {
  const std::string json = test::byte_fallback_tokenizer();
  for (std::size_t size = 0; size + 1 < json.size(); size += 37) {
    EXPECT_THROW(Tokenizer::from_json(std::string_view(json).substr(0, size)), MalformedError) << size;
  }
}

// The library panics on such a template with every text: the file's fault, told when it is read.
TEST(Tokenizer, ATemplateWithATokenOfNoIdIsMalformed) {
  auto json = nlohmann::ordered_json::parse(test::byte_fallback_tokenizer());
  json["post_processor"]["single"].push_back({{"SpecialToken", {{"id", "<nowhere>"}, {"type_id", 0}}}});
  try {
    Tokenizer::from_json(json.dump());
    FAIL() << "a template that no text fits was accepted";
  } catch (const MalformedError& e) {
    EXPECT_THAT(e.what(), Not(HasSubstr(".rs")));
  }
}

TEST(Tokenizer, RefusesReplaceRulesThatExplode) {
  auto json = nlohmann::ordered_json::parse(test::byte_fallback_tokenizer());
  auto rules = nlohmann::ordered_json::array();
  for (int i = 0; i < 20; ++i) {
    rules.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(64, 'a')}});
  }
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", rules}};
  EXPECT_THROW(Tokenizer::from_json(json.dump()), UnsupportedError);
}

TEST(Tokenizer, DeepNestingIsMalformedNotACrash) {
  std::string json = R"({"normalizer": )";
  for (int i = 0; i < 100000; ++i) json += R"({"type": "Sequence", "normalizers": [)";
  EXPECT_THROW(Tokenizer::from_json(json), MalformedError);
  EXPECT_THROW(Tokenizer::from_json(test::byte_fallback_tokenizer(), std::string(100000, '[')), MalformedError);
}

TEST(Tokenizer, RefusesBadArguments) {
  const auto tokenizer = Tokenizer::from_directory(test::tiny_tokenizer());
  EXPECT_THROW(tokenizer.encode("caf\xE9"), InvalidArgumentError);
  const std::vector<TokenId> negative = {1, -5};
  EXPECT_THROW(tokenizer.decode(negative), InvalidArgumentError);
  const std::vector<TokenId> unknown = {84, 100000, 85};
  EXPECT_EQ(tokenizer.decode(unknown), "de");
}

TEST(Tokenizer, LongTextsEncodeInReasonableTime) {
  const auto tokenizer = Tokenizer::from_directory(test::tiny_tokenizer());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(std::string(200000, ' '))), std::string(200000, ' '));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(std::string(200000, 'a'))), std::string(200000, 'a'));
}

TEST(Tokenizer, IsSharedByThreads) {
  const auto tokenizer = Tokenizer::from_directory(test::tiny_tokenizer());
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([copy = tokenizer] {
      for (int round = 0; round < 20; ++round) {
        for (const auto& c : encode_cases()) ASSERT_EQ(copy.encode(c.text), c.ids);
      }
    });
  }
}

}  // namespace
}  // namespace coreai
