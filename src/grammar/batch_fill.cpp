#include "coreai/grammar/batch_fill.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "coreai/base/error.h"
#include "coreai/base/thread_pool.h"
#include "coreai/grammar/token_bitmask.h"

namespace coreai::grammar {
namespace {

void check_rows(std::size_t rows, std::size_t words, std::size_t given, const char* where) {
  if (rows > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw InvalidArgumentError(fmt::format("{} rows", rows), where, "give fewer rows a call");
  if (given < rows * words)
    throw InvalidArgumentError(fmt::format("masks of {} words; {} rows of {} are needed", given, rows, words), where,
                               "give bitmask_words(vocab_size) words for each row");
}

std::size_t checked_words(std::span<const GrammarMatcher* const> matchers, const char* where) {
  std::size_t vocab = 0;
  for (std::size_t i = 0; i < matchers.size(); ++i) {
    if (matchers[i] == nullptr) throw InvalidArgumentError(fmt::format("matcher {} is null", i), where);
    const std::size_t size = matchers[i]->grammar().tokenizer().vocab_size();
    if (i == 0) vocab = size;
    if (size != vocab)
      throw InvalidArgumentError(fmt::format("matcher {} has a vocabulary of {}, the first one of {}", i, size, vocab),
                                 where, "fill matchers of one vocabulary in a call");
  }
  return bitmask_words(vocab);
}

}  // namespace

std::vector<FilledRow> fill_next_token_bitmasks(std::span<const GrammarMatcher* const> matchers,
                                                std::span<std::uint32_t> masks, ThreadPool& pool) {
  constexpr const char* kWhere = "fill_next_token_bitmasks";
  const std::size_t words = checked_words(matchers, kWhere);
  check_rows(matchers.size(), words, masks.size(), kWhere);
  std::vector<FilledRow> rows(matchers.size());
  const auto fill = [&](int index) {
    const auto i = static_cast<std::size_t>(index);
    const auto mask = masks.subspan(i * words, words);
    try {
      rows[i].kind = matchers[i]->fill_next_token_bitmask(mask);
    } catch (...) {
      std::ranges::fill(mask, 0u);
      rows[i].error = std::current_exception();
    }
  };
  pool.parallel_for(static_cast<int>(matchers.size()), fill);
  return rows;
}

std::vector<DraftNode> fill_draft_tree_bitmasks(const GrammarMatcher& matcher, std::span<const std::int32_t> parents,
                                                std::span<const std::int32_t> tokens, std::span<std::uint32_t> masks) {
  constexpr const char* kWhere = "fill_draft_tree_bitmasks";
  const TokenizerInfo& tokenizer = matcher.grammar().tokenizer();
  const std::size_t words = bitmask_words(tokenizer.vocab_size()), count = tokens.size();
  if (parents.size() != count)
    throw InvalidArgumentError(fmt::format("{} parents for {} tokens", parents.size(), count), kWhere);
  check_rows(count, words, masks.size(), kWhere);
  for (std::size_t i = 0; i < count; ++i) {
    if (parents[i] < -1 || parents[i] >= static_cast<std::int64_t>(i))
      throw InvalidArgumentError(fmt::format("node {} has the parent {}", i, parents[i]), kWhere,
                                 "give -1 or the index of a node before it");
    tokenizer.token_bytes(tokens[i]);  // checks the id
  }
  std::vector<DraftNode> nodes(count);
  // A fork shares the way behind it, so that one for each node costs no more than walking to and fro.
  std::vector<std::optional<GrammarMatcher>> after(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto mask = masks.subspan(i * words, words);
    std::ranges::fill(mask, 0u);
    const GrammarMatcher* before = &matcher;
    if (parents[i] >= 0) {
      const auto& parent = after[static_cast<std::size_t>(parents[i])];
      if (!parent) continue;
      before = &*parent;
    }
    GrammarMatcher fork = before->fork();
    if (!fork.accept_token(tokens[i])) continue;
    nodes[i] = {true, fork.fill_next_token_bitmask(mask)};
    after[i].emplace(std::move(fork));
  }
  return nodes;
}

}  // namespace coreai::grammar
