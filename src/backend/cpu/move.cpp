#include "backend/cpu/move.h"

#include <algorithm>
#include <cstring>

#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

constexpr std::int64_t kRowBlock = 32, kColumnBlock = 4096;

struct Wide {
  std::uint64_t part[2];
};

template <typename T>
T read(const T* p) {
  T value;  // mapped constants may lie at any address
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// A square of the size of a cache line: lines of `in` become columns of `out`.
template <typename T, std::int64_t kSide>
void transpose_square(const T* in, std::int64_t in_column, T* out, std::int64_t out_row) {
  T square[kSide][kSide];
  for (std::int64_t j = 0; j < kSide; ++j) std::memcpy(square[j], in + j * in_column, sizeof square[j]);
  for (std::int64_t i = 0; i < kSide; ++i) {
    T line[kSide];
    for (std::int64_t j = 0; j < kSide; ++j) line[j] = square[j][i];
    std::memcpy(out + i * out_row, line, sizeof line);
  }
}

// Four by four elements of 32 bits in registers.
using Four = std::uint32_t __attribute__((vector_size(16)));
template <>
void transpose_square<std::uint32_t, 16>(const std::uint32_t* in, std::int64_t in_column, std::uint32_t* out,
                                         std::int64_t out_row) {
  for (std::int64_t i = 0; i < 16; i += 4) {
    for (std::int64_t j = 0; j < 16; j += 4) {
      Four a[4];
      for (std::int64_t k = 0; k < 4; ++k) std::memcpy(&a[k], in + (j + k) * in_column + i, sizeof(Four));
      const Four low0 = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5);
      const Four low1 = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5);
      const Four high0 = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7);
      const Four high1 = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
      const Four rows[4] = {
          __builtin_shufflevector(low0, low1, 0, 1, 4, 5), __builtin_shufflevector(low0, low1, 2, 3, 6, 7),
          __builtin_shufflevector(high0, high1, 0, 1, 4, 5), __builtin_shufflevector(high0, high1, 2, 3, 6, 7)};
      for (std::int64_t k = 0; k < 4; ++k) std::memcpy(out + (i + k) * out_row + j, &rows[k], sizeof(Four));
    }
  }
}

// `in` runs along the rows of the result, which are written in whole lines.
template <typename T>
void transpose(const T* in, std::int64_t in_column, T* out, std::int64_t out_row, std::int64_t rows,
               std::int64_t columns) {
  constexpr std::int64_t kSide = sizeof(T) >= 8 ? 8 : 16;
  for (std::int64_t c = 0; c < columns; c += kSide) {
    const std::int64_t width = std::min(kSide, columns - c);
    for (std::int64_t r = 0; r < rows; r += kSide) {
      const std::int64_t height = std::min(kSide, rows - r);
      const T* from = in + c * in_column + r;
      T* to = out + r * out_row + c;
      if (width == kSide && height == kSide) {
        transpose_square<T, kSide>(from, in_column, to, out_row);
        continue;
      }
      for (std::int64_t i = 0; i < height; ++i)
        for (std::int64_t j = 0; j < width; ++j) to[i * out_row + j] = read(from + j * in_column + i);
    }
  }
}

}  // namespace

void Move::add_axis(std::int64_t extent, std::int64_t in_stride, std::int64_t out_stride) {
  COREAI_INVARIANT(rank_ < kMaxRank);
  axes_[rank_++] = {extent, in_stride, out_stride};
}

void Move::finish() {
  // Axes of one element say nothing; neighbours that continue each other are one.
  std::size_t kept = 0;
  bool empty = false;
  for (std::size_t i = 0; i < rank_; ++i) {
    const Axis axis = axes_[i];
    empty = empty || axis.extent <= 0;
    if (axis.extent == 1) continue;
    if (kept > 0 && axes_[kept - 1].in == axis.extent * axis.in && axes_[kept - 1].out == axis.extent * axis.out) {
      axes_[kept - 1] = {axes_[kept - 1].extent * axis.extent, axis.in, axis.out};
    } else {
      axes_[kept++] = axis;
    }
  }
  rank_ = kept;
  items_ = 0;
  if (empty) return;
  columns_ = rank_ > 0 ? axes_[--rank_] : Axis{1, 1, 1};
  rows_ = {};
  if (rank_ > 0) {
    // Where the columns of the source lie apart, rows that run along it make a transpose of squares.
    std::size_t at = rank_ - 1;
    for (std::size_t i = 0; i < rank_ && columns_.in != 1 && columns_.in != 0; ++i) {
      if (axes_[i].in == 1) at = i;
    }
    rows_ = axes_[at];
    std::copy(axes_.begin() + static_cast<std::ptrdiff_t>(at) + 1, axes_.begin() + static_cast<std::ptrdiff_t>(rank_),
              axes_.begin() + static_cast<std::ptrdiff_t>(at));
    --rank_;
  }
  row_block_ = std::min(rows_.extent, kRowBlock), column_block_ = std::min(columns_.extent, kColumnBlock);
  row_blocks_ = (rows_.extent + row_block_ - 1) / row_block_;
  column_blocks_ = (columns_.extent + column_block_ - 1) / column_block_;
  items_ = row_blocks_ * column_blocks_;
  for (std::size_t i = 0; i < rank_; ++i) items_ *= axes_[i].extent;
}

template <typename T>
void Move::copy(const std::byte* in, std::byte* out, std::int64_t rows, std::int64_t columns) const {
  const T* from = reinterpret_cast<const T*>(in);
  T* to = reinterpret_cast<T*>(out);
  if (columns_.in == 1 && columns_.out == 1) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * rows_.out, from + r * rows_.in, static_cast<std::size_t>(columns) * sizeof(T));
    }
  } else if (columns_.in == 0 && columns_.out == 1) {
    for (std::int64_t r = 0; r < rows; ++r) std::fill_n(to + r * rows_.out, columns, read(from + r * rows_.in));
  } else if (rows_.in == 1 && columns_.out == 1) {
    transpose(from, columns_.in, to, rows_.out, rows, columns);
  } else {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        to[r * rows_.out + c * columns_.out] = read(from + r * rows_.in + c * columns_.in);
  }
}

void Move::run(const std::byte* in, std::byte* out, std::int64_t item) const {
  const std::int64_t column = item % column_blocks_ * column_block_;
  item /= column_blocks_;
  const std::int64_t row = item % row_blocks_ * row_block_;
  item /= row_blocks_;
  std::int64_t from = column * columns_.in + row * rows_.in, to = column * columns_.out + row * rows_.out;
  for (std::size_t i = rank_; i-- > 0; item /= axes_[i].extent) {
    from += item % axes_[i].extent * axes_[i].in;
    to += item % axes_[i].extent * axes_[i].out;
  }
  const std::int64_t rows = std::min(row_block_, rows_.extent - row);
  const std::int64_t columns = std::min(column_block_, columns_.extent - column);
  in += from * width_, out += to * width_;
  if (width_ == 1) return copy<std::uint8_t>(in, out, rows, columns);
  if (width_ == 2) return copy<std::uint16_t>(in, out, rows, columns);
  if (width_ == 4) return copy<std::uint32_t>(in, out, rows, columns);
  if (width_ == 8) return copy<std::uint64_t>(in, out, rows, columns);
  return copy<Wide>(in, out, rows, columns);
}

}  // namespace coreai::cpu
