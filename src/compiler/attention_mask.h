// Masks of attention that a program computes from ranges or positions: read as a rule on the distance between a query
// and a key, so that every way of writing one rule is the same mask and every other rule is none.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph.h"

namespace coreai::compiler {

// Keys at or before the query are seen, the last query beside the last key; with a window, only the nearest `window`.
struct CausalMask {
  std::int64_t window = 0;                     // 0: no bound
  std::vector<std::size_t> increasing_inputs;  // whose elements must increase for this to hold
};

// Of a tensor that is added to scores [.., queries, keys]: 0 where a key is seen, very negative elsewhere.
std::optional<CausalMask> read_causal_bias(Graph& g, ValueId bias, Expr queries, Expr keys);
// Of a boolean tensor, true (or false) where a key is seen.
std::optional<CausalMask> read_causal_mask(Graph& g, ValueId mask, bool seen, Expr queries, Expr keys);
// Whether a score of that value leaves its key without weight: exp of it is 0 in f32 beside any sane score.
bool hides_a_key(float score);

}  // namespace coreai::compiler
