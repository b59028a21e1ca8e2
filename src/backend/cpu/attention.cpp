#include "backend/cpu/attention.h"

#include <algorithm>

#include "backend/cpu/kernel_tables.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

constexpr std::int64_t kBlock = KvBuffer::kBlockPositions, kTile = KvBuffer::kTilePositions;
// Chunks per thread: enough that a late one costs little.
constexpr std::int64_t kChunksPerThread = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::int64_t padded(std::int64_t dim) {
  return ceil_div(dim, 16) * 16;
}
std::int64_t rows_per_chunk(const AttentionPlan& plan) {
  return plan.queries_per_tile * plan.heads_per_tile;
}
// Groups of heads that are computed together.
std::int64_t head_units(const AttentionArgs& args, const AttentionPlan& plan) {
  return args.heads / plan.heads_per_tile;
}

// The pieces that open_chunk() in attention_impl.h lays out.
std::size_t scratch_bytes(const AttentionArgs& args, std::int64_t rows) {
  const std::int64_t width = padded(args.value_dim);
  const std::int64_t floats = rows * (kBlock + 2 * width + args.head_dim) + args.head_dim * kTile + kTile * width + 16;
  return static_cast<std::size_t>(ceil_div(floats, 16)) * 64;
}

std::int64_t chunks_per_unit(const AttentionPlan& plan) {
  return ceil_div(plan.blocks, plan.blocks_per_chunk);
}

}  // namespace

std::int64_t attention_partial_stride(std::int64_t rows, std::int64_t width) {
  return ceil_div(rows * (width + 2), 16) * 16;
}

void check_attention(const AttentionArgs& args) {
  COREAI_INVARIANT(args.queries >= 0 && args.length >= 0);
  COREAI_INVARIANT(args.heads >= 1 && args.kv_heads >= 1 && args.heads % args.kv_heads == 0);
  COREAI_INVARIANT(args.head_dim >= 1 && args.head_dim <= kAttentionMaxDim);
  COREAI_INVARIANT(args.value_dim >= 1 && args.value_dim <= kAttentionMaxDim);
  COREAI_INVARIANT(args.window >= 0);
  COREAI_INVARIANT(args.batches >= 1 && (args.batches == 1 || args.keys == nullptr));
  if (args.keys == nullptr) {
    COREAI_INVARIANT(args.length == 0 || (args.strided.keys != nullptr && args.strided.values != nullptr));
    return;
  }
  COREAI_INVARIANT(args.values != nullptr);
  COREAI_INVARIANT(args.keys->role() == KvRole::kKey && args.values->role() != KvRole::kKey);
  COREAI_INVARIANT(args.length <= args.keys->positions() && args.length <= args.values->positions());
  const KvBuffer::Geometry& k = args.keys->geometry();
  const KvBuffer::Geometry& v = args.values->geometry();
  COREAI_INVARIANT(args.layer >= 0 && args.layer < k.layers && args.layer < v.layers);
  COREAI_INVARIANT(k.kv_heads == args.kv_heads && v.kv_heads == args.kv_heads);
  COREAI_INVARIANT(k.head_dim == args.head_dim && v.head_dim == args.value_dim);
}

AttentionArgs attention_batch(const AttentionArgs& args, std::int64_t batch) {
  AttentionArgs one = args;
  one.batches = 1;
  one.q += batch * args.batch_strides.q;
  one.out += batch * args.batch_strides.out;
  if (one.strided.keys != nullptr) one.strided.keys += batch * args.batch_strides.keys;
  if (one.strided.values != nullptr) one.strided.values += batch * args.batch_strides.values;
  if (one.mask != nullptr) one.mask += batch * args.batch_strides.mask;
  return one;
}

