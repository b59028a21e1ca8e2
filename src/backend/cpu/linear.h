// Linear layers y = x W^T on packed weights: dequantised matrices are described as they lie in the asset, packed once
// into panels of 32 outputs, and multiplied with activations that are exact integers per block of 32 columns.
// A row's result is the same bits whatever the number of rows, the chunks, the threads and the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cpu/isa.h"
#include "coreai/base/dtype.h"

namespace coreai::cpu {

inline constexpr std::int64_t kPanelRows = 32;          // outputs of one panel
inline constexpr std::int64_t kDigitBlock = 32;         // columns that share an activation scale
inline constexpr std::int64_t kLeastIntegerBlock = 16;  // scales of fewer columns: the weight is packed as floats
inline constexpr std::size_t kPackAlignment = 64;       // of packed matrices and of activation rows

// A matrix W[n, k] (n outputs, k inputs), value = scale * (data - offset1) + offset2, evaluated in f32.
// Spans need no alignment. Scales and offsets are row-major [n / rows_per_scale, k / block].
struct MatrixSource {
  DType dtype = DType::kF32;             // ui1 ui2 ui3 ui4 ui6 ui8, si2 si4 si8, f16, bf16, f32
  std::span<const std::byte> data = {};  // row-major [n, k]; sub-byte elements are one stream of bits, LSB first
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transposed = false;  // data is [k, n]; whole-byte types without scales only

  std::int64_t block = 0;           // columns that share a scale; 0: value = data
  std::int64_t rows_per_scale = 1;  // rows that share a scale; n for one scale per tensor
  DType scale_dtype = DType::kF32;  // f16, bf16 or f32
  std::span<const std::byte> scale = {};
  std::span<const std::byte> offset1 = {};  // of the data's dtype and packing; empty: zero
  DType offset2_dtype = DType::kF32;        // f16, bf16 or f32
  std::span<const std::byte> offset2 = {};  // empty: zero
  DType rounded = DType::kF32;  // f16, bf16 or f32: of the values where no kernel reads the data as integers

  // Palettes instead of scales: value = table[row / table_rows, column / table_columns, data] of unsigned data.
  std::span<const std::byte> table = {};
  DType table_dtype = DType::kF32;  // f16, bf16 or f32
  std::int64_t table_rows = 0, table_columns = 0;

  std::int64_t row_begin = 0;  // rows [row_begin, row_end) are taken
  std::int64_t row_end = -1;   // -1: n
  std::int64_t rows() const { return (row_end < 0 ? n : row_end) - row_begin; }
};

// Writes row `row` (counted from 0, not from row_begin) as k floats: an embedding's row.
// Throws InvalidArgumentError if the source is inconsistent or the row out of range.
void dequantize_row(const MatrixSource& source, std::int64_t row, float* out);

enum class WeightKind : std::uint8_t { kU4, kU8, kF16, kBF16, kF32 };

// How activations are written for integer weights: signed 8-bit digits per value.
enum class Digits : std::uint8_t { kFast = 1, kFaithful = 2, kExact = 3 };

enum class Activation : std::uint8_t { kIdentity, kSilu, kGeluTanh, kGeluErf };

struct PackOptions {
  // The sources are [gate..., up...] with as many gate rows as up rows: their panels alternate, so that
  // the layer can store act(gate) * up.
  bool gate_up = false;
  // Every source begins at a whole panel; what its last panel lacks is rows of zeros, which n counts.
  bool whole_panels = false;
};

// What a packed matrix looks like. A plan borrows the sources' bytes until packing ends.
class PackPlan {
 public:
  // Sources are concatenated along n. Throws InvalidArgumentError for inconsistent sources,
  // UnsupportedError for element types without a kernel.
  explicit PackPlan(std::vector<MatrixSource> sources, PackOptions options = {});

  std::size_t size() const { return size_; }  // bytes of the packed matrix
  WeightKind kind() const { return kind_; }
  std::int64_t panels() const { return panels_; }

  // Packing by parts: the header once, each panel once, in any order and from any thread.
  // `out` is the start of size() bytes, aligned to kPackAlignment.
  void write_header(std::byte* out) const;
  void pack_panels(std::byte* out, std::int64_t panel_begin, std::int64_t panel_end) const;

 private:
  struct Located {
    const MatrixSource* source;  // null: a padding row
    std::int64_t row;
  };
  void choose_kind();
  void choose_layout();
  std::int64_t source_row(std::int64_t panel, std::int64_t row) const;
  Located locate(std::int64_t row) const;
  void pack_integer_panel(std::byte* out, std::int64_t panel, std::span<std::byte> scratch) const;
  void pack_float_panel(std::byte* out, std::int64_t panel, std::span<std::byte> scratch) const;
  std::byte* write_scales(std::byte* out, const Located* rows, std::int64_t column) const;

