// Attention over blocks of 256 positions; included once per level after simd_*.h and simd_math.h.
//
// Order of a row's arithmetic: score = fma chain over head_dim of (scale * q) and k; per block the maximum, the
// exponentials, their sum in 16 lanes by position, and per dimension an fma chain over the positions the row sees,
// ascending; then the blocks joined in ascending order. Nothing of it depends on which rows are computed together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/attention.h"

// Loops over arrays that must become registers: left to itself GCC 12 keeps some of them in memory.
#if defined(__clang__)
#define COREAI_UNROLL _Pragma("unroll")
#else
#define COREAI_UNROLL _Pragma("GCC unroll 8")
#endif

namespace coreai::cpu {
namespace {

constexpr std::int64_t kBlock = KvBuffer::kBlockPositions, kTile = KvBuffer::kTilePositions;
constexpr int kGroupRows = 6;   // rows that share the loads of a tile in registers
constexpr int kDirectRows = 6;  // up to here 16-bit elements are widened in registers, above it once per tile in L1
constexpr int kMaxRows = static_cast<int>(kAttentionMaxRows);

struct F16 {
  std::uint16_t raw;
};
struct BF16 {
  std::uint16_t raw;
};
inline V load_element(const float* p) {
  return load(p);
}
inline V load_element(const F16* p) {
  return load_f16(&p->raw);
}
inline V load_element(const BF16* p) {
  return load_bf16(&p->raw);
}

// p[r][0..32) = sum over d of q[r][d] * k[d][0..32), for kRows rows; p's rows are kBlock apart. `next` is memory to
// prefetch, `next_step` bytes per d; may be null.
template <typename T, int kRows>
void score_tile(const float* q, std::int64_t dim, const T* k, float* p, const char* next, std::int64_t next_step) {
  constexpr int kWanted = kRows <= 3 ? 4 : 2;
  constexpr int kWide = kWanted * V::kLanes <= kTile ? kWanted : static_cast<int>(kTile) / V::kLanes;
  for (std::int64_t c = 0; c < kTile; c += kWide * V::kLanes) {
    V sum[kRows][kWide];
    COREAI_UNROLL for (int r = 0; r < kRows; ++r) {
      COREAI_UNROLL for (int j = 0; j < kWide; ++j) sum[r][j] = zero();
    }
    const T* at = k + c;
    const float* x = q;
    for (std::int64_t d = 0; d < dim; ++d, at += kTile, ++x) {
      if (next != nullptr) {
        prefetch(next);
        for (std::int64_t offset = 64; offset < next_step; offset += 64) prefetch(next + offset);
        next += next_step;
      }
      if constexpr (kRows < kWide) {
        V row[kRows];
        COREAI_UNROLL for (int r = 0; r < kRows; ++r) row[r] = splat(x[r * dim]);
        COREAI_UNROLL for (int j = 0; j < kWide; ++j) {
          const V key = load_element(at + j * V::kLanes);
          COREAI_UNROLL for (int r = 0; r < kRows; ++r) sum[r][j] = fma(row[r], key, sum[r][j]);
        }
      } else {
        V key[kWide];
        COREAI_UNROLL for (int j = 0; j < kWide; ++j) key[j] = load_element(at + j * V::kLanes);
        COREAI_UNROLL for (int r = 0; r < kRows; ++r) {
          const V row = splat(x[r * dim]);
          COREAI_UNROLL for (int j = 0; j < kWide; ++j) sum[r][j] = fma(row, key[j], sum[r][j]);
        }
      }
    }
    next = nullptr;
    COREAI_UNROLL for (int r = 0; r < kRows; ++r) {
      COREAI_UNROLL for (int j = 0; j < kWide; ++j) store(p + r * kBlock + c + j * V::kLanes, sum[r][j]);
    }
  }
}

// kWide vectors of dimensions: acc[r][...] += sum over `count` positions of p[r][position] * v[position][...].
template <typename T, int kRows, int kWide>
void weigh_columns(const float* p, const T* v, std::int64_t v_stride, std::int64_t count, float* acc,
                   std::int64_t acc_stride, const char* next, std::int64_t next_step) {
  V sum[kRows][kWide];
  COREAI_UNROLL for (int r = 0; r < kRows; ++r) {
    COREAI_UNROLL for (int j = 0; j < kWide; ++j) sum[r][j] = load(acc + r * acc_stride + j * V::kLanes);
  }
  for (std::int64_t i = 0; i < count; ++i, v += v_stride, ++p) {
    if (next != nullptr) {
      prefetch(next);
      for (std::int64_t offset = 64; offset < next_step; offset += 64) prefetch(next + offset);
      next += next_step;
    }
    if constexpr (kRows < kWide) {
      V weight[kRows];
      COREAI_UNROLL for (int r = 0; r < kRows; ++r) weight[r] = splat(p[r * kBlock]);
      COREAI_UNROLL for (int j = 0; j < kWide; ++j) {
        const V value = load_element(v + j * V::kLanes);
        COREAI_UNROLL for (int r = 0; r < kRows; ++r) sum[r][j] = fma(weight[r], value, sum[r][j]);
      }
    } else {
      V value[kWide];
      COREAI_UNROLL for (int j = 0; j < kWide; ++j) value[j] = load_element(v + j * V::kLanes);
      COREAI_UNROLL for (int r = 0; r < kRows; ++r) {
        const V weight = splat(p[r * kBlock]);
        COREAI_UNROLL for (int j = 0; j < kWide; ++j) sum[r][j] = fma(weight, value[j], sum[r][j]);
      }
    }
  }
  COREAI_UNROLL for (int r = 0; r < kRows; ++r) {
    COREAI_UNROLL for (int j = 0; j < kWide; ++j) store(acc + r * acc_stride + j * V::kLanes, sum[r][j]);
  }
}

// All `width` dimensions (a multiple of 16); acc's rows are `width` apart.
template <typename T, int kRows>
void weigh_values(const float* p, const T* v, std::int64_t v_stride, std::int64_t count, float* acc, std::int64_t width,
                  const char* next, std::int64_t next_step) {
  constexpr int kWide = kRows <= 3 ? 4 : 2;
  std::int64_t d = 0;
  for (; d + kWide * V::kLanes <= width; d += kWide * V::kLanes, next = nullptr) {
    weigh_columns<T, kRows, kWide>(p, v + d, v_stride, count, acc + d, width, next, next_step);
  }
  for (; d < width; d += V::kLanes, next = nullptr) {
    weigh_columns<T, kRows, 1>(p, v + d, v_stride, count, acc + d, width, next, next_step);
  }
}

template <typename T>
using ScoreFn = void (*)(const float*, std::int64_t, const T*, float*, const char*, std::int64_t);
template <typename T>
using WeighFn = void (*)(const float*, const T*, std::int64_t, std::int64_t, float*, std::int64_t, const char*,
                         std::int64_t);
template <typename T>
constexpr ScoreFn<T> kScore[kGroupRows + 1] = {nullptr,          score_tile<T, 1>, score_tile<T, 2>, score_tile<T, 3>,
                                               score_tile<T, 4>, score_tile<T, 5>, score_tile<T, 6>};
template <typename T>
constexpr WeighFn<T> kWeigh[kGroupRows + 1] = {nullptr,
                                               weigh_values<T, 1>,
                                               weigh_values<T, 2>,
                                               weigh_values<T, 3>,
                                               weigh_values<T, 4>,
                                               weigh_values<T, 5>,
                                               weigh_values<T, 6>};

template <typename T>
void widen(const T* in, float* out, std::int64_t count) {  // count is a multiple of 16
  for (std::int64_t i = 0; i < count; i += V::kLanes) store(out + i, load_element(in + i));
}
// One row of `count` elements, padded with zeros to `width`.
template <typename T>
void widen_row(const T* in, float* out, std::int64_t count, std::int64_t width) {
  const std::int64_t whole = count / 16 * 16;
  widen(in, out, whole);
  if (whole == width) return;
  T rest[16];
  std::memset(rest, 0, sizeof rest);
  std::memcpy(rest, in + whole, static_cast<std::size_t>(count - whole) * sizeof(T));
  widen(rest, out + whole, 16);
}

inline std::int64_t low(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
inline std::int64_t high(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

// The rows of a chunk that share one kv head, and their private memory.
struct Chunk {
  const AttentionArgs* args;
  AttentionRows rows;
  std::int64_t kv_head;
  int count;           // rows.queries * rows.heads; row r is query r / rows.heads, head r % rows.heads
  std::int64_t width;  // value_dim in whole groups of 16
  bool direct;
  float *q, *p, *acc, *key_tile, *value_tile, *joined;
  std::int64_t lo[kMaxRows], hi[kMaxRows];  // positions the row sees
  float maximum[kMaxRows], sum[kMaxRows];   // of the current block
};

void open_chunk(const AttentionArgs& args, const AttentionRows& rows, std::byte* scratch, Chunk& c) {
  c.args = &args;
  c.rows = rows;
  c.kv_head = rows.first_head / (args.heads / args.kv_heads);
  c.count = static_cast<int>(rows.queries * rows.heads);
  c.width = (args.value_dim + 15) / 16 * 16;
  c.direct = args.keys != nullptr && c.count <= kDirectRows && args.value_dim % 16 == 0;
  // The same pieces as attention_scratch_bytes() in attention.cpp counts.
  float* at = reinterpret_cast<float*>(scratch);
  c.p = at;
  at += c.count * kBlock;
  c.acc = at;
  at += c.count * c.width;
  c.joined = at;
  at += c.count * c.width;
  c.key_tile = at;
  at += args.head_dim * kTile;
  c.value_tile = at;
  at += kTile * c.width;
  c.q = at;
  const std::int64_t shift = args.length - args.queries;
  for (int r = 0; r < c.count; ++r) {
    const std::int64_t query = rows.first_query + r / rows.heads, head = rows.first_head + r % rows.heads;
    const float* from = args.q + query * args.q_row_stride + head * args.q_head_stride;
    float* to = c.q + r * args.head_dim;
    for (std::int64_t d = 0; d < args.head_dim; d += V::kLanes) {
      const int n = static_cast<int>(low(V::kLanes, args.head_dim - d));
      store_part(to + d, load_part(from + d, n) * splat(args.scale), n);
    }
    c.hi[r] = args.causal ? high(0, low(args.length, query + shift + 1)) : args.length;
    c.lo[r] = args.window > 0 ? low(c.hi[r], high(0, query + shift - args.window + 1)) : 0;
  }
}

// Calls fn with the buffer's elements of one block as a typed pointer.
template <typename Fn>
void with_elements(const KvBuffer& buffer, std::int64_t layer, std::int64_t head, std::int64_t block, Fn fn) {
  const std::byte* data = buffer.head_block(layer, head, block);
  switch (buffer.dtype()) {
    case DType::kF16:
      return fn(reinterpret_cast<const F16*>(data));
    case DType::kBF16:
      return fn(reinterpret_cast<const BF16*>(data));
    default:
      return fn(reinterpret_cast<const float*>(data));
  }
}

const char* block_address(const KvBuffer* buffer, std::int64_t layer, std::int64_t head, std::int64_t block) {
  if (buffer == nullptr || block * kBlock >= buffer->positions()) return nullptr;
  return reinterpret_cast<const char*>(buffer->head_block(layer, head, block));
}
std::int64_t bytes_per_element(const KvBuffer& buffer) {
  return buffer.dtype() == DType::kF32 ? 4 : 2;
}

// Scores of the rows that see something of the tile at absolute position `first`.
template <typename T>
void score_rows(const Chunk& c, const T* tile, std::int64_t first, const char* next, std::int64_t next_step) {
  const std::int64_t dim = c.args->head_dim;
  for (int r = 0; r < c.count; r += kGroupRows) {
    const int n = static_cast<int>(low(kGroupRows, c.count - r));
    std::int64_t lo = c.lo[r], hi = c.hi[r];
    for (int i = r + 1; i < r + n; ++i) {
      lo = low(lo, c.lo[i]);
      hi = high(hi, c.hi[i]);
    }
    if (hi <= first || lo >= first + kTile) continue;
    kScore<T>[n](c.q + r * dim, dim, tile, c.p + r * kBlock + first % kBlock, next, next_step);
    next = nullptr;
  }
}

// Weighted values of the tile's positions [begin, end), absolute; `v` is position `begin`'s row.
template <typename T>
void weigh_rows(const Chunk& c, const T* v, std::int64_t v_stride, std::int64_t begin, std::int64_t end,
                const char* next, std::int64_t next_step) {
  const auto weigh = [&](int r, int n, std::int64_t from, std::int64_t to, const char* ahead) {
    if (from >= to) return;
    kWeigh<T>[n](c.p + r * kBlock + from % kBlock, v + (from - begin) * v_stride, v_stride, to - from,
                 c.acc + r * c.width, c.width, ahead, next_step);
  };
  for (int r = 0; r < c.count; r += kGroupRows) {
    const int n = static_cast<int>(low(kGroupRows, c.count - r));
    // What all rows of the group see; the rest, a few positions at a diagonal, row by row.
    std::int64_t lo = begin, hi = end;
    for (int i = r; i < r + n; ++i) {
      lo = high(lo, c.lo[i]);
      hi = low(hi, c.hi[i]);
    }
    if (lo >= hi) lo = hi = end;
    for (int i = r; i < r + n; ++i) weigh(i, 1, high(begin, c.lo[i]), low(lo, c.hi[i]), nullptr);
    weigh(r, n, lo, hi, next);
    next = nullptr;
    for (int i = r; i < r + n && hi < end; ++i) weigh(i, 1, high(hi, c.lo[i]), low(end, c.hi[i]), nullptr);
  }
}

// Scores of p[begin, end) (offsets in the block, multiples of 32) to weights; [lo, hi) is what the row sees.
void softmax_block(float* p, std::int64_t begin, std::int64_t end, std::int64_t lo, std::int64_t hi, const float* mask,
                   float& maximum, float& sum) {
  for (std::int64_t i = begin; i < low(lo, end); ++i) p[i] = -kInfinity;
  for (std::int64_t i = high(hi, begin); i < end; ++i) p[i] = -kInfinity;
  if (mask != nullptr) {
    for (std::int64_t i = high(lo, begin); i < low(hi, end); ++i) p[i] += mask[i];
  }
  V16 most;
  for (int k = 0; k < V16::kParts; ++k) most.part[k] = splat(-kInfinity);
  for (std::int64_t i = begin; i < end; i += 16) {
    for (int k = 0; k < V16::kParts; ++k) most.part[k] = max(most.part[k], load(p + i + k * V::kLanes));
  }
  maximum = max16(most);
  const bool nothing = maximum == -kInfinity;
  const V shift = splat(nothing ? 0.0f : maximum);
  V16 total;
  for (int k = 0; k < V16::kParts; ++k) total.part[k] = zero();
  for (std::int64_t i = begin; i < end; i += 16) {
    for (int k = 0; k < V16::kParts; ++k) {
      const V e = exp_nonpositive(load(p + i + k * V::kLanes) - shift);
      store(p + i + k * V::kLanes, e);
      total.part[k] = total.part[k] + e;
    }
  }
  sum = sum16(total);
}

void pack_strided_keys(const Chunk& c, std::int64_t first) {
  const StridedKv& kv = c.args->strided;
  const float* from = kv.keys + c.kv_head * kv.key_head_stride + first * kv.key_position_stride;
  const std::int64_t n = low(kTile, c.args->length - first), dim = c.args->head_dim;
  for (std::int64_t i = 0; i < kTile; ++i) {
    for (std::int64_t d = 0; d < dim; ++d) {
      c.key_tile[d * kTile + i] = i < n ? from[i * kv.key_position_stride + d] : 0.0f;
    }
  }
}

void score_one_tile(const Chunk& c, std::int64_t first) {
  const AttentionArgs& args = *c.args;
  if (args.keys == nullptr) {
    pack_strided_keys(c, first);
    return score_rows(c, static_cast<const float*>(c.key_tile), first, nullptr, 0);
  }
  const std::int64_t block = first / kBlock, offset = first % kBlock;
  const std::int64_t value_bytes = args.value_dim * bytes_per_element(*args.values);
  const char* next = block_address(args.values, args.layer, c.kv_head, block);
  // While the keys are read, the values of the same positions are on their way.
  next = next == nullptr ? nullptr : next + offset * value_bytes;
  const std::int64_t next_step = (value_bytes * kTile / args.head_dim + 63) / 64 * 64;
  with_elements(*args.keys, args.layer, c.kv_head, block, [&](const auto* keys) {
    const auto* tile = keys + offset * args.head_dim;
    if (c.direct) return score_rows(c, tile, first, next, next_step);
    widen(tile, c.key_tile, args.head_dim * kTile);
    score_rows(c, static_cast<const float*>(c.key_tile), first, nullptr, 0);
  });
}

void weigh_one_tile(const Chunk& c, std::int64_t first, std::int64_t begin, std::int64_t end) {
  const AttentionArgs& args = *c.args;
  const std::int64_t count = end - begin;
  if (args.keys == nullptr) {
    const StridedKv& kv = args.strided;
    const float* from = kv.values + c.kv_head * kv.value_head_stride + begin * kv.value_position_stride;
    for (std::int64_t i = 0; i < count; ++i) {
      widen_row(from + i * kv.value_position_stride, c.value_tile + i * c.width, args.value_dim, c.width);
    }
    return weigh_rows(c, static_cast<const float*>(c.value_tile), c.width, begin, end, nullptr, 0);
  }
  const std::int64_t block = first / kBlock;
  const std::int64_t key_bytes = args.head_dim * bytes_per_element(*args.keys);
  const char* next = block_address(args.keys, args.layer, c.kv_head, block + 1);
  next = next == nullptr ? nullptr : next + first % kBlock * key_bytes;
  with_elements(*args.values, args.layer, c.kv_head, block, [&](const auto* values) {
    const auto* rows = values + begin % kBlock * args.value_dim;
    if (c.direct) return weigh_rows(c, rows, args.value_dim, begin, end, next, key_bytes);
    for (std::int64_t i = 0; i < count; ++i) {
      widen_row(rows + i * args.value_dim, c.value_tile + i * c.width, args.value_dim, c.width);
    }
    weigh_rows(c, static_cast<const float*>(c.value_tile), c.width, begin, end, nullptr, 0);
  });
}

// Maximum, sum and weighted values of every row over one block. A row that sees nothing of it gets maximum -inf.
void attend_block(Chunk& c, std::int64_t block) {
  const AttentionArgs& args = *c.args;
  const std::int64_t base = block * kBlock;
  std::int64_t lo = base + kBlock, hi = base;
  for (int r = 0; r < c.count; ++r) {
    if (c.lo[r] >= c.hi[r]) continue;
    lo = low(lo, high(base, c.lo[r]));
    hi = high(hi, low(base + kBlock, c.hi[r]));
  }
  std::memset(c.acc, 0, static_cast<std::size_t>(c.count * c.width) * sizeof(float));
  const std::int64_t begin = lo / kTile * kTile, end = (hi + kTile - 1) / kTile * kTile;
  for (std::int64_t tile = begin; tile < end; tile += kTile) score_one_tile(c, tile);
  for (int r = 0; r < c.count; ++r) {
    const std::int64_t from = high(c.lo[r], base), to = low(c.hi[r], base + kBlock);
    if (from >= to || lo >= hi) {
      c.maximum[r] = -kInfinity;
      c.sum[r] = 0.0f;
      continue;
    }
    const std::int64_t query = c.rows.first_query + r / c.rows.heads, head = c.rows.first_head + r % c.rows.heads;
    const float* mask =
        args.mask == nullptr ? nullptr : args.mask + query * args.mask_row_stride + head * args.mask_head_stride + base;
    softmax_block(c.p + r * kBlock, begin - base, end - base, from - base, to - base, mask, c.maximum[r], c.sum[r]);
  }
  for (std::int64_t tile = begin; tile < end; tile += kTile) {
    weigh_one_tile(c, tile, high(tile, lo), low(tile + kTile, hi));
  }
}

// A row joined over the blocks so far.
struct Joined {
  float maximum = -kInfinity, sum = 0.0f;
};

void join_block(Joined& j, float* out, float maximum, float sum, const float* acc, std::int64_t width) {
  if (maximum == -kInfinity) return;
  const float top = j.maximum > maximum ? j.maximum : maximum;
  const float old_scale = exp_nonpositive(j.maximum - top), new_scale = exp_nonpositive(maximum - top);
  j.sum = first_lane(fma(splat(sum), splat(new_scale), splat(j.sum * old_scale)));
  j.maximum = top;
  for (std::int64_t d = 0; d < width; d += V::kLanes) {
    store(out + d, fma(load(acc + d), splat(new_scale), load(out + d) * splat(old_scale)));
  }
}

// Divides by the sum (sinks included) and writes value_dim elements.
void finish_row(const AttentionArgs& args, std::int64_t head, Joined j, const float* joined, float* out) {
  float scale = 1.0f;
  if (args.sinks != nullptr) {
    const float sink = args.sinks[head];
    const float top = j.maximum > sink ? j.maximum : sink;
    if (top > -kInfinity) {
      scale = exp_nonpositive(j.maximum - top);
      j.sum = j.sum * scale + exp_nonpositive(sink - top);
    }
  }
  const V factor = splat(j.sum == 0.0f ? 0.0f : scale / j.sum);
  for (std::int64_t d = 0; d < args.value_dim; d += V::kLanes) {
    const int n = static_cast<int>(low(V::kLanes, args.value_dim - d));
    store_part(out + d, load(joined + d) * factor, n);
  }
}

void attention_rows_kernel(const AttentionArgs& args, const AttentionPlan& plan, int chunk, float* out,
                           std::int64_t out_row_stride, std::int64_t out_head_stride, std::byte* scratch) {
  Chunk c;
  open_chunk(args, attention_rows_of(args, plan, chunk), scratch, c);
  Joined joined[kMaxRows];
  std::memset(c.joined, 0, static_cast<std::size_t>(c.count * c.width) * sizeof(float));
  std::int64_t lo = args.length, hi = 0;
  for (int r = 0; r < c.count; ++r) {
    lo = low(lo, c.lo[r]);
    hi = high(hi, c.hi[r]);
  }
  for (std::int64_t block = lo / kBlock; block * kBlock < hi; ++block) {
    attend_block(c, block);
    for (int r = 0; r < c.count; ++r) {
      const std::int64_t at = r * c.width;
      join_block(joined[r], c.joined + at, c.maximum[r], c.sum[r], c.acc + at, c.width);
    }
  }
  for (int r = 0; r < c.count; ++r) {
    const std::int64_t query = r / c.rows.heads, head = r % c.rows.heads;
    finish_row(args, c.rows.first_head + head, joined[r], c.joined + r * c.width,
               out + query * out_row_stride + head * out_head_stride);
  }
}

// Per block of the chunk: [rows][width] weighted values, [rows] maxima, [rows] sums, in whole lines.
void attention_partial_kernel(const AttentionArgs& args, const AttentionPlan& plan, int chunk, float* partial,
                              std::byte* scratch) {
  Chunk c;
  open_chunk(args, attention_partial_rows_of(args, plan, chunk), scratch, c);
  const std::int64_t chunks_per_unit = (plan.blocks + plan.blocks_per_chunk - 1) / plan.blocks_per_chunk;
  const std::int64_t first = chunk % chunks_per_unit * plan.blocks_per_chunk;
  const std::int64_t end = low(plan.blocks, first + plan.blocks_per_chunk);
  float* const acc = c.acc;
  for (std::int64_t block = first; block < end; ++block, partial += attention_partial_stride(c.count, c.width)) {
    attend_block(c, block);
    std::memcpy(partial, acc, static_cast<std::size_t>(c.count * c.width) * sizeof(float));
    float* tail = partial + c.count * c.width;
    std::memcpy(tail, c.maximum, static_cast<std::size_t>(c.count) * sizeof(float));
    std::memcpy(tail + c.count, c.sum, static_cast<std::size_t>(c.count) * sizeof(float));
  }
}

void attention_join_kernel(const AttentionArgs& args, const AttentionPlan& plan, int chunk, const float* partials,
                           float* out, std::int64_t out_row_stride, std::int64_t out_head_stride) {
  const AttentionRows rows = attention_rows_of(args, plan, chunk);
  const int count = static_cast<int>(rows.queries * rows.heads);
  const std::int64_t width = (args.value_dim + 15) / 16 * 16;
  const std::int64_t stride = attention_partial_stride(count, width);
  const float* unit = partials + chunk * plan.blocks * stride;
  alignas(64) float joined[kAttentionMaxDim];
  for (int r = 0; r < count; ++r) {
    Joined j;
    std::memset(joined, 0, static_cast<std::size_t>(width) * sizeof(float));
    for (std::int64_t block = 0; block < plan.blocks; ++block) {
      const float* part = unit + block * stride;
      const float* tail = part + count * width;
      join_block(j, joined, tail[r], tail[count + r], part + r * width, width);
    }
    const std::int64_t query = r / rows.heads, head = r % rows.heads;
    finish_row(args, rows.first_head + head, j, joined, out + query * out_row_stride + head * out_head_stride);
  }
}

constexpr AttentionKernels kAttentionKernels = {attention_rows_kernel, attention_partial_kernel, attention_join_kernel};

}  // namespace
}  // namespace coreai::cpu
