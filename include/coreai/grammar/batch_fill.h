// The masks of many texts, or of the nodes of a draft tree, in one call.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "coreai/grammar/grammar_matcher.h"

namespace coreai {
class ThreadPool;
}

namespace coreai::grammar {

struct FilledRow {
  MaskKind kind = MaskKind::kTerminated;
  std::exception_ptr error{};  // what this row's matcher threw; its mask then is empty, and `kind` says nothing
};

// Row i of `masks` (row-major [n, bitmask_words(vocab_size)]) is the mask that follows matchers[i], filled on the
// threads of `pool`, the caller's included. All matchers have the same vocabulary size; one may stand in several rows,
// but none may change during the call. Words beyond the n rows are left alone. Throws InvalidArgumentError before
// anything is written: a null matcher, another vocabulary size, too small `masks`.
std::vector<FilledRow> fill_next_token_bitmasks(std::span<const GrammarMatcher* const> matchers,
                                                std::span<std::uint32_t> masks, ThreadPool& pool);

struct DraftNode {
  bool allowed = false;  // the token may come there, and so may all before it
  MaskKind kind = MaskKind::kTerminated;
};

// Node i of a draft tree is the token tokens[i] after node parents[i], or after the matcher's text where that is -1;
// parents come first. Row i of `masks` (row-major [n, bitmask_words(vocab_size)]) is the mask after node i; it is empty
// where the node is not allowed. Words beyond are left alone. The matcher is read only. Throws InvalidArgumentError
// before anything is written: spans of different lengths, a parent that does not come first, no such token, too small
// `masks`; UnsupportedError as the matcher does, rows may be written then.
std::vector<DraftNode> fill_draft_tree_bitmasks(const GrammarMatcher& matcher, std::span<const std::int32_t> parents,
                                                std::span<const std::int32_t> tokens, std::span<std::uint32_t> masks);

}  // namespace coreai::grammar
