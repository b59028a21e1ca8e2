#include "coreai/grammar/tokenizer_info.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "coreai/base/error.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {
namespace {

TEST(TokenizerInfo, ByteLevelTextBecomesBytes) {
  const std::vector<std::string> vocabulary{"a", "\u0120the", "\u010a", "\u00c3\u00a9", "\u0100", "<|end|>"};
  const TokenizerInfo info(vocabulary, {.kind = VocabularyKind::kByteLevel, .end_ids = {5}, .special_ids = {}});
  EXPECT_EQ(info.token_bytes(1), " the");
  EXPECT_EQ(info.token_bytes(2), "\n");
  EXPECT_EQ(info.token_bytes(3), "\u00e9");
  EXPECT_EQ(info.token_bytes(4), std::string_view("\0", 1));
  EXPECT_TRUE(info.is_special(5));
  EXPECT_TRUE(info.is_end(5));
  EXPECT_EQ(info.longest_token(), 4u);
}

TEST(TokenizerInfo, EveryByteHasAByteLevelCharacter) {
  std::vector<std::string> vocabulary;
  for (int point = 0; point < 0x144; ++point) {
    if (point < 0x80) {
      vocabulary.emplace_back(1, static_cast<char>(point));
    } else {
      vocabulary.push_back({static_cast<char>(0xc0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3f))});
    }
  }
  std::vector<bool> seen(256);
  for (const std::string& text : vocabulary) {
    try {
      const TokenizerInfo info(std::vector{text}, {.kind = VocabularyKind::kByteLevel});
      const auto byte = static_cast<unsigned char>(info.token_bytes(0)[0]);
      EXPECT_FALSE(seen[byte]);
      seen[byte] = true;
    } catch (const InvalidArgumentError&) {  // the 68 that stand for none
    }
  }
  EXPECT_EQ(std::ranges::count(seen, true), 256);
}

TEST(TokenizerInfo, ByteFallbackTextBecomesBytes) {
  const std::vector<std::string> vocabulary{"<unk>", "<0x0A>", "\u2581a\u2581", "<0xFF>", "<0xG0>", ""};
  const TokenizerInfo info(vocabulary,
                           {.kind = VocabularyKind::kByteFallback, .end_ids = {}, .special_ids = {0}, .vocab_size = 8});
  EXPECT_EQ(info.token_bytes(1), "\n");
  EXPECT_EQ(info.token_bytes(2), " a ");
  EXPECT_EQ(info.token_bytes(3), "\xff");
  EXPECT_EQ(info.token_bytes(4), "<0xG0>");
  EXPECT_EQ(info.token_bytes(7), "");
  EXPECT_EQ(info.vocab_size(), 8u);
}

TEST(TokenizerInfo, WrongListsAreTypedErrors) {
  const std::vector<std::string> vocabulary{"a", "\u4e2d"};
  EXPECT_THROW(TokenizerInfo(vocabulary, {.kind = VocabularyKind::kByteLevel}), InvalidArgumentError);
  EXPECT_THROW(TokenizerInfo(vocabulary, {.kind = VocabularyKind::kRaw, .end_ids = {2}}), InvalidArgumentError);
  EXPECT_THROW(TokenizerInfo(vocabulary, {.kind = VocabularyKind::kRaw, .end_ids = {-1}}), InvalidArgumentError);
  EXPECT_THROW(TokenizerInfo({}, {.kind = VocabularyKind::kRaw}), InvalidArgumentError);
  const TokenizerInfo info(vocabulary, {.kind = VocabularyKind::kRaw});
  EXPECT_THROW(info.token_bytes(2), InvalidArgumentError);
  EXPECT_THROW(info.is_special(-1), InvalidArgumentError);
}

TEST(TokenTrie, WalksEveryTokenOnceAndSkipsDeadSubtrees) {
  std::vector<TokenTrie::Token> tokens;
  for (const char* text : {"ab", "a", "", "abc", "b", "ab", "ac", "xyz"})
    tokens.push_back({text, static_cast<std::int32_t>(tokens.size())});
  const TokenTrie trie(tokens);
  EXPECT_EQ(trie.depth(), 3u);
  EXPECT_EQ(trie.nodes().size(), 8u);  // a ab abc ac b x xy xyz
  std::vector<std::int32_t> met;
  int steps = 0;
  trie.walk_nodes(TokenTrie::kRoot, 1, [&](int, const TokenTrie::Node& node, std::size_t) {
    ++steps;
    if (node.byte == 'x') return 0;
    if (node.entry != 0) met.insert(met.end(), trie.ids(node).begin(), trie.ids(node).end());
    return 1;
  });
  EXPECT_EQ(met, (std::vector<std::int32_t>{1, 0, 5, 3, 6, 4}));
  EXPECT_EQ(steps, 6);
}

}  // namespace
}  // namespace coreai::grammar
