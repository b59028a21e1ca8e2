// Storage of one cache state [layers, 1, kv_heads, positions, head_dim] in the order in which attention reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "coreai/base/dtype.h"
#include "coreai/base/ndarray.h"

namespace coreai::cpu {

enum class KvRole : std::uint8_t {
  kKey,    // per layer and head: tiles of [head_dim][32 positions], so that a score needs no horizontal sum
  kValue,  // per layer and head: [position][head_dim]
  kPlain,  // as kValue, for a state that attention does not read
};

// Blocks of 256 positions of all layers and heads. Growing adds blocks and moves none. A copy of a KvBuffer shares its
// blocks; make_writable() replaces those that somebody else holds too.
//
// Threads: reading and storing disjoint rows is safe together; grow(), make_writable(), clear() and assignment need the
// buffer alone (drain the pool first).
class KvBuffer {
 public:
  static constexpr std::int64_t kBlockPositions = 256;
  static constexpr std::int64_t kTilePositions = 32;

  struct Geometry {
    std::int64_t layers = 0, kv_heads = 0, head_dim = 0;
    bool operator==(const Geometry&) const = default;
  };

  KvBuffer() = default;
  // Zeroed. dtype f16, bf16 or f32. Throws InvalidArgumentError on another dtype or an extent below 1 (positions: 0 is
  // allowed), ShapeError when the size overflows.
  KvBuffer(KvRole role, DType dtype, Geometry geometry, std::int64_t positions);

  KvRole role() const { return role_; }
  DType dtype() const { return dtype_; }
  const Geometry& geometry() const { return geometry_; }
  std::int64_t positions() const { return positions_; }  // declared extent; storage is whole blocks
  std::int64_t block_count() const { return static_cast<std::int64_t>(blocks_.size()); }
  std::uint64_t byte_size() const { return static_cast<std::uint64_t>(block_count()) * block_bytes_; }

  // Adds zeroed positions; never shrinks.
  void grow(std::int64_t positions);
  // Gives the blocks that hold positions [first, first + count) an own copy where they are shared. Call before storing.
  void make_writable(std::int64_t first, std::int64_t count);
  bool is_shared(std::int64_t block) const { return blocks_[static_cast<std::size_t>(block)].use_count() > 1; }

  // Makes this a look at another buffer's blocks as they are now: it keeps their memory alive, is not counted as
  // sharing them, and what is stored through it is stored there. Allocates only when there are more blocks than before.
  void look_at(const KvBuffer& other);
  // Lets the memory go; positions() is 0 from then on.
  void look_away();

  // Zeroes every position.
  void clear();

  // Rows of f32, `row_stride` elements apart, rounded to nearest even. The range must lie inside positions()
  // (invariant).
  void store_rows(std::int64_t layer, std::int64_t head, std::int64_t first, std::int64_t count, const float* rows,
                  std::int64_t row_stride);
  void load_rows(std::int64_t layer, std::int64_t head, std::int64_t first, std::int64_t count, float* rows,
                 std::int64_t row_stride) const;

  // Row-major [layers, 1, kv_heads, positions, head_dim] of the buffer's dtype. assign() throws ShapeError unless dtype
  // and every extent but positions fit; it takes the array's positions as the declared ones.
  NDArray to_array() const;
  void assign(const NDArray& array);

  // The 256 positions of one layer and head, kBlockPositions * head_dim elements in the role's order; 64-byte aligned
  // when head_dim is a multiple of 8.
  const std::byte* head_block(std::int64_t layer, std::int64_t head, std::int64_t block) const;
  std::byte* mutable_head_block(std::int64_t layer, std::int64_t head, std::int64_t block);

 private:
  void add_blocks(std::int64_t count);
  template <typename Fn>
  void for_each_row(Fn&& fn) const;
  void check_range(std::int64_t layer, std::int64_t head, std::int64_t first, std::int64_t count) const;

  KvRole role_ = KvRole::kPlain;
  DType dtype_ = DType::kF16;
  Geometry geometry_;
  std::int64_t positions_ = 0;
  std::int64_t head_block_bytes_ = 0;
  std::uint64_t block_bytes_ = 0;
  // Copies of a buffer share a Block; a look has Blocks of its own on the same memory.
  struct Block {
    std::byte* data = nullptr;
    std::shared_ptr<void> memory;
  };
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace coreai::cpu
