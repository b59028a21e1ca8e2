// Masks against what each token does on a fork, for every token of a small vocabulary.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "coreai/grammar/grammar_matcher.h"
#include "coreai/grammar/token_bitmask.h"

namespace coreai::grammar {

inline void expect_exact_mask(const GrammarMatcher& matcher) {
  const TokenizerInfo& tokenizer = matcher.grammar().tokenizer();
  std::vector<std::uint32_t> mask(bitmask_words(tokenizer.vocab_size()));
  matcher.fill_next_token_bitmask(mask);
  bool some = false;
  for (std::size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool allowed = (mask[id / 32] >> (id % 32)) & 1u;
    ASSERT_EQ(matcher.fork().accept_token(static_cast<std::int32_t>(id)), allowed) << "token " << id;
    some = some || allowed;
  }
  ASSERT_TRUE(some) << "a dead end";
}

// Random allowed tokens, with the mask checked before each.
inline void walk_masks(const CompiledGrammar& grammar, unsigned seed, int steps) {
  std::mt19937 random(seed);
  GrammarMatcher matcher(grammar);
  for (int step = 0; step < steps && !matcher.is_terminated(); ++step) {
    ASSERT_NO_FATAL_FAILURE(expect_exact_mask(matcher)) << "step " << step;
    const TokenMask mask = matcher.next_token_mask();
    std::vector<std::int32_t> choices;
    for (std::size_t id = 0; id < grammar.tokenizer().vocab_size(); ++id)
      if ((mask[id / 32] >> (id % 32)) & 1u) choices.push_back(static_cast<std::int32_t>(id));
    ASSERT_TRUE(matcher.accept_token(choices[random() % choices.size()]));
  }
}

}  // namespace coreai::grammar
