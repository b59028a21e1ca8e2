#include "exporter/repack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "coreai/base/error.h"
#include "exporter/blocks.h"

namespace coreai {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} << 20;  // of the source between two calls of `consumed`

// How the blocks of a type map to constants.
struct Layout {
  DType data = DType::kSI8;
  DType scale = DType::kF16;
  bool has_offset = false;
  std::int64_t block = 32;
};

Layout layout_of(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
      return {DType::kSI4, DType::kF16, false, 32};
    case GgmlType::kQ4_1:
      return {DType::kUI4, DType::kF16, true, 32};
    case GgmlType::kQ5_0:
    case GgmlType::kQ8_0:
      return {DType::kSI8, DType::kF16, false, 32};
    case GgmlType::kQ5_1:
      return {DType::kSI8, DType::kF16, true, 32};
    case GgmlType::kQ4_K:
      return {DType::kUI4, DType::kF32, true, 32};
    case GgmlType::kQ5_K:
      return {DType::kSI8, DType::kF32, true, 32};
    case GgmlType::kQ6_K:
      return {DType::kSI8, DType::kF32, false, 16};
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      break;
  }
  throw InternalError(fmt::format("{} has no blocks", ggml_type_name(type)));
}

// Writes one block; the three pointers stand at its place in the row and move on.
struct Writer {
  std::byte *data, *scale, *offset;

  void nibbles(const std::uint8_t* q, int count, std::uint8_t flip) {
    for (int i = 0; i < count; i += 2) *data++ = static_cast<std::byte>((q[i] ^ flip) | ((q[i + 1] ^ flip) << 4));
  }
  void bytes(const std::uint8_t* q, int count, int shift) {
    for (int i = 0; i < count; ++i) *data++ = static_cast<std::byte>(static_cast<std::int8_t>(q[i] - shift));
  }
  static void put_half(std::byte*& to, const std::byte* from) {
    std::memcpy(to, from, 2);
    to += 2;
  }
  static void put_float(std::byte*& to, float value) {
    std::memcpy(to, &value, 4);
    to += 4;
  }
};

void write_k(const std::byte* block, Writer& out, bool five_bits) {
  std::uint8_t q[256];
  if (five_bits) {
    blocks::unpack_q5_k(block, q);
    out.bytes(q, 256, 0);
  } else {
    blocks::unpack_q4_k(block, q);
    out.nibbles(q, 256, 0);
  }
  const blocks::KScales scales = blocks::k_scales(block);
  for (int g = 0; g < 8; ++g) {
    Writer::put_float(out.scale, scales.scale[g]);
    Writer::put_float(out.offset, -scales.minimum[g]);
  }
}

void write_q6_k(const std::byte* block, Writer& out) {
  std::int8_t q[256];
  float scale[16];
  blocks::unpack_q6_k(block, q);
  blocks::q6_k_scales(block, scale);
  std::memcpy(out.data, q, sizeof q);
  out.data += sizeof q;
  for (const float s : scale) Writer::put_float(out.scale, s);
}

// Types with f16 d, or d and m, in front of 32 integers.
void write_small(GgmlType type, const std::byte* block, Writer& out) {
  std::uint8_t q[32];
  const bool has_offset = type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1;
  const std::byte* bits = block + (has_offset ? 4 : 2);
  Writer::put_half(out.scale, block);
  if (has_offset) Writer::put_half(out.offset, block + 2);
  if (type == GgmlType::kQ8_0) {
    std::memcpy(out.data, bits, 32);
    out.data += 32;
  } else if (type == GgmlType::kQ4_0 || type == GgmlType::kQ4_1) {
    blocks::unpack_q4(bits, q);
    out.nibbles(q, 32, has_offset ? 0 : 8);  // q - 8 in two's complement of four bits is q ^ 8
  } else {
    blocks::unpack_q5(bits, q);
    out.bytes(q, 32, has_offset ? 0 : 16);
  }
}

void write_block(GgmlType type, const std::byte* block, Writer& out) {
  if (type == GgmlType::kQ4_K || type == GgmlType::kQ5_K) {
    write_k(block, out, type == GgmlType::kQ5_K);
  } else if (type == GgmlType::kQ6_K) {
    write_q6_k(block, out);
  } else {
    write_small(type, block, out);
  }
}

}  // namespace

