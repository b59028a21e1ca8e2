#include "coreai/grammar/batch_fill.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "coreai/base/error.h"
#include "coreai/base/thread_pool.h"
#include "coreai/grammar/token_bitmask.h"

namespace coreai::grammar {
namespace {

constexpr std::int32_t kEnd = 257;
constexpr std::uint32_t kUntouched = 0xabcd'1234u;

// All bytes, "ab" and an end token; three logits more than that, so that the last word is not full.
TokenizerInfo small_tokenizer() {
  std::vector<std::string> vocabulary;
  vocabulary.reserve(258);
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  vocabulary.insert(vocabulary.end(), {"ab", "</s>"});
  return TokenizerInfo(vocabulary, {.kind = VocabularyKind::kRaw, .end_ids = {kEnd}, .vocab_size = 261});
}

const std::size_t kWords = bitmask_words(261);

std::vector<std::uint32_t> row(std::span<const std::uint32_t> masks, std::size_t i) {
  const auto part = masks.subspan(i * kWords, kWords);
  return {part.begin(), part.end()};
}

TEST(BatchFill, EqualsFillingOneByOne) {
  GrammarCompiler compiler(small_tokenizer());
  std::vector<GrammarMatcher> matchers;
  for (int i = 0; i < 40; ++i) {
    auto& matcher = matchers.emplace_back(i % 3 == 0 ? compiler.compile_json()
                                                     : compiler.compile_regex("(ab|c|[0-9]{2,4}){0,30}x?"));
    if (i % 3 == 0) {
      EXPECT_TRUE(matcher.accept_bytes("[1,"));
    }
    if (i % 3 == 1) {
      EXPECT_TRUE(matcher.accept_bytes(std::string(static_cast<std::size_t>(i % 20), 'c')));
    }
    if (i % 3 == 2) {
      EXPECT_TRUE(matcher.accept_token(kEnd));
    }
  }
  std::vector<const GrammarMatcher*> pointers;
  pointers.reserve(matchers.size());
  for (const GrammarMatcher& matcher : matchers) pointers.push_back(&matcher);
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    std::vector<std::uint32_t> masks(pointers.size() * kWords + 1, kUntouched);
    const auto rows = fill_next_token_bitmasks(pointers, masks, pool);
    ASSERT_EQ(rows.size(), pointers.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<std::uint32_t> expected(kWords);
      EXPECT_EQ(rows[i].kind, matchers[i].fill_next_token_bitmask(expected));
      EXPECT_EQ(rows[i].error, nullptr);
      EXPECT_EQ(row(masks, i), expected) << "row " << i << " on " << threads << " threads";
    }
    EXPECT_EQ(masks.back(), kUntouched);
  }
}

TEST(BatchFill, RefusesWhatDoesNotFitBeforeItWrites) {
  GrammarCompiler compiler(small_tokenizer());
  const GrammarMatcher matcher(compiler.compile_regex("a*"));
  const TokenizerInfo other(std::vector<std::string>{"a"}, {.kind = VocabularyKind::kRaw});
  const GrammarMatcher of_other(GrammarCompiler(other).compile_regex("a*"));
  std::vector<std::uint32_t> masks(2 * kWords, kUntouched);
  ThreadPool pool(2);
  const auto fill = [&](std::vector<const GrammarMatcher*> matchers, std::size_t words) {
    fill_next_token_bitmasks(matchers, std::span(masks).first(words), pool);
  };
  EXPECT_THROW(fill({&matcher, nullptr}, 2 * kWords), InvalidArgumentError);
  EXPECT_THROW(fill({&matcher, &of_other}, 2 * kWords), InvalidArgumentError);
  EXPECT_THROW(fill({&matcher, &matcher}, 2 * kWords - 1), InvalidArgumentError);
  EXPECT_EQ(masks, std::vector<std::uint32_t>(2 * kWords, kUntouched));
  EXPECT_TRUE(fill_next_token_bitmasks({}, {}, pool).empty());
}

// The budget of one grammar ends; the rows of the others are filled all the same.
TEST(BatchFill, AnErrorIsToldForItsRow) {
  GrammarCompiler small(small_tokenizer(), {.max_expressions = 2000});
  GrammarMatcher spent(small.compile_regex("(a|b)*a(a|b){12}c(a|b){3}d"));
  bool ended = false;
  std::mt19937 random(7);
  for (std::uint32_t i = 1; !ended && i < 10'000; ++i) {
    try {
      EXPECT_TRUE(spent.accept_bytes(random() % 2 == 0 ? "a" : "b"));
    } catch (const UnsupportedError&) {
      ended = true;
    }
  }
  ASSERT_TRUE(ended);
  GrammarCompiler compiler(small_tokenizer());
  const GrammarMatcher good(compiler.compile_regex("[0-9]+"));
  ThreadPool pool(2);
  std::vector<std::uint32_t> masks(3 * kWords, kUntouched), expected(kWords);
  const auto rows = fill_next_token_bitmasks(std::vector<const GrammarMatcher*>{&good, &spent, &good}, masks, pool);
  good.fill_next_token_bitmask(expected);
  EXPECT_EQ(row(masks, 0), expected);
  EXPECT_EQ(row(masks, 2), expected);
  ASSERT_NE(rows[1].error, nullptr);
  EXPECT_THROW(std::rethrow_exception(rows[1].error), UnsupportedError);
  EXPECT_EQ(row(masks, 1), std::vector<std::uint32_t>(kWords, 0));
}

TEST(DraftTree, EveryNodeHasTheMaskAfterItsPath) {
  GrammarCompiler compiler(small_tokenizer());
  GrammarMatcher matcher(compiler.compile_regex("x(ab|ac)*d?"));
  ASSERT_TRUE(matcher.accept_bytes("x"));
  const std::vector<std::int32_t> parents{-1, 0, 1, 0, 3, -1, 5, 2, -1};
  const std::vector<std::int32_t> tokens{'a', 'b', 'd', 'x', 'b', 256, kEnd, 'a', kEnd};
  const std::vector<bool> allowed{true, true, true, false, false, true, true, false, true};
  std::vector<std::uint32_t> masks(tokens.size() * kWords + 1, kUntouched);
  const auto nodes = fill_draft_tree_bitmasks(matcher, parents, tokens, masks);
  ASSERT_EQ(nodes.size(), tokens.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::vector<std::int32_t> path;
    for (std::int32_t at = static_cast<std::int32_t>(i); at >= 0; at = parents[static_cast<std::size_t>(at)])
      path.insert(path.begin(), tokens[static_cast<std::size_t>(at)]);
    GrammarMatcher alone = matcher.fork();
    bool accepted = true;
    for (const std::int32_t token : path) accepted = accepted && alone.accept_token(token);
    std::vector<std::uint32_t> expected(kWords);
    if (accepted) {
      EXPECT_EQ(nodes[i].kind, alone.fill_next_token_bitmask(expected)) << i;
    }
    EXPECT_EQ(accepted, allowed[i]) << i;
    EXPECT_EQ(nodes[i].allowed, allowed[i]) << i;
    EXPECT_EQ(row(masks, i), expected) << i;
  }
  EXPECT_EQ(masks.back(), kUntouched);
  EXPECT_EQ(matcher.accepted_steps(), 1u);
}

TEST(DraftTree, BrokenTreesAreRefusedBeforeAnythingIsWritten) {
  GrammarCompiler compiler(small_tokenizer());
  const GrammarMatcher matcher(compiler.compile_regex("a*"));
  std::vector<std::uint32_t> masks(2 * kWords, kUntouched);
  const auto fill = [&](std::vector<std::int32_t> parents, std::vector<std::int32_t> tokens, std::size_t words) {
    fill_draft_tree_bitmasks(matcher, parents, tokens, std::span(masks).first(words));
  };
  EXPECT_THROW(fill({-1, 1}, {'a', 'a'}, 2 * kWords), InvalidArgumentError);
  EXPECT_THROW(fill({1, -1}, {'a', 'a'}, 2 * kWords), InvalidArgumentError);
  EXPECT_THROW(fill({-1, -2}, {'a', 'a'}, 2 * kWords), InvalidArgumentError);
  EXPECT_THROW(fill({-1, 0}, {'a', 261}, 2 * kWords), InvalidArgumentError);
  EXPECT_THROW(fill({-1, 0}, {'a', -1}, 2 * kWords), InvalidArgumentError);
  EXPECT_THROW(fill({-1}, {'a', 'a'}, 2 * kWords), InvalidArgumentError);
  EXPECT_THROW(fill({-1, 0}, {'a', 'a'}, 2 * kWords - 1), InvalidArgumentError);
  EXPECT_EQ(masks, std::vector<std::uint32_t>(2 * kWords, kUntouched));
}

}  // namespace
}  // namespace coreai::grammar
