// What the levels' translation units share: plain structs and the table of entry points. Nothing here may be an inline
// function with external linkage (see CMakeLists.txt).
#pragma once

#include <cstddef>
#include <cstdint>

namespace coreai::cpu {

// Where the parts of one quantised activation row lie, in bytes from its start. Blocks are of 32 columns.
//   scale  f32[blocks]         value = integer * scale
//   sum32  f32[blocks]         sum of a block's values
//   sum16  f32[2 blocks]       sum of each half's values
//   isum   i32[2 blocks]       sum of each half's integers, without the low digit at three digits
//   isum_low i32[2 blocks]     three digits: sum of each half's low digits
//   digits i8[blocks][digits][32]  highest digit first
//   words  i16[blocks][1 or 2][32] one or two digits: the integers; three: integer >> 8 (rounded) and the low digit;
//                                  columns of each four in the order 0 2 1 3 (how a byte pair widens to 16 bits)
struct ActivationLayout {
  std::int64_t k;
  std::int64_t blocks;
  std::int32_t digits;
  std::int32_t limit;  // largest magnitude of an integer
  bool has_words;
  std::size_t scale, sum32, sum16, isum, isum_low, digit_bytes, words, row_bytes;
};

enum class KernelKind : std::uint8_t { kU4, kU8, kF16, kBF16, kF32 };
enum class KernelActivation : std::uint8_t { kIdentity, kSilu, kGeluTanh, kGeluErf };

struct LinearKernelArgs {
  // weights
  const std::byte* panels;
  std::size_t panel_bytes;
  KernelKind kind;
  bool gate_up, scale_is_f16, has_offset, offset_is_f16;
  std::int64_t k, outputs;
  std::int64_t block, group;  // integer kinds: columns of a dot product (16 or 32), dot products under one scale
  std::int32_t zero;
  // activations
  std::int64_t m;
  const std::byte* rows;  // quantised, layout.row_bytes apart
  ActivationLayout layout;
  const float* x;
  std::int64_t x_stride;
  // result
  float* y;
  std::int64_t y_stride;
  const float* bias;
  const float* residual;
  std::int64_t residual_stride;
  KernelActivation activation;
};

struct LinearKernels {
  void (*quantize_row)(const float* x, const ActivationLayout& layout, std::byte* out);
  void (*linear)(const LinearKernelArgs& args, std::int64_t unit_begin, std::int64_t unit_end);
};

// Of levels that this build was not compiled for: the portable table.
const LinearKernels& portable_linear_kernels();
const LinearKernels& avx2_linear_kernels();
const LinearKernels& avx512_linear_kernels();

}  // namespace coreai::cpu
