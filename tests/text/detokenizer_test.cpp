#include <gtest/gtest.h>

#include <random>

#include "coreai/text/tokenizer.h"
#include "text/fixtures.h"

namespace coreai {
namespace {

// Whether `text` is well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
    if (length == 0 || i + length > text.size()) return false;
    std::uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0u) != 0x80u) return false;
      code = code << 6 | (next & 0x3Fu);
    }
    constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += length;
  }
  return true;
}

// Streams the ids, checks every piece, and returns the whole text.
std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  StreamingDetokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(is_utf8(piece));
    text += piece;
  }
  const std::string rest = detokenizer.finish();
  EXPECT_TRUE(is_utf8(rest));
  return text + rest;
}

Tokenizer tokenizer_of(int kind) {
  return kind == 0 ? Tokenizer::from_directory(test::tiny_tokenizer())
                   : Tokenizer::from_json(test::byte_fallback_tokenizer());
}

class Streaming : public testing::TestWithParam<int> {};

TEST_P(Streaming, GivesTheTextOfDecodeForTexts) {
  const auto tokenizer = tokenizer_of(GetParam());
  for (const char* text : {"Hello, wörld! €😀 日本語\n\tend", "a  b   c", " leading",
                           "👩‍👩‍👧‍👦🇩🇪", "\uFFFD", "x\uFFFD\uFFFDy", "ab"}) {
    const auto ids = tokenizer.encode(text);
    EXPECT_EQ(stream(tokenizer, ids, true), tokenizer.decode(ids, true)) << text;
    EXPECT_EQ(stream(tokenizer, ids, false), tokenizer.decode(ids, false)) << text;
  }
}

// Random tokens: broken characters, special tokens and unknown ids in any order.
TEST_P(Streaming, GivesTheTextOfDecodeForRandomTokens) {
  const auto tokenizer = tokenizer_of(GetParam());
  std::mt19937 random(7);
  const auto vocab = static_cast<TokenId>(tokenizer.vocab_size());
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> ids;
    std::uniform_int_distribution<TokenId> any(0, vocab + 3);
    // Half of the rounds draw from the byte tokens only, where broken characters are dense.
    std::uniform_int_distribution<TokenId> bytes(GetParam() == 0 ? 17 : 4 + 0x7E, GetParam() == 0 ? 260 : 259);
    for (int i = 0; i < 60; ++i) ids.push_back(round % 2 == 0 ? any(random) : bytes(random));
    for (const bool skip : {true, false}) {
      EXPECT_EQ(stream(tokenizer, ids, skip), tokenizer.decode(ids, skip)) << "round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, Streaming, testing::Values(0, 1));

TEST(StreamingDetokenizer, HoldsBackAnIncompleteCharacter) {
  const auto tokenizer = Tokenizer::from_json(test::byte_fallback_tokenizer());
  const auto byte = [&](const char* token) { return tokenizer.token_to_id(token).value(); };
  StreamingDetokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(byte("<0xE2>")), "");
  EXPECT_EQ(detokenizer.push(byte("<0x82>")), "");
  EXPECT_EQ(detokenizer.push(byte("<0xAC>")), "€");
  EXPECT_EQ(detokenizer.push(byte("<0xC3>")), "");
  EXPECT_EQ(detokenizer.push(byte("<0x27>")), "\uFFFD'");
  EXPECT_EQ(detokenizer.push(byte("<0xF0>")), "");
  EXPECT_EQ(detokenizer.push(byte("<0x9F>")), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
}

TEST(StreamingDetokenizer, KeepsTheSpaceAfterASkippedSpecialToken) {
  const auto tokenizer = Tokenizer::from_json(test::byte_fallback_tokenizer());
  StreamingDetokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(tokenizer.token_to_id("▁ab").value()), "ab");
  EXPECT_EQ(detokenizer.push(tokenizer.token_to_id("</s>").value()), "");
  EXPECT_EQ(detokenizer.push(tokenizer.token_to_id("▁a").value()), " a");
}

// A window of a fixed size: 100,000 tokens that never form a character take time in proportion to their number.
TEST(StreamingDetokenizer, CostIsLinear) {
  const auto tokenizer = Tokenizer::from_json(test::byte_fallback_tokenizer());
  StreamingDetokenizer detokenizer(tokenizer);
  const TokenId broken = tokenizer.token_to_id("<0xFF>").value();
  std::size_t bytes = 0;
  for (int i = 0; i < 100000; ++i) bytes += detokenizer.push(broken).size();
  EXPECT_EQ(bytes + detokenizer.finish().size(), 300000u);
}

}  // namespace
}  // namespace coreai
