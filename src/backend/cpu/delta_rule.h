// The gated delta rule (linear attention with a forgetting state): per head a state S [key_dim, value_dim] that every
// token decays, reads and corrects:
//   S = S exp(g);  d = (v - k S) beta;  S = S + k d;  out = q S
// in f32 by the order of the composite's body. Columns of S are independent of each other, so that heads and blocks of
// columns are shared out among threads and no bit depends on their number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coreai/base/dtype.h"

namespace coreai::cpu {

// Elements [batch, head, token, ..] by strides in elements; what follows is contiguous.
template <typename T>
struct TokenArray {
  T* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, token_stride = 0;
  T* at(std::int64_t batch, std::int64_t head, std::int64_t token) const {
    return data + batch * batch_stride + head * head_stride + token * token_stride;
  }
};

// A state [batch, head, key_dim, value_dim]; a head is contiguous.
template <typename T>
struct HeadStates {
  T* data = nullptr;
  DType dtype = DType::kF32;  // or f16 or bf16
  std::int64_t batch_stride = 0, head_stride = 0;
};

struct DeltaRuleArgs {
  TokenArray<const float> query, key, value, decay, beta;  // decay: g
  TokenArray<float> out;
  HeadStates<const std::byte> state_in;
  HeadStates<std::byte> state_out;  // may be the same memory
  std::int64_t batch = 0, heads = 0, tokens = 0, key_dim = 0, value_dim = 0;
  bool normalise = false;  // query and key to x / sqrt(sum x^2 + eps)
  float eps = 0, scale = 1;
};

// Columns of a state that are carried through all tokens at once.
inline constexpr std::int64_t kDeltaColumns = 32;
// Tokens whose query, key and decay are prepared together: they and the columns of a state fit into the first cache.
inline constexpr std::int64_t kDeltaTokens = 8;
std::int64_t delta_units(const DeltaRuleArgs& args);
// Units of a chunk when about `chunks` are wanted: whole heads where there are enough, which prepare their tokens once.
std::int64_t delta_units_per_chunk(const DeltaRuleArgs& args, std::int64_t chunks);
// Of a thread inside a kernel.
std::size_t delta_scratch_bytes(const DeltaRuleArgs& args);

// Units [begin, end) of delta_units(): all tokens of as many blocks of columns, the blocks of a head in a row.
using DeltaRuleKernel = void (*)(const DeltaRuleArgs& args, std::int64_t begin, std::int64_t end, float* scratch);

}  // namespace coreai::cpu
