#include "coreai/grammar/grammar_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <random>
#include <thread>

#include "coreai/base/error.h"
#include "coreai/grammar/token_bitmask.h"
#include "grammar/mask_cache.h"
#include "grammar/regex.h"

namespace coreai::grammar {
namespace {

// All bytes, some words of several bytes (two with the same), one cut through a character, an empty one, a special one,
// two end tokens.
TokenizerInfo small_tokenizer() {
  std::vector<std::string> vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  for (const char* text :
       {"ab", "abc", "ab", "aa", "ba", "12", "123", "\xc3\xa9", "\xc3", "b\xc3", "", "<s>", "</s>", "<end>"})
    vocabulary.emplace_back(text);
  return TokenizerInfo(vocabulary,
                       {.kind = VocabularyKind::kRaw, .end_ids = {268, 269}, .special_ids = {267}, .vocab_size = 300});
}

bool allowed(std::span<const std::uint32_t> mask, std::size_t id) {
  return (mask[id / 32] >> (id % 32)) & 1u;
}

// Every token against the derivatives of the whole text, without machine, trie or cache.
void expect_exact(const GrammarMatcher& matcher, ExpressionPool& pool, ExprId language, const std::string& text) {
  const TokenizerInfo& tokenizer = matcher.grammar().tokenizer();
  std::vector<std::uint32_t> mask(bitmask_words(tokenizer.vocab_size()));
  EXPECT_EQ(matcher.fill_next_token_bitmask(mask), MaskKind::kConstrained);
  ExprId here = language;
  for (const char byte : text) here = pool.derive(here, static_cast<std::uint8_t>(byte));
  EXPECT_EQ(matcher.can_terminate(), pool.nullable(here));
  bool some = false;
  for (std::size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    ExprId after = here;
    for (const char byte : tokenizer.token_bytes(token)) after = pool.derive(after, static_cast<std::uint8_t>(byte));
    bool expected = !tokenizer.token_bytes(token).empty() && !tokenizer.is_special(token) && !pool.is_nothing(after);
    if (tokenizer.is_end(token)) expected = pool.nullable(here);
    ASSERT_EQ(allowed(mask, id), expected) << "token " << id << " after '" << text << "'";
    GrammarMatcher fork = matcher.fork();
    ASSERT_EQ(fork.accept_token(token), expected) << "token " << id << " after '" << text << "'";
    ASSERT_EQ(fork.accepted_steps(), matcher.accepted_steps() + (expected ? 1 : 0));
    some = some || expected;
  }
  EXPECT_TRUE(some) << "a dead end after '" << text << "'";
}

class MatcherWalk : public testing::TestWithParam<const char*> {};

TEST_P(MatcherWalk, MasksAreExactAlongRandomWalks) {
  GrammarCompiler compiler(small_tokenizer());
  const CompiledGrammar grammar = compiler.compile_regex(GetParam());
  ExpressionPool pool;
  const ExprId language = regex_expression(pool, GetParam(), RegexMatch::kWhole, Utf8Encoder());
  std::mt19937 random(17);
  for (int walk = 0; walk < 6; ++walk) {
    GrammarMatcher matcher(grammar);
    std::string text;
    for (int step = 0; step < 12; ++step) {
      ASSERT_NO_FATAL_FAILURE(expect_exact(matcher, pool, language, text));
      const TokenMask mask = matcher.next_token_mask();
      std::vector<std::int32_t> choices;
      for (std::int32_t id = 0; id < 268; ++id)
        if (allowed({mask.get(), 10}, static_cast<std::size_t>(id))) choices.push_back(id);
      if (choices.empty()) break;
      const std::int32_t token = choices[random() % choices.size()];
      ASSERT_TRUE(matcher.accept_token(token));
      text += grammar.tokenizer().token_bytes(token);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, MatcherWalk,
                         testing::Values("[ab]*c", "(ab|ba){2,5}", "\\d{1,3}(,\\d{3})*", "[^x]{0,300}",
                                         "(?!.*aa)[ab]{3,6}", "a{200,400}b", "(\u00e9|b\u00e9)+", "(a|ab)(c|bcd)", "",
                                         ".*"));

TEST(Matcher, RollbackForkAndResetReturnToTheSameMasks) {
  GrammarCompiler compiler(small_tokenizer());
  GrammarMatcher matcher(compiler.compile_regex("(ab|ba|c){1,4}"));
  std::vector<TokenMask> masks;
  const std::vector<std::int32_t> tokens{256, 'c', 260, 'a', 'b', 268};
  for (const std::int32_t token : tokens) {
    masks.push_back(matcher.next_token_mask());
    ASSERT_TRUE(matcher.accept_token(token)) << token;
  }
  EXPECT_TRUE(matcher.is_terminated());
  EXPECT_FALSE(matcher.can_terminate());
  EXPECT_FALSE(matcher.accept_token('c'));
  EXPECT_FALSE(matcher.accept_token(268));
  std::vector<std::uint32_t> words(10, 7);
  EXPECT_EQ(matcher.fill_next_token_bitmask(words), MaskKind::kTerminated);
  EXPECT_EQ(std::ranges::count(words, 0u), 10);
  const GrammarMatcher fork = matcher.fork();
  for (std::size_t left = tokens.size(); left-- > 0;) {
    matcher.rollback(1);
    EXPECT_EQ(matcher.next_token_mask(), masks[left]) << left;  // the shared mask itself
  }
  EXPECT_TRUE(fork.is_terminated());
  EXPECT_EQ(fork.accepted_steps(), tokens.size());
  EXPECT_THROW(matcher.rollback(1), InvalidArgumentError);
  EXPECT_THROW(matcher.accept_token(300), InvalidArgumentError);
  EXPECT_THROW(matcher.accept_token(-1), InvalidArgumentError);
  EXPECT_THROW(matcher.fill_next_token_bitmask(std::span(words).first(9)), InvalidArgumentError);
}

TEST(Matcher, SaysWhenNothingIsExcluded) {
  const std::vector<std::string> vocabulary{"a", "bc", "", "<s>", "</s>"};
  GrammarCompiler compiler(
      TokenizerInfo(vocabulary, {.kind = VocabularyKind::kRaw, .end_ids = {4}, .special_ids = {3}}));
  std::vector<std::uint32_t> mask(1);
  GrammarMatcher any(compiler.compile_regex(".*"));
  EXPECT_EQ(any.fill_next_token_bitmask(mask), MaskKind::kUnconstrained);
  EXPECT_EQ(mask[0], 0b10011u);
  GrammarMatcher more(compiler.compile_regex(".+"));  // the end is excluded
  EXPECT_EQ(more.fill_next_token_bitmask(mask), MaskKind::kConstrained);
  ASSERT_TRUE(more.accept_token(1));
  EXPECT_EQ(more.fill_next_token_bitmask(mask), MaskKind::kUnconstrained);
}

TEST(Matcher, SearchesForAPatternWhereAsked) {
  GrammarCompiler compiler(small_tokenizer());
  GrammarMatcher matcher(compiler.compile_regex("^a|b$", RegexMatch::kSearch));
  EXPECT_TRUE(matcher.accept_bytes("xya"));
  EXPECT_FALSE(matcher.can_terminate());
  EXPECT_TRUE(matcher.accept_bytes("b"));
  EXPECT_TRUE(matcher.can_terminate());
}

TEST(Matcher, BytesAndTokensLeadToTheSameState) {
  GrammarCompiler compiler(small_tokenizer());
  const CompiledGrammar grammar = compiler.compile_regex("(abc|b\u00e9)+");
  GrammarMatcher by_token(grammar), by_byte(grammar), at_once(grammar);
  for (const std::int32_t token : {257, 265, 0xa9}) ASSERT_TRUE(by_token.accept_token(token));
  for (const char byte : std::string("abcb\xc3\xa9")) ASSERT_TRUE(by_byte.accept_bytes({&byte, 1}));
  ASSERT_TRUE(at_once.accept_bytes("abcb\xc3\xa9"));
  EXPECT_EQ(by_token.next_token_mask(), by_byte.next_token_mask());
  EXPECT_EQ(by_token.next_token_mask(), at_once.next_token_mask());
  EXPECT_FALSE(at_once.accept_bytes("abx"));
  EXPECT_EQ(at_once.accepted_steps(), 1u);
}

TEST(Matcher, JumpForwardStopsAtChoicesAndEnds) {
  GrammarCompiler compiler(small_tokenizer());
  const auto forced = [&](const char* pattern, std::string_view before) {
    GrammarMatcher matcher(compiler.compile_regex(pattern));
    EXPECT_TRUE(matcher.accept_bytes(before));
    return matcher.find_jump_forward_string();
  };
  EXPECT_EQ(forced("abc(d|e)", ""), "abc");
  EXPECT_EQ(forced("abc(d|e)f", "abcd"), "f");
  EXPECT_EQ(forced("ab?", ""), "a");
  EXPECT_EQ(forced("x{5000}", "").size(), 4096u);
  EXPECT_EQ(forced("\u00e9|\u00ea", ""), "\xc3");
}

TEST(Matcher, LongTextsAreFreedAndCountersShareMasks) {
  GrammarCompiler compiler(small_tokenizer());
  GrammarMatcher matcher(compiler.compile_regex("[ab]{0,1000000}"));
  const TokenMask first = matcher.next_token_mask();
  for (int i = 0; i < 200'000; ++i) ASSERT_TRUE(matcher.accept_token('a'));
  EXPECT_EQ(matcher.next_token_mask(), first);
  EXPECT_LT(matcher.grammar().memory_bytes(), 64u << 20);
}

TEST(Compiler, KeepsGrammarsAndMasksWithinItsBounds) {
  GrammarCompiler compiler(small_tokenizer(), {.mask_cache_bytes = 400, .max_cached_grammars = 2});
  GrammarMatcher matcher(compiler.compile_regex("abcdefghijklmnop*"));
  for (const char c : std::string("abcdefghijklmno")) {
    matcher.next_token_mask();
    EXPECT_LE(compiler.mask_memory_bytes(), 400u);
    ASSERT_TRUE(matcher.accept_token(c));
  }
  EXPECT_EQ(compiler.mask_memory_bytes(), 400u);
  {
    const CompiledGrammar other = compiler.compile_regex("a");
  }
  compiler.clear_cache();
  EXPECT_EQ(compiler.mask_memory_bytes(), 0u);
  EXPECT_TRUE(matcher.accept_token('p'));  // a grammar in use stays
}

TEST(Compiler, ChecksEveryNthMask) {
  MaskCache never(0), second(0, 2);
  for (int i = 1; i <= 6; ++i) {
    EXPECT_FALSE(never.check_is_due());
    EXPECT_EQ(second.check_is_due(), i % 2 == 0) << i;
  }
}

TEST(Compiler, BadGrammarsAreTypedErrorsAndDisturbNobody) {
  GrammarCompiler compiler(small_tokenizer(), {.max_expressions = 2000});
  GrammarMatcher matcher(compiler.compile_regex("a+"));
  EXPECT_THROW(compiler.compile_regex("(a"), MalformedError);
  EXPECT_THROW(compiler.compile_regex("(a)\\1"), UnsupportedError);
  EXPECT_THROW(compiler.compile_regex("a(?=b)c"), InvalidArgumentError);
  EXPECT_THROW(compiler.compile_regex(std::string(5000, 'a')), UnsupportedError);
  EXPECT_TRUE(matcher.accept_token('a'));
}

TEST(Compiler, ThreadsShareOneGrammar) {
  GrammarCompiler compiler(small_tokenizer());
  const auto walk = [&] {
    std::vector<std::uint32_t> all;
    GrammarMatcher matcher(compiler.compile_regex("((ab|ba){1,9}[0-9]{2,30}){3,}"));
    std::mt19937 random(1);
    for (int step = 0; step < 200; ++step) {
      const TokenMask mask = matcher.next_token_mask();
      all.insert(all.end(), mask.get(), mask.get() + 10);
      while (!matcher.accept_token(static_cast<std::int32_t>(random() % 268))) {
      }
    }
    return all;
  };
  std::vector<std::vector<std::uint32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = walk(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

}  // namespace
}  // namespace coreai::grammar
