#include "backend/cpu/kv_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "backend/cpu/row_kernels.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Zeroed anonymous memory, at a huge page's boundary when it is large.
class Slab {
 public:
  explicit Slab(std::size_t bytes) : bytes_(bytes) {
    const std::size_t align = bytes >= kHugePage ? kHugePage : 0;
    void* raw = mmap(nullptr, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(raw);
    if (align == 0) return;
    const std::size_t before = (align - reinterpret_cast<std::uintptr_t>(raw) % align) % align;
    if (before > 0) munmap(data_, before);
    data_ += before;
    // munmap takes whole pages only.
    const std::size_t used = (bytes + 4095) / 4096 * 4096;
    if (align - before > used - bytes) munmap(data_ + used, align - before - (used - bytes));
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Slab() { munmap(data_, bytes_); }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

std::int64_t element_bytes(DType dtype) {
  return dtype_bits(dtype) / 8;
}

// Elements of one head's block in the role's order, to and from rows of the same element type.
template <typename T>
void put_row(KvRole role, std::byte* block, std::int64_t dim, std::int64_t position, const T* row, std::int64_t first,
             std::int64_t count) {
  T* base = reinterpret_cast<T*>(block);
  if (role != KvRole::kKey) {
    std::memcpy(base + position * dim + first, row, static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  constexpr std::int64_t kTile = KvBuffer::kTilePositions;
  T* at = base + (position / kTile * dim + first) * kTile + position % kTile;
  for (std::int64_t d = 0; d < count; ++d) at[d * kTile] = row[d];
}
template <typename T>
void get_row(KvRole role, const std::byte* block, std::int64_t dim, std::int64_t position, T* row, std::int64_t first,
             std::int64_t count) {
  const T* base = reinterpret_cast<const T*>(block);
  if (role != KvRole::kKey) {
    std::memcpy(row, base + position * dim + first, static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  constexpr std::int64_t kTile = KvBuffer::kTilePositions;
  const T* at = base + (position / kTile * dim + first) * kTile + position % kTile;
  for (std::int64_t d = 0; d < count; ++d) row[d] = at[d * kTile];
}

constexpr std::int64_t kPiece = 512;  // elements converted at a time

}  // namespace

KvBuffer::KvBuffer(KvRole role, DType dtype, Geometry geometry, std::int64_t positions)
    : role_(role), dtype_(dtype), geometry_(geometry) {
  if (dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kF32) {
    throw InvalidArgumentError(fmt::format("a cache of {} was asked for", dtype_name(dtype)), "KvBuffer",
                               "use f16, bf16 or f32");
  }
  if (geometry.layers < 1 || geometry.kv_heads < 1 || geometry.head_dim < 1 || positions < 0) {
    throw InvalidArgumentError(fmt::format("a cache of [{}, 1, {}, {}, {}] was asked for", geometry.layers,
                                           geometry.kv_heads, positions, geometry.head_dim),
                               "KvBuffer", "give every extent at least 1");
  }
  std::optional<std::uint64_t> bytes = static_cast<std::uint64_t>(kBlockPositions * element_bytes(dtype));
  for (const std::int64_t extent : {geometry.head_dim, geometry.kv_heads, geometry.layers}) {
    bytes = bytes ? checked_mul(*bytes, static_cast<std::uint64_t>(extent)) : bytes;
  }
  const auto blocks = static_cast<std::uint64_t>(positions / kBlockPositions + 1);
  const auto total = bytes ? checked_mul(*bytes, blocks) : bytes;
  if (!total || *total > std::uint64_t{1} << 46) {
    throw ShapeError(fmt::format("a cache of [{}, 1, {}, {}, {}] does not fit in memory", geometry.layers,
                                 geometry.kv_heads, positions, geometry.head_dim),
                     "KvBuffer");
  }
  block_bytes_ = *bytes;
  head_block_bytes_ = kBlockPositions * geometry.head_dim * element_bytes(dtype);
  grow(positions);
}

void KvBuffer::add_blocks(std::int64_t count) {
  if (count <= 0) return;
  const auto slab = std::make_shared<Slab>(static_cast<std::size_t>(count) * block_bytes_);
  blocks_.reserve(blocks_.size() + static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    // Each block counts its own users; the slab goes with its last block.
    blocks_.push_back(
        std::make_shared<Block>(Block{slab->data() + static_cast<std::uint64_t>(i) * block_bytes_, slab}));
  }
}

void KvBuffer::grow(std::int64_t positions) {
  if (positions <= positions_) return;
  const std::int64_t wanted = (positions + kBlockPositions - 1) / kBlockPositions;
  if (checked_mul(block_bytes_, static_cast<std::uint64_t>(wanted)).value_or(~std::uint64_t{0}) > std::uint64_t{1}
                                                                                                      << 46) {
    throw ShapeError(fmt::format("a cache of {} positions does not fit in memory", positions), "KvBuffer");
  }
  add_blocks(wanted - block_count());
  positions_ = positions;
}

void KvBuffer::make_writable(std::int64_t first, std::int64_t count) {
  if (count <= 0) return;
  COREAI_INVARIANT(first >= 0 && first + count <= block_count() * kBlockPositions);
  for (std::int64_t b = first / kBlockPositions; b <= (first + count - 1) / kBlockPositions; ++b) {
    if (!is_shared(b)) continue;
    const auto slab = std::make_shared<Slab>(static_cast<std::size_t>(block_bytes_));
    auto& block = blocks_[static_cast<std::size_t>(b)];
    std::memcpy(slab->data(), block->data, block_bytes_);
    block = std::make_shared<Block>(Block{slab->data(), slab});
  }
}

void KvBuffer::look_at(const KvBuffer& other) {
  role_ = other.role_, dtype_ = other.dtype_, geometry_ = other.geometry_, positions_ = other.positions_;
  head_block_bytes_ = other.head_block_bytes_, block_bytes_ = other.block_bytes_;
  blocks_.resize(other.blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i]) blocks_[i] = std::make_shared<Block>();
    *blocks_[i] = *other.blocks_[i];
  }
}

void KvBuffer::look_away() {
  positions_ = 0;
  for (const auto& block : blocks_) *block = {};
}

void KvBuffer::clear() {
  const std::int64_t count = block_count();
  blocks_.clear();
  add_blocks(count);
}

const std::byte* KvBuffer::head_block(std::int64_t layer, std::int64_t head, std::int64_t block) const {
  return blocks_[static_cast<std::size_t>(block)]->data + (layer * geometry_.kv_heads + head) * head_block_bytes_;
}
std::byte* KvBuffer::mutable_head_block(std::int64_t layer, std::int64_t head, std::int64_t block) {
  return blocks_[static_cast<std::size_t>(block)]->data + (layer * geometry_.kv_heads + head) * head_block_bytes_;
}

void KvBuffer::check_range(std::int64_t layer, std::int64_t head, std::int64_t first, std::int64_t count) const {
  COREAI_INVARIANT(layer >= 0 && layer < geometry_.layers && head >= 0 && head < geometry_.kv_heads);
  COREAI_INVARIANT(first >= 0 && count >= 0 && first <= positions_ && count <= positions_ - first);
}

void KvBuffer::store_rows(std::int64_t layer, std::int64_t head, std::int64_t first, std::int64_t count,
                          const float* rows, std::int64_t row_stride) {
  check_range(layer, head, first, count);
  const RowKernels& kernels = row_kernels(detect_isa());
  const std::int64_t dim = geometry_.head_dim;
  alignas(64) std::array<std::uint16_t, kPiece> narrow;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t position = first + r;
    std::byte* block = mutable_head_block(layer, head, position / kBlockPositions);
    const float* row = rows + r * row_stride;
    if (dtype_ == DType::kF32) {
      put_row(role_, block, dim, position % kBlockPositions, row, 0, dim);
      continue;
    }
    for (std::int64_t d = 0; d < dim; d += kPiece) {
      const std::int64_t n = std::min(kPiece, dim - d);
      kernels.from_f32(dtype_, row + d, narrow.data(), n);
      put_row(role_, block, dim, position % kBlockPositions, narrow.data(), d, n);
    }
  }
}

void KvBuffer::load_rows(std::int64_t layer, std::int64_t head, std::int64_t first, std::int64_t count, float* rows,
                         std::int64_t row_stride) const {
  check_range(layer, head, first, count);
  const RowKernels& kernels = row_kernels(detect_isa());
  const std::int64_t dim = geometry_.head_dim;
  alignas(64) std::array<std::uint16_t, kPiece> narrow;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t position = first + r;
    const std::byte* block = head_block(layer, head, position / kBlockPositions);
    float* row = rows + r * row_stride;
    if (dtype_ == DType::kF32) {
      get_row(role_, block, dim, position % kBlockPositions, row, 0, dim);
      continue;
    }
    for (std::int64_t d = 0; d < dim; d += kPiece) {
      const std::int64_t n = std::min(kPiece, dim - d);
      get_row(role_, block, dim, position % kBlockPositions, narrow.data(), d, n);
      kernels.to_f32(dtype_, narrow.data(), row + d, n);
    }
  }
}

// Calls fn(block of the head, position in the block, byte offset of the row in the array) for every stored row.
template <typename Fn>
void KvBuffer::for_each_row(Fn&& fn) const {
  const std::int64_t row_bytes = geometry_.head_dim * element_bytes(dtype_);
  std::int64_t offset = 0;
  for (std::int64_t layer = 0; layer < geometry_.layers; ++layer) {
    for (std::int64_t head = 0; head < geometry_.kv_heads; ++head) {
      for (std::int64_t p = 0; p < positions_; ++p, offset += row_bytes) {
        fn(layer, head, p / kBlockPositions, p % kBlockPositions, offset);
      }
    }
  }
}

NDArray KvBuffer::to_array() const {
  NDArray array(dtype_, Shape{geometry_.layers, 1, geometry_.kv_heads, positions_, geometry_.head_dim});
  std::byte* out = array.mutable_bytes().data();
  const std::int64_t dim = geometry_.head_dim;
  for_each_row([&](std::int64_t layer, std::int64_t head, std::int64_t b, std::int64_t position, std::int64_t offset) {
    const std::byte* block = head_block(layer, head, b);
    if (dtype_ == DType::kF32) {
      get_row(role_, block, dim, position, reinterpret_cast<float*>(out + offset), 0, dim);
    } else {
      get_row(role_, block, dim, position, reinterpret_cast<std::uint16_t*>(out + offset), 0, dim);
    }
  });
  return array;
}

void KvBuffer::assign(const NDArray& array) {
  const Shape& shape = array.shape();
  if (array.dtype() != dtype_ || shape.rank() != 5 || shape[0] != geometry_.layers || shape[1] != 1 ||
      shape[2] != geometry_.kv_heads || shape[4] != geometry_.head_dim) {
    throw ShapeError(
        fmt::format("a state of {} [{}] was given for a cache of {} [{}, 1, {}, ?, {}]", dtype_name(array.dtype()),
                    shape.to_string(), dtype_name(dtype_), geometry_.layers, geometry_.kv_heads, geometry_.head_dim),
        "KvBuffer::assign", "convert the array to the state's type and shape first");
  }
  KvBuffer fresh(role_, dtype_, geometry_, shape[3]);
  const std::byte* in = array.bytes().data();
  const std::int64_t dim = geometry_.head_dim;
  fresh.for_each_row(
      [&](std::int64_t layer, std::int64_t head, std::int64_t b, std::int64_t position, std::int64_t offset) {
        std::byte* block = fresh.mutable_head_block(layer, head, b);
        if (dtype_ == DType::kF32) {
          put_row(role_, block, dim, position, reinterpret_cast<const float*>(in + offset), 0, dim);
        } else {
          put_row(role_, block, dim, position, reinterpret_cast<const std::uint16_t*>(in + offset), 0, dim);
        }
      });
  *this = std::move(fresh);
}

}  // namespace coreai::cpu