std::int64_t RowOrder::source(std::int64_t row) const {
  if (head_rows == 0) return row;
  const std::int64_t head = row / head_rows, within = row % head_rows, pairs = head_rows / 2;
  return head * head_rows + (within % pairs) * 2 + within / pairs;
}

BlockwiseWeight repack(const GgufTensor& tensor, const RowOrder& order, ThreadPool& pool,
                       const ConsumedBytes& consumed) {
  const Layout layout = layout_of(tensor.type);
  const GgmlTypeInfo info = *ggml_type_info(tensor.type);
  const auto rows = static_cast<std::int64_t>(tensor.rows());
  const auto columns = static_cast<std::int64_t>(tensor.row_elements());
  const std::int64_t groups = columns / layout.block;
  BlockwiseWeight out;
  out.block = layout.block;
  out.data = NDArray(layout.data, Shape{rows, columns});
  out.scale = NDArray(layout.scale, Shape{rows, groups});
  if (layout.has_offset) out.offset = NDArray(layout.scale, Shape{rows, groups});
  // Rows are whole bytes in every array: their columns are a multiple of 32.
  std::byte* const data = out.data.mutable_bytes().data();
  std::byte* const scale = out.scale.mutable_bytes().data();
  std::byte* const offset = out.offset ? out.offset->mutable_bytes().data() : nullptr;
  const std::size_t data_bytes = dtype_bytes(layout.data, tensor.row_elements());
  const std::size_t scale_bytes = dtype_bytes(layout.scale, static_cast<std::uint64_t>(groups));
  const std::size_t row_blocks = tensor.row_elements() / info.block_elements;
  const std::size_t row_bytes = row_blocks * info.block_bytes;
  const auto write_row = [&](std::size_t row) {
    const std::byte* block =
        tensor.bytes.data() + static_cast<std::size_t>(order.source(static_cast<std::int64_t>(row))) * row_bytes;
    Writer writer{data + row * data_bytes, scale + row * scale_bytes, offset ? offset + row * scale_bytes : nullptr};
    for (std::size_t b = 0; b < row_blocks; ++b) write_block(tensor.type, block + b * info.block_bytes, writer);
  };
  // Pieces of whole heads, so that a piece's source rows are its own rows in another order.
  const auto head = static_cast<std::size_t>(std::max<std::int64_t>(order.head_rows, 1));
  const std::size_t piece = (kPieceBytes / std::max<std::size_t>(row_bytes, 1) / head + 1) * head;
  for (std::size_t first = 0; first < tensor.rows(); first += piece) {
    const std::size_t count = std::min<std::size_t>(piece, tensor.rows() - first);
    pool.parallel_for(static_cast<int>(count), [&](int i) { write_row(first + static_cast<std::size_t>(i)); });
    if (consumed) consumed(tensor.bytes.subspan(first * row_bytes, count * row_bytes));
  }
  return out;
}

NDArray dense_rows(const GgufTensor& tensor, const RowOrder& order, std::shared_ptr<const void> keep_alive) {
  const DType dtype = tensor.type == GgmlType::kF32   ? DType::kF32
                      : tensor.type == GgmlType::kF16 ? DType::kF16
                                                      : DType::kBF16;
  if (order.head_rows == 0) {
    // The storage is marked read-only: nothing writes through this pointer.
    auto* bytes = const_cast<std::byte*>(tensor.bytes.data());
    return NDArray(dtype, tensor.shape(), Storage::borrow(bytes, tensor.bytes.size(), false, std::move(keep_alive)));
  }
  NDArray out(dtype, tensor.shape());
  const std::size_t row_bytes = tensor.row_elements() * ggml_type_info(tensor.type)->block_bytes;
  std::byte* to = out.mutable_bytes().data();
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(tensor.rows()); ++row, to += row_bytes)
    std::memcpy(to, tensor.bytes.data() + static_cast<std::size_t>(order.source(row)) * row_bytes, row_bytes);
  return out;
}

}  // namespace coreai