  std::vector<MatrixSource> sources_;
  std::vector<std::int64_t> first_row_;  // of each source, in the concatenated matrix
  PackOptions options_;
  WeightKind kind_ = WeightKind::kF32;
  std::int64_t n_ = 0, k_ = 0, panels_ = 0;
  std::int64_t block_ = 0;  // columns of an integer dot product: 16 or 32
  std::int64_t group_ = 0;  // such blocks under one scale
  std::int32_t zero_ = 0;   // subtracted from every stored integer
  DType scale_dtype_ = DType::kF32, offset_dtype_ = DType::kF32;
  bool has_offset_ = false;
  std::size_t panel_bytes_ = 0, size_ = 0;
};

// Packs everything on the calling thread; `progress` is told the packed share (0..1) now and then.
void pack(const PackPlan& plan, std::byte* out, const std::function<void(double)>& progress = {});

// A packed matrix in memory it does not own (a mapped cache file, an arena).
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // Checks the header against the bytes. Throws MalformedError; `where` names the file or value in it.
  // `bytes` must be aligned to kPackAlignment.
  static PackedMatrix view(std::span<const std::byte> bytes, std::string_view where);

  WeightKind kind() const { return kind_; }
  std::int64_t n() const { return n_; }  // rows of W
  std::int64_t k() const { return k_; }
  bool gate_up() const { return gate_up_; }
  std::int64_t outputs() const { return gate_up_ ? n_ / 2 : n_; }  // columns of y
  // Units of work: each gives kPanelRows columns of y (the last one perhaps fewer).
  std::int64_t units() const { return (outputs() + kPanelRows - 1) / kPanelRows; }
  std::size_t unit_bytes() const { return gate_up_ ? 2 * panel_bytes_ : panel_bytes_; }
  std::size_t panel_bytes() const { return panel_bytes_; }
  // True when activations must be quantised first (integer weights).
  bool takes_digits() const { return kind_ == WeightKind::kU4 || kind_ == WeightKind::kU8; }

  const std::byte* panel(std::int64_t index) const { return panels_ + static_cast<std::size_t>(index) * panel_bytes_; }
  std::int64_t block() const { return block_; }
  std::int64_t group() const { return group_; }
  std::int32_t zero() const { return zero_; }
  bool scale_is_f16() const { return scale_is_f16_; }
  bool has_offset() const { return has_offset_; }
  bool offset_is_f16() const { return offset_is_f16_; }

 private:
  const std::byte* panels_ = nullptr;
  WeightKind kind_ = WeightKind::kF32;
  bool gate_up_ = false, scale_is_f16_ = false, has_offset_ = false, offset_is_f16_ = false;
  std::int64_t n_ = 0, k_ = 0, block_ = 0, group_ = 0;
  std::int32_t zero_ = 0;
  std::size_t panel_bytes_ = 0;
};

// Bytes of one quantised activation row of k values, a multiple of kPackAlignment. The layout belongs to the level.
std::size_t activation_row_bytes(std::int64_t k, Digits digits, Isa isa);

// Writes rows [row_begin, row_end) of x[., k] (row stride in floats) to out + row * activation_row_bytes.
// Every block of 32 values becomes integers of 8, 16 or 24 bits under the scale max|x| / limit; a block whose largest
// magnitude is below 2^-100 becomes zero, a block with an infinity or NaN makes the row's results NaN.
void quantize_rows(const float* x, std::int64_t x_stride, std::int64_t k, std::int64_t row_begin, std::int64_t row_end,
                   Digits digits, Isa isa, std::byte* out);

struct LinearArgs {
  const PackedMatrix* weights = nullptr;
  std::int64_t m = 0;                 // rows of x and y
  const std::byte* digits = nullptr;  // integer weights: from quantize_rows with the same k, precision and isa
  const float* x = nullptr;           // float weights: [m, k]
  std::int64_t x_stride = 0;          // in floats
  float* y = nullptr;                 // [m, outputs]
  std::int64_t y_stride = 0;          // in floats
  const float* bias = nullptr;        // [n] (gate rows, then up rows), or none
  const float* residual = nullptr;    // [m, outputs] added last, or none; may be y itself
  std::int64_t residual_stride = 0;   // in floats
  Activation activation = Activation::kIdentity;  // on the output; with gate_up on the gate: y = act(gate) * up
  Digits precision = Digits::kFaithful;
  Isa isa = Isa::kPortable;
};

// Columns [32 * unit_begin, 32 * unit_end) of y, all m rows: y = act(x W^T + bias) (* up) + residual.
// Writes nothing else; units may run on any threads in any order. Allocates nothing and throws nothing.
void linear_chunk(const LinearArgs& args, std::int64_t unit_begin, std::int64_t unit_end);

}  // namespace coreai::cpu
