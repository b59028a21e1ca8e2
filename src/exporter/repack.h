// ggml's quantised blocks as constants of the op set, without loss.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "coreai/base/thread_pool.h"
#include "coreai/exporter/gguf.h"

namespace coreai {

// value = scale * data + offset, one scale and offset per `block` columns: what `blockwise_shift_scale` computes.
struct BlockwiseWeight {
  NDArray data;                   // [rows, columns], si4, ui4 or si8
  NDArray scale;                  // [rows, columns / block], f16 where the checkpoint has f16, else f32
  std::optional<NDArray> offset;  // as `scale`; absent: zero
  std::int64_t block = 0;
};

// The rows of llama's q and k projections: stored as (head, pair, half), wanted as (head, half, pair).
struct RowOrder {
  std::int64_t head_rows = 0;  // 0: rows stay where they are
  std::int64_t source(std::int64_t row) const;
};

// Told of source bytes that are not read again.
using ConsumedBytes = std::function<void(std::span<const std::byte>)>;

// Q4_0: si4, scale d.            Q4_1: ui4, scale d, offset m.
// Q5_0, Q8_0: si8, scale d.      Q5_1: si8 (0..31), scale d, offset m.
// Q4_K: ui4, Q5_K: si8 (0..31), scale d*sc, offset -dmin*m per 32 in f32.
// Q6_K: si8, scale d*sc per 16 in f32.
// Products of a half and a 6- or 8-bit integer are exact in f32. Throws InternalError for F32, F16, BF16.
BlockwiseWeight repack(const GgufTensor& tensor, const RowOrder& order, ThreadPool& pool,
                       const ConsumedBytes& consumed = {});

// Rows of an unquantised tensor in `order`; without one a view of the file's bytes, which `keep_alive` must keep.
NDArray dense_rows(const GgufTensor& tensor, const RowOrder& order, std::shared_ptr<const void> keep_alive);

}  // namespace coreai
