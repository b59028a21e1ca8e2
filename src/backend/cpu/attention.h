// Scaled dot-product attention over a KvBuffer or over strided f32 arrays, with grouped heads, causal or not, sliding
// window and sinks.
//
// A row (one query of one head) is computed in blocks of 256 positions from 0, each with its own maximum, sum and
// weighted values, joined in ascending order. So its bits do not depend on the number of queries, chunks or threads,
// nor on the instruction set. Method: online softmax, Milakov and Gimelshein 2018 (arXiv 1805.02867).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/isa.h"
#include "backend/cpu/kv_buffer.h"

namespace coreai::cpu {

// f32 keys and values with strides in elements; the last dimension is contiguous.
struct StridedKv {
  const float* keys = nullptr;
  std::int64_t key_position_stride = 0, key_head_stride = 0;
  const float* values = nullptr;
  std::int64_t value_position_stride = 0, value_head_stride = 0;
};

// Elements from one batch to the next.
struct AttentionBatchStrides {
  std::int64_t q = 0, out = 0, keys = 0, values = 0, mask = 0;
};

struct AttentionArgs {
  // f32 [queries, heads, head_dim], strides in elements.
  const float* q = nullptr;
  std::int64_t q_row_stride = 0, q_head_stride = 0;
  // f32 [queries, heads, value_dim].
  float* out = nullptr;
  std::int64_t out_row_stride = 0, out_head_stride = 0;

  // Either both buffers (keys with role kKey, values with role kValue, same dtype or not) ...
  const KvBuffer* keys = nullptr;
  const KvBuffer* values = nullptr;
  std::int64_t layer = 0;
  // ... or, when keys is null, arrays.
  StridedKv strided;

  std::int64_t queries = 0, heads = 0, kv_heads = 0;  // heads is a multiple of kv_heads
  std::int64_t head_dim = 0, value_dim = 0;
  std::int64_t length = 0;  // s: cached and new positions
  float scale = 1.0f;
  bool causal = true;            // query i sees k <= i + s - q
  std::int64_t window = 0;       // > 0: and k > i + s - q - window
  const float* sinks = nullptr;  // one logit per head that takes weight and is dropped; may be null
  const float* mask = nullptr;   // added to the scaled scores: f32, strides below; may be null
  std::int64_t mask_row_stride = 0, mask_head_stride = 0;  // last dimension (positions) contiguous

  // Several calls over arrays that differ in where they begin; all else is of each.
  std::int64_t batches = 1;
  AttentionBatchStrides batch_strides;
};
// One of them.
AttentionArgs attention_batch(const AttentionArgs& args, std::int64_t batch);

// How a call is cut. `split`: step 1 computes `chunks` partial results, step 2 joins them in `join_chunks` chunks;
// otherwise step 1 writes the output itself and there is no step 2.
struct AttentionPlan {
  bool split = false;
  int chunks = 0;  // of one batch; several batches are never split
  int join_chunks = 0;
  std::int64_t blocks = 0;            // blocks of 256 positions of the call
  std::int64_t blocks_per_chunk = 0;  // split
  std::int64_t queries_per_tile = 0;
  std::int64_t heads_per_tile = 0;  // a divisor of the group's heads
  std::size_t partial_floats = 0;   // split: size of the shared partial results
  std::size_t scratch_bytes = 0;    // private memory per worker, 64-byte aligned
};

inline constexpr std::int64_t kAttentionMaxDim = 512;
inline constexpr std::int64_t kAttentionMaxRows = 72;  // rows of a chunk

// Host arithmetic only. `threads` sets how finely the work is cut, never a bit of the result.
AttentionPlan plan_attention(const AttentionArgs& args, int threads);

struct AttentionRows {
  std::int64_t first_query, queries, first_head, heads;
};
// The rows that a chunk of an unsplit plan or a join chunk writes.
AttentionRows attention_rows_of(const AttentionArgs& args, const AttentionPlan& plan, int chunk);
// The rows of which a chunk of a split plan computes a part.
AttentionRows attention_partial_rows_of(const AttentionArgs& args, const AttentionPlan& plan, int chunk);
// The part of the partial results that a chunk of a split plan writes, in floats; one contiguous piece.
struct AttentionPartialRange {
  std::size_t offset, count;
};
AttentionPartialRange attention_partial_of(const AttentionArgs& args, const AttentionPlan& plan, int chunk);

// Floats of one block's partial result of `rows` rows.
std::int64_t attention_partial_stride(std::int64_t rows, std::int64_t width);

// Invariants (checked): extents fit, roles fit, 1 <= head_dim, value_dim <= 512, length <= positions of the buffers.
void check_attention(const AttentionArgs& args);

struct AttentionKernels {
  // Unsplit plan. Row r, head h of the chunk go to out + (r - first_query) * out_row_stride + (h - first_head) *
  // out_head_stride; pass args.out + ... to write in place or scratch to publish later.
  void (*rows)(const AttentionArgs& args, const AttentionPlan& plan, int chunk, float* out, std::int64_t out_row_stride,
               std::int64_t out_head_stride, std::byte* scratch);
  // Split plan: writes attention_partial_of(chunk).count floats from `partial` on.
  void (*partial)(const AttentionArgs& args, const AttentionPlan& plan, int chunk, float* partial, std::byte* scratch);
  // Split plan: joins the rows of attention_rows_of(chunk); `partials` is the whole shared array; out as for rows.
  void (*join)(const AttentionArgs& args, const AttentionPlan& plan, int chunk, const float* partials, float* out,
               std::int64_t out_row_stride, std::int64_t out_head_stride);
};
const AttentionKernels& attention_kernels(Isa isa);

// All chunks one after the other on the calling thread. `workspace` of attention_workspace_bytes() is 64-byte aligned.
std::size_t attention_workspace_bytes(const AttentionPlan& plan);
void run_attention(Isa isa, const AttentionArgs& args, const AttentionPlan& plan, std::byte* workspace);

}  // namespace coreai::cpu
