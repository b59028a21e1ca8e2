#include "grammar/token_terminals.h"

#include <gtest/gtest.h>

#include "coreai/base/error.h"
#include "grammar/byte_tokenizer.h"
#include "grammar/mask_walk.h"

namespace coreai::grammar {
namespace {

constexpr std::int32_t kThink = 256, kThinkEnd = 257, kAb = 258, kEnd = 259, kOther = 260, kPadding = 265;

TokenizerInfo tokenizer() {
  std::vector<std::string> vocabulary;
  vocabulary.reserve(300);
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"<think>", "</think>", "ab", "</s>", "<x>", "<think>"}) vocabulary.emplace_back(text);
  return TokenizerInfo(
      vocabulary,
      {.kind = VocabularyKind::kRaw, .end_ids = {kEnd}, .special_ids = {kThink, kThinkEnd, kOther}, .vocab_size = 300});
}

// Whether the tokens lead to where the text may end.
bool takes(const CompiledGrammar& grammar, const std::vector<std::int32_t>& tokens) {
  GrammarMatcher matcher(grammar);
  for (const std::int32_t token : tokens)
    if (!matcher.accept_token(token)) return false;
  return matcher.can_terminate() || matcher.is_terminated();
}

TEST(TokenTerminals, MatchTheTokenAndNeverItsText) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar = compiler.compile_ebnf("root ::= <think> [a-z]* </think> \"x\"");
  EXPECT_TRUE(takes(grammar, {kThink, kAb, 'c', kThinkEnd, 'x'}));
  EXPECT_FALSE(takes(grammar, {kThink, kOther, kThinkEnd, 'x'}));
  EXPECT_FALSE(takes(grammar, {261, kThinkEnd, 'x'}));  // an ordinary token with the same text
  GrammarMatcher matcher(grammar);
  EXPECT_FALSE(matcher.accept_bytes("<think>"));
  EXPECT_FALSE(matcher.accept_bytes("\xff"));
  EXPECT_FALSE(matcher.accept_bytes({"\xff\0\1\0", 4}));
  EXPECT_FALSE(matcher.accept_token(255));
  EXPECT_EQ(matcher.find_jump_forward_string(), "");
  EXPECT_TRUE(matcher.accept_token(kThink));
  matcher.rollback(1);
  expect_exact_mask(matcher);
}

TEST(TokenTerminals, AreWrittenInTheWaysOfLlamaCppLlguidanceAndXgrammar) {
  GrammarCompiler compiler(tokenizer());
  for (const char* text : {"root ::= <[256]>", "root ::= Token(256)", "root ::= <think>"}) {
    const CompiledGrammar grammar = compiler.compile_ebnf(text);
    EXPECT_TRUE(takes(grammar, {kThink})) << text;
    EXPECT_FALSE(takes(grammar, {kThinkEnd})) << text;
  }
  for (const char* text :
       {"root ::= !<[257]>", "root ::= ExcludeToken(257)", "root ::= !</think>", "root ::= <[^257]>"}) {
    const CompiledGrammar grammar = compiler.compile_ebnf(text);
    EXPECT_TRUE(takes(grammar, {kThink})) << text;
    EXPECT_TRUE(takes(grammar, {'a'})) << text;
    EXPECT_TRUE(takes(grammar, {kAb})) << text;
    EXPECT_FALSE(takes(grammar, {kThinkEnd})) << text;
    EXPECT_FALSE(takes(grammar, {kEnd})) << text;
    EXPECT_FALSE(takes(grammar, {kPadding})) << text;
  }
  const CompiledGrammar several = compiler.compile_ebnf("root ::= <[97-98, 256]>{2}");
  EXPECT_TRUE(takes(several, {'a', kThink}));
  EXPECT_TRUE(takes(several, {'b', 'a'}));
  EXPECT_FALSE(takes(several, {'c', 'a'}));
  EXPECT_TRUE(takes(compiler.compile_ebnf("root ::= <[*]>"), {kOther}));
}

TEST(TokenTerminals, ATokenMayBeReadAsItselfAndAsItsTextAtOnce) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar = compiler.compile_ebnf("root ::= <[258]> \"x\" | \"abc\"");
  EXPECT_TRUE(takes(grammar, {kAb, 'x'}));
  EXPECT_TRUE(takes(grammar, {kAb, 'c'}));
  EXPECT_TRUE(takes(grammar, {'a', 'b', 'c'}));
  EXPECT_FALSE(takes(grammar, {'a', 'b', 'x'}));
  GrammarMatcher matcher(grammar);
  EXPECT_EQ(matcher.find_jump_forward_string(), "");  // "a" is not the only way
  ASSERT_TRUE(matcher.accept_token('a'));
  EXPECT_EQ(matcher.find_jump_forward_string(), "bc");
  GrammarMatcher text_first(compiler.compile_ebnf("root ::= \"ab\" <think>"));
  EXPECT_EQ(text_first.find_jump_forward_string(), "ab");
}

