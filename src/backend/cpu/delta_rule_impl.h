// The gated delta rule; included once per level after row_impl.h.
#pragma once

#include <cmath>

#include "backend/cpu/delta_rule.h"

namespace coreai::cpu {
namespace {

// x / sqrt(sum x^2 + eps) * scale, or x * scale.
void delta_vector(const DeltaRuleArgs& a, const float* x, float scale, float* out) {
  V factor = splat(1.0f);
  if (a.normalise) {
    V16 squares = splat16(0.0f);
    each_part(a.key_dim, [&](int k, std::int64_t i, int n) {
      const V s = load_part(x + i, n);
      squares.part[k] = fma(s, s, squares.part[k]);
    });
    factor = splat(1.0f / square_root(sum16(squares) + a.eps));
  }
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

void delta_rule_kernel(const DeltaRuleArgs& a, std::int64_t begin, std::int64_t end, float* scratch) {
  const std::int64_t blocks = (a.value_dim + kDeltaColumns - 1) / kDeltaColumns;
  float *state = scratch, *query = state + a.key_dim * kDeltaColumns, *key = query + a.key_dim;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t batch = unit / blocks / a.heads, head = unit / blocks % a.heads;
    const std::int64_t column = unit % blocks * kDeltaColumns;
    const std::int64_t columns = a.value_dim - column < kDeltaColumns ? a.value_dim - column : kDeltaColumns;
    const auto lanes = [&](int p) {
      const std::int64_t left = columns - p * V::kLanes;
      return static_cast<int>(left < 0 ? 0 : left < V::kLanes ? left : V::kLanes);
    };
    const auto row = [&](const auto& states, std::int64_t i) {
      const std::int64_t element = batch * states.batch_stride + head * states.head_stride + i * a.value_dim + column;
      return states.data + element * (states.dtype == DType::kF32 ? 4 : 2);
    };
    for (std::int64_t i = 0; i < a.key_dim; ++i) {
      float* to = state + i * kDeltaColumns;
      for (std::int64_t c = columns; c < kDeltaColumns; ++c) to[c] = 0.0f;
      to_f32_kernel(a.state_in.dtype, row(a.state_in, i), to, columns);
    }
    for (std::int64_t t = 0; t < a.tokens; ++t) {
      delta_vector(a, a.query.at(batch, head, t), a.scale, query);
      delta_vector(a, a.key.at(batch, head, t), 1.0f, key);
      const float* value = a.value.at(batch, head, t) + column;
      DeltaBlock block;
      for (int p = 0; p < kDeltaParts; ++p)
        block.part[p] = lanes(p) ? load_part(value + p * V::kLanes, lanes(p)) : zero();
      delta_token(state, a.key_dim, query, key, std::exp(*a.decay.at(batch, head, t)), *a.beta.at(batch, head, t),
                  block);
      float* out = a.out.at(batch, head, t) + column;
      for (int p = 0; p < kDeltaParts; ++p) {
        if (lanes(p)) store_part(out + p * V::kLanes, block.part[p], lanes(p));
      }
    }
    for (std::int64_t i = 0; i < a.key_dim; ++i)
      from_f32_kernel(a.state_out.dtype, state + i * kDeltaColumns, row(a.state_out, i), columns);
  }
}

}  // namespace
}  // namespace coreai::cpu