AttentionPlan plan_attention(const AttentionArgs& args, int threads) {
  check_attention(args);
  AttentionPlan plan;
  plan.blocks = ceil_div(args.length, kBlock);
  const std::int64_t group = args.heads / args.kv_heads;
  plan.heads_per_tile = group;
  while (plan.heads_per_tile > kAttentionMaxRows || group % plan.heads_per_tile != 0) --plan.heads_per_tile;
  const std::int64_t fitting = kAttentionMaxRows / plan.heads_per_tile;
  plan.queries_per_tile = std::max<std::int64_t>(1, std::min(fitting, args.queries));
  const std::int64_t units = head_units(args, plan);
  const std::int64_t tiles = ceil_div(args.queries, plan.queries_per_tile);
  const std::int64_t wanted = kChunksPerThread * threads;
  // A split call has small results, which a step can redo: so decode is split even within one block.
  plan.split = threads > 1 && tiles == 1 && plan.blocks > 0 && units < wanted && args.batches == 1;
  if (plan.split) {
    plan.blocks_per_chunk = std::max<std::int64_t>(1, plan.blocks / std::max<std::int64_t>(1, wanted / units));
    plan.chunks = static_cast<int>(units * chunks_per_unit(plan));
    plan.join_chunks = static_cast<int>(units);
    const std::int64_t stride = attention_partial_stride(rows_per_chunk(plan), padded(args.value_dim));
    plan.partial_floats = static_cast<std::size_t>(units * plan.blocks * stride);
  } else {
    // Few long tiles would leave threads without work at the end.
    while (plan.queries_per_tile > 4 &&
           args.batches * units * ceil_div(args.queries, plan.queries_per_tile) < (threads > 1 ? wanted : 1)) {
      plan.queries_per_tile = ceil_div(plan.queries_per_tile, 2);
    }
    plan.chunks = static_cast<int>(units * ceil_div(args.queries, plan.queries_per_tile));
  }
  plan.scratch_bytes = scratch_bytes(args, rows_per_chunk(plan));
  return plan;
}

AttentionRows attention_rows_of(const AttentionArgs& args, const AttentionPlan& plan, int chunk) {
  const std::int64_t units = head_units(args, plan);
  if (plan.split) return {0, args.queries, chunk * plan.heads_per_tile, plan.heads_per_tile};
  // The last queries see most: they go first, so that no long chunk is left for the end.
  const std::int64_t tiles = ceil_div(args.queries, plan.queries_per_tile);
  const std::int64_t tile = tiles - 1 - chunk / units;
  const std::int64_t first = tile * plan.queries_per_tile;
  return {first, std::min(plan.queries_per_tile, args.queries - first), chunk % units * plan.heads_per_tile,
          plan.heads_per_tile};
}

AttentionRows attention_partial_rows_of(const AttentionArgs& args, const AttentionPlan& plan, int chunk) {
  return attention_rows_of(args, plan, static_cast<int>(chunk / chunks_per_unit(plan)));
}

AttentionPartialRange attention_partial_of(const AttentionArgs& args, const AttentionPlan& plan, int chunk) {
  const std::int64_t stride = attention_partial_stride(rows_per_chunk(plan), padded(args.value_dim));
  const std::int64_t unit = chunk / chunks_per_unit(plan);
  const std::int64_t first = chunk % chunks_per_unit(plan) * plan.blocks_per_chunk;
  const std::int64_t count = std::min(plan.blocks_per_chunk, plan.blocks - first);
  return {static_cast<std::size_t>((unit * plan.blocks + first) * stride), static_cast<std::size_t>(count * stride)};
}

const AttentionKernels& attention_kernels(Isa isa) {
  return kernel_tables(isa).attention;
}

std::size_t attention_workspace_bytes(const AttentionPlan& plan) {
  return plan.scratch_bytes + plan.partial_floats * sizeof(float);
}

void run_attention(Isa isa, const AttentionArgs& args, const AttentionPlan& plan, std::byte* workspace) {
  const AttentionKernels& kernels = attention_kernels(isa);
  auto* partials = reinterpret_cast<float*>(workspace + plan.scratch_bytes);
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    if (plan.split) {
      kernels.partial(args, plan, chunk, partials + attention_partial_of(args, plan, chunk).offset, workspace);
      continue;
    }
    const AttentionRows rows = attention_rows_of(args, plan, chunk);
    kernels.rows(args, plan, chunk,
                 args.out + rows.first_query * args.out_row_stride + rows.first_head * args.out_head_stride,
                 args.out_row_stride, args.out_head_stride, workspace);
  }
  for (int chunk = 0; plan.split && chunk < plan.join_chunks; ++chunk) {
    const AttentionRows rows = attention_rows_of(args, plan, chunk);
    kernels.join(args, plan, chunk, partials,
                 args.out + rows.first_query * args.out_row_stride + rows.first_head * args.out_head_stride,
                 args.out_row_stride, args.out_head_stride);
  }
}

}  // namespace coreai::cpu
