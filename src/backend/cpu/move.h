// Copies of elements between strided arrays: rows, transposes, broadcasts. Elements of 1, 2, 4, 8 or 16 bytes are never
// interpreted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace coreai::cpu {

// out[sum of index * out stride] = in[sum of index * in stride] for every index. Extents and strides in elements; an
// in stride may be 0 (repeats) or negative.
class Move {
 public:
  static constexpr std::size_t kMaxRank = 16;

  Move() = default;
  explicit Move(std::int64_t element_bytes) : width_(element_bytes) {}
  // Outermost first. At most kMaxRank (invariant).
  void add_axis(std::int64_t extent, std::int64_t in_stride, std::int64_t out_stride);
  // Joins and orders the axes and cuts the elements into items; no add_axis() afterwards.
  void finish();

  // Pieces of about `item_elements()` elements, to be run in any order.
  std::int64_t items() const { return items_; }
  std::int64_t item_elements() const { return row_block_ * column_block_; }
  void run(const std::byte* in, std::byte* out, std::int64_t item) const;

 private:
  struct Axis {
    std::int64_t extent = 1, in = 0, out = 0;
  };
  template <typename T>
  void copy(const std::byte* in, std::byte* out, std::int64_t rows, std::int64_t columns) const;

  std::int64_t width_ = 1;
  std::size_t rank_ = 0;
  std::array<Axis, kMaxRank> axes_{};
  Axis rows_, columns_;  // the innermost two; axes_ then holds the others
  std::int64_t row_block_ = 1, column_block_ = 1, row_blocks_ = 0, column_blocks_ = 0, items_ = 0;
};

}  // namespace coreai::cpu