TEST(TokenTerminals, NamedEndTokensAreTerminals) {
  GrammarCompiler compiler(tokenizer());
  GrammarMatcher inside(compiler.compile_ebnf("root ::= \"a\" </s> \"b\"?"));
  ASSERT_TRUE(inside.accept_token('a'));
  EXPECT_FALSE(inside.can_terminate());
  expect_exact_mask(inside);
  ASSERT_TRUE(inside.accept_token(kEnd));
  EXPECT_FALSE(inside.is_terminated());
  ASSERT_TRUE(inside.accept_token('b'));
  ASSERT_TRUE(inside.accept_token(kEnd));
  EXPECT_TRUE(inside.is_terminated());
  GrammarMatcher last(compiler.compile_ebnf("root ::= \"a\" </s>"));
  ASSERT_TRUE(last.accept_token('a'));
  ASSERT_TRUE(last.accept_token(kEnd));
  EXPECT_TRUE(last.is_terminated());
  EXPECT_FALSE(last.accept_token(kEnd));
  last.rollback(1);
  EXPECT_FALSE(last.is_terminated());
}

TEST(TokenTerminals, DispatchOnTokens) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar =
      compiler.compile_ebnf("root ::= TokenTagDispatch((256, body), excludes=(260,))\nbody ::= [0-9]+ <[257]>");
  EXPECT_TRUE(takes(grammar, {}));
  EXPECT_TRUE(takes(grammar, {'a', kAb, kThink, '1', kThinkEnd, 'b', kThink, '2', kThinkEnd}));
  EXPECT_FALSE(takes(grammar, {'a', kThink, 'a'}));
  EXPECT_FALSE(takes(grammar, {kOther}));
  EXPECT_TRUE(takes(grammar, {kThinkEnd}));
  walk_masks(grammar, 3, 30);
  const CompiledGrammar once =
      compiler.compile_ebnf("root ::= TokenTagDispatch((256, body), loop_after_dispatch=false) \"!\"\nbody ::= \"x\"");
  EXPECT_TRUE(takes(once, {'a', kThink, 'x', '!'}));
  EXPECT_FALSE(takes(once, {'a', kThink, 'x', 'a', '!'}));
}

TEST(TokenTerminals, MasksAreExactAlongRandomWalks) {
  GrammarCompiler compiler(tokenizer());
  for (const char* text : {"root ::= <think> !</think>{0,5} </think> [ab]+",
                           "root ::= (<[97-120,256-258]> | \"ab\" | \"q\")*", "root ::= <think>{2,3} \"a\"{1,2} </s>?",
                           "root ::= root <[258]> | \"a\" | !<[0-255]> \"zz\"", "root ::= (\"a\" | <think>)? <[*]>"})
    for (unsigned seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(text);
      ASSERT_NO_FATAL_FAILURE(walk_masks(compiler.compile_ebnf(text), seed, 12));
    }
}

TEST(TokenTerminals, KindOfTheMaskCountsOrdinaryTokens) {
  GrammarCompiler compiler(tokenizer());
  std::vector<std::uint32_t> mask(bitmask_words(300));
  GrammarMatcher some(compiler.compile_ebnf("root ::= [a-z] | <think>"));
  EXPECT_EQ(some.fill_next_token_bitmask(mask), MaskKind::kConstrained);
  GrammarMatcher all(compiler.compile_ebnf("root ::= <[*]>*"));
  EXPECT_EQ(all.fill_next_token_bitmask(mask), MaskKind::kUnconstrained);
}

TEST(TokenTerminals, UnknownTokensAreNamed) {
  GrammarCompiler compiler(tokenizer());
  const auto message = [&](const char* text) -> std::string {
    try {
      compiler.compile_ebnf(text);
    } catch (const InvalidArgumentError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message("root ::= <nothing>").find("'<nothing>'"), std::string::npos);
  EXPECT_NE(message("root ::= <[300]>").find("300"), std::string::npos);
  EXPECT_NE(message("root ::= <[265]>").find("padding"), std::string::npos);
  EXPECT_NE(message("root ::= <[5-2]>").find("5 to 2"), std::string::npos);
  EXPECT_NE(message("root ::= <[99999999999999999999]>"), "");
  EXPECT_NE(message("root ::= <[a]>"), "");
  EXPECT_NE(message("root ::= <[]>"), "");
  EXPECT_THROW(compiler.compile_ebnf("root ::= <think"), MalformedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= !\"a\""), MalformedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= Token(a)"), MalformedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= ExcludeToken(1"), MalformedError);
}

}  // namespace
}  // namespace coreai::grammar
