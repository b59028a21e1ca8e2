// Vocabularies that a tokenizer.json gives to grammars: the bytes of a token are those that the decoder makes of it.
#include "coreai/language/grammar_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "coreai/base/utf8.h"
#include "coreai/grammar/grammar_matcher.h"

namespace coreai {
namespace {

using grammar::VocabularyKind;
using Json = nlohmann::ordered_json;

std::string fixture(const std::string& relative) {
  return std::string(COREAI_FIXTURE_DIR) + "/" + relative;
}

std::size_t count_id(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return static_cast<std::size_t>(std::count(ids.begin(), ids.end(), id));
}

// Behind another token, where a decoder strips nothing; tokens that are no whole characters have no text of their own.
std::size_t compare_with_decoder(const Tokenizer& tokenizer, const grammar::TokenizerInfo& info) {
  const TokenId first = tokenizer.token_to_id("a").value();
  const std::string head = tokenizer.decode(std::array{first}, false);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (tokenizer.is_special(id)) {
      EXPECT_TRUE(info.is_special(id)) << id;
      continue;
    }
    const std::string_view bytes = info.token_bytes(id);
    bool whole = true;
    for (std::size_t at = 0; at < bytes.size() && whole;) whole = next_code_point(bytes, at).has_value();
    if (!whole) continue;
    EXPECT_EQ(tokenizer.decode(std::array{first, id}, false), head + std::string(bytes)) << id;
    ++compared;
  }
  return compared;
}

// A tokenizer.json around a vocabulary; ids are the places in the list.
std::string model_json(const std::vector<std::string>& tokens, const Json& decoder, bool byte_fallback = false,
                       const Json& added = Json::array()) {
  Json vocabulary = Json::object();
  for (std::size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  return Json({{"version", "1.0"},
               {"added_tokens", added},
               {"normalizer", nullptr},
               {"pre_tokenizer", nullptr},
               {"post_processor", nullptr},
               {"decoder", decoder},
               {"model",
                {{"type", "BPE"},
                 {"unk_token", nullptr},
                 {"byte_fallback", byte_fallback},
                 {"vocab", vocabulary},
                 {"merges", Json::array()}}}})
      .dump();
}

Json sentencepiece_decoder() {
  return {{"type", "Sequence"},
          {"decoders",
           {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
            {{"type", "ByteFallback"}},
            {{"type", "Fuse"}},
            {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
}

TEST(GrammarTokenizer, ByteLevelFixtures) {
  for (const char* folder : {"tiny_llm/tokenizer", "genuine/qwen2_4bit_b3/tokenizer"}) {
    const Tokenizer tokenizer = Tokenizer::from_directory(fixture(folder));
    EXPECT_EQ(vocabulary_kind(tokenizer), VocabularyKind::kByteLevel);
    const grammar::TokenizerInfo info = grammar_tokenizer(tokenizer);
    EXPECT_EQ(info.vocab_size(), tokenizer.vocab_size());
    for (const TokenId id : tokenizer.end_ids()) EXPECT_TRUE(info.is_end(id)) << id;
    EXPECT_EQ(info.end_ids().size(), tokenizer.end_ids().size());
    EXPECT_GT(compare_with_decoder(tokenizer, info), 200u) << folder;
  }
}

TEST(GrammarTokenizer, EveryByteOfAByteLevelVocabularyIsThere) {
  const Tokenizer tokenizer = Tokenizer::from_directory(fixture("genuine/qwen2_4bit_b3/tokenizer"));
  const grammar::TokenizerInfo info = grammar_tokenizer(tokenizer);
  std::array<bool, 256> seen{};
  for (std::size_t id = 0; id < info.vocab_size(); ++id) {
    const auto bytes = info.token_bytes(static_cast<TokenId>(id));
    if (bytes.size() == 1) seen[static_cast<unsigned char>(bytes[0])] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 256);
}

TEST(GrammarTokenizer, ByteFallback) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(model_json({"a", "▁", "▁b", "<0x0A>", "<0xC3>", "é", "a▁b"}, sentencepiece_decoder(), true));
  EXPECT_EQ(vocabulary_kind(tokenizer), VocabularyKind::kByteFallback);
  const grammar::TokenizerInfo info = grammar_tokenizer(tokenizer);
  EXPECT_EQ(info.token_bytes(2), " b");
  EXPECT_EQ(info.token_bytes(3), "\n");
  EXPECT_EQ(info.token_bytes(4), "\xc3");
  EXPECT_EQ(info.token_bytes(6), "a b");
  EXPECT_EQ(compare_with_decoder(tokenizer, info), 6u);
}

TEST(GrammarTokenizer, TokensThatAreJoinedAsTheyAre) {
  const Tokenizer tokenizer = Tokenizer::from_json(model_json({"a", "b ", "é"}, {{"type", "Fuse"}}));
  EXPECT_EQ(vocabulary_kind(tokenizer), VocabularyKind::kRaw);
  EXPECT_EQ(compare_with_decoder(tokenizer, grammar_tokenizer(tokenizer)), 3u);
}

// Without a decoder the library puts a space between tokens; "##" and "</w>" are other writings.
TEST(GrammarTokenizer, OtherDecodersAreNotGuessed) {
  for (const Json& decoder : {Json(nullptr), Json({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}),
                              Json({{"type", "BPEDecoder"}, {"suffix", "</w>"}})}) {
    const Tokenizer tokenizer = Tokenizer::from_json(model_json({"a", "b", "##c", "d</w>"}, decoder));
    EXPECT_EQ(vocabulary_kind(tokenizer), std::nullopt) << decoder;
    try {
      grammar_tokenizer(tokenizer);
      ADD_FAILURE() << decoder;
    } catch (const InvalidArgumentError& error) {
      EXPECT_THAT(error.next_step(), testing::HasSubstr("kind"));
    }
    EXPECT_EQ(grammar_tokenizer(tokenizer, 0, VocabularyKind::kRaw).token_bytes(1), "b");
  }
}

// An added token is written as it is, and its bytes are those that the decoder passes on.
TEST(GrammarTokenizer, AddedTokensOfAByteLevelVocabulary) {
  const auto added = [](int id, const char* text, bool special) {
    return Json{{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", special}};
  };
  const Tokenizer tokenizer = Tokenizer::from_json(
      model_json({"a", "Ġ", "Ċ"}, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}, false,
                 {added(3, "two words\n", false), added(4, "日本", false), added(5, "<|im_end|>", true)}));
  const grammar::TokenizerInfo info = grammar_tokenizer(tokenizer, 64);
  EXPECT_EQ(info.vocab_size(), 64u);
  EXPECT_EQ(info.token_bytes(3), "two words\n");
  EXPECT_EQ(info.token_bytes(4), "日本");
  EXPECT_TRUE(info.is_end(5));
  EXPECT_EQ(count_id(info.special_ids(), 5), 1u);
  EXPECT_EQ(info.token_bytes(63), "");
  EXPECT_EQ(compare_with_decoder(tokenizer, info), 5u);
}

TEST(GrammarTokenizer, AGrammarFollowsTheTokensOfAText) {
  const Tokenizer tokenizer = Tokenizer::from_directory(fixture("tiny_llm/tokenizer"));
  grammar::GrammarCompiler compiler(grammar_tokenizer(tokenizer));
  grammar::GrammarMatcher matcher(compiler.compile_json());
  for (const TokenId id : tokenizer.encode(R"({"name": "Zoë", "list": [1, 2.5e3, null]})", false))
    ASSERT_TRUE(matcher.accept_token(id)) << id;
  EXPECT_TRUE(matcher.can_terminate());
  for (const TokenId id : tokenizer.end_ids()) EXPECT_TRUE(grammar::GrammarMatcher(matcher).accept_token(id)) << id;
}

}  // namespace
}  // namespace coreai
