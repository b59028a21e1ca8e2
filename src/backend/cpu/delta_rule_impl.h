// The gated delta rule; included once per level after row_impl.h.
#pragma once

#include <cmath>

#include "backend/cpu/delta_rule.h"

namespace coreai::cpu {
namespace {

// x / sqrt(sum x^2 + eps) * scale, or x * scale.
void delta_vector(const DeltaRuleArgs& a, const float* x, float scale, float* out) {
  const V factor = splat(a.normalise ? 1.0f / square_root(sum_of_squares(x, a.key_dim) + a.eps) : 1.0f);
  each_part(a.key_dim,
            [&](int, std::int64_t i, int n) { store_part(out + i, load_part(x + i, n) * factor * splat(scale), n); });
}

constexpr int kDeltaParts = static_cast<int>(kDeltaColumns) / V::kLanes;
struct DeltaBlock {
  V part[kDeltaParts];
};

// One token of kDeltaColumns columns: `value` becomes the output.
inline void delta_token(float* state, std::int64_t key_dim, const float* query, const float* key, float decay,
                        float beta, DeltaBlock& value) {
  const V kept = splat(decay), step = splat(beta);
  DeltaBlock seen, out;
  for (V& part : seen.part) part = zero();
  for (V& part : out.part) part = zero();
  for (std::int64_t i = 0; i < key_dim; ++i) {
    const V k = splat(key[i]);
    for (int p = 0; p < kDeltaParts; ++p)
      seen.part[p] = fma(load(state + i * kDeltaColumns + p * V::kLanes) * kept, k, seen.part[p]);
  }
  for (int p = 0; p < kDeltaParts; ++p) value.part[p] = (value.part[p] - seen.part[p]) * step;
  for (std::int64_t i = 0; i < key_dim; ++i) {
    const V k = splat(key[i]), q = splat(query[i]);
    for (int p = 0; p < kDeltaParts; ++p) {
      float* at = state + i * kDeltaColumns + p * V::kLanes;
      const V s = fma(k, value.part[p], load(at) * kept);
      store(at, s);
      out.part[p] = fma(s, q, out.part[p]);
    }
  }
  value = out;
}

// Columns [column, + columns) of a head.
struct DeltaColumns {
  std::int64_t batch, head, column, columns;
  template <typename States>
  auto* row(const States& states, std::int64_t i, std::int64_t value_dim) const {
    const std::int64_t element = batch * states.batch_stride + head * states.head_stride + i * value_dim + column;
    return states.data + element * (states.dtype == DType::kF32 ? 4 : 2);
  }
  int lanes(int part) const {
    const std::int64_t left = columns - part * V::kLanes;
    return static_cast<int>(left < 0 ? 0 : left < V::kLanes ? left : V::kLanes);
  }
};

inline DeltaColumns delta_columns(const DeltaRuleArgs& a, std::int64_t head, std::int64_t block) {
  const std::int64_t column = block * kDeltaColumns, left = a.value_dim - column;
  return {head / a.heads, head % a.heads, column, left < kDeltaColumns ? left : kDeltaColumns};
}

// What the tokens of a tile have in common for all columns.
struct DeltaTile {
  float *query, *key, *decay;
};

void delta_prepare(const DeltaRuleArgs& a, std::int64_t head, std::int64_t first, std::int64_t count,
                   const DeltaTile& tile) {
  const std::int64_t batch = head / a.heads, h = head % a.heads;
  for (std::int64_t t = 0; t < count; ++t) {
    delta_vector(a, a.query.at(batch, h, first + t), a.scale, tile.query + t * a.key_dim);
    delta_vector(a, a.key.at(batch, h, first + t), 1.0f, tile.key + t * a.key_dim);
    tile.decay[t] = std::exp(*a.decay.at(batch, h, first + t));
  }
}

void delta_tile(const DeltaRuleArgs& a, const DeltaColumns& at, std::int64_t first, std::int64_t count,
                const DeltaTile& tile, float* state) {
  for (std::int64_t t = 0; t < count; ++t) {
    const float* value = a.value.at(at.batch, at.head, first + t) + at.column;
    DeltaBlock block;
    for (int p = 0; p < kDeltaParts; ++p)
      block.part[p] = at.lanes(p) ? load_part(value + p * V::kLanes, at.lanes(p)) : zero();
    delta_token(state, a.key_dim, tile.query + t * a.key_dim, tile.key + t * a.key_dim, tile.decay[t],
                *a.beta.at(at.batch, at.head, first + t), block);
    float* out = a.out.at(at.batch, at.head, first + t) + at.column;
    for (int p = 0; p < kDeltaParts; ++p) {
      if (at.lanes(p)) store_part(out + p * V::kLanes, block.part[p], at.lanes(p));
    }
  }
}

// Blocks [begin, end) of a head, tile after tile of tokens: what a tile prepares serves all of them.
void delta_head(const DeltaRuleArgs& a, std::int64_t head, std::int64_t begin, std::int64_t end, float* scratch) {
  const std::int64_t state_size = a.key_dim * kDeltaColumns;
  float* const query = scratch + (end - begin) * state_size;
  const DeltaTile tile{query, query + kDeltaTokens * a.key_dim, query + 2 * kDeltaTokens * a.key_dim};
  for (std::int64_t b = begin; b < end; ++b) {
    const DeltaColumns at = delta_columns(a, head, b);
    for (std::int64_t i = 0; i < a.key_dim; ++i) {
      float* to = scratch + (b - begin) * state_size + i * kDeltaColumns;
      for (std::int64_t c = at.columns; c < kDeltaColumns; ++c) to[c] = 0.0f;
      to_f32_kernel(a.state_in.dtype, at.row(a.state_in, i, a.value_dim), to, at.columns);
    }
  }
  for (std::int64_t t = 0; t < a.tokens; t += kDeltaTokens) {
    const std::int64_t count = a.tokens - t < kDeltaTokens ? a.tokens - t : kDeltaTokens;
    delta_prepare(a, head, t, count, tile);
    for (std::int64_t b = begin; b < end; ++b)
      delta_tile(a, delta_columns(a, head, b), t, count, tile, scratch + (b - begin) * state_size);
  }
  for (std::int64_t b = begin; b < end; ++b) {
    const DeltaColumns at = delta_columns(a, head, b);
    for (std::int64_t i = 0; i < a.key_dim; ++i) {
      from_f32_kernel(a.state_out.dtype, scratch + (b - begin) * state_size + i * kDeltaColumns,
                      at.row(a.state_out, i, a.value_dim), at.columns);
    }
  }
}

void delta_rule_kernel(const DeltaRuleArgs& a, std::int64_t begin, std::int64_t end, float* scratch) {
  const std::int64_t blocks = (a.value_dim + kDeltaColumns - 1) / kDeltaColumns;
  while (begin < end) {
    const std::int64_t head = begin / blocks, first = begin - head * blocks;
    const std::int64_t last = end - head * blocks < blocks ? end - head * blocks : blocks;
    delta_head(a, head, first, last, scratch);
    begin += last - first;
  }
}

}  // namespace
}  // namespace coreai::cpu
