// Reference dequantisation of ggml's blocks, scalar. Layouts: ggml-common.h; roundings as in ggml-quants.c.
#include <fmt/format.h>

#include <cstring>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"
#include "exporter/blocks.h"

namespace coreai {
namespace {

using blocks::byte_at;
using blocks::half_at;

void dequantize_half(const std::byte* in, std::span<float> out, float (*widen)(std::uint16_t)) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = widen(bits);
  }
}

// d * (q - 8), or d * q + m.
void dequantize_q4(const std::byte* block, float* out, bool with_minimum) {
  const float d = half_at(block, 0);
  const float m = with_minimum ? half_at(block, 2) : 0.0f;
  std::uint8_t q[32];
  blocks::unpack_q4(block + (with_minimum ? 4 : 2), q);
  for (int i = 0; i < 32; ++i) {
    const auto value = static_cast<float>(q[i]);
    out[i] = with_minimum ? d * value + m : d * (value - 8.0f);
  }
}

// d * (q - 16), or d * q + m.
void dequantize_q5(const std::byte* block, float* out, bool with_minimum) {
  const float d = half_at(block, 0);
  const float m = with_minimum ? half_at(block, 2) : 0.0f;
  std::uint8_t q[32];
  blocks::unpack_q5(block + (with_minimum ? 4 : 2), q);
  for (int i = 0; i < 32; ++i) {
    const auto value = static_cast<float>(q[i]);
    out[i] = with_minimum ? d * value + m : d * (value - 16.0f);
  }
}

void dequantize_q8(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<std::int8_t>(byte_at(block, 2 + i)));
}

// Eight groups of 32 with 6-bit scale and minimum: d*sc*q - dmin*m.
void dequantize_k(const std::byte* block, float* out, bool five_bits) {
  const blocks::KScales scales = blocks::k_scales(block);
  std::uint8_t q[256];
  five_bits ? blocks::unpack_q5_k(block, q) : blocks::unpack_q4_k(block, q);
  for (int i = 0; i < 256; ++i) out[i] = scales.scale[i / 32] * static_cast<float>(q[i]) - scales.minimum[i / 32];
}

// Sixteen groups of 16 with an 8-bit scale: d*sc*(q - 32).
void dequantize_q6_k(const std::byte* block, float* out) {
  float scale[16];
  std::int8_t q[256];
  blocks::q6_k_scales(block, scale);
  blocks::unpack_q6_k(block, q);
  for (int i = 0; i < 256; ++i) out[i] = scale[i / 16] * static_cast<float>(q[i]);
}

void dequantize_block(GgmlType type, const std::byte* block, float* out) {
  switch (type) {
    case GgmlType::kQ4_0:
      return dequantize_q4(block, out, false);
    case GgmlType::kQ4_1:
      return dequantize_q4(block, out, true);
    case GgmlType::kQ5_0:
      return dequantize_q5(block, out, false);
    case GgmlType::kQ5_1:
      return dequantize_q5(block, out, true);
    case GgmlType::kQ8_0:
      return dequantize_q8(block, out);
    case GgmlType::kQ4_K:
      return dequantize_k(block, out, false);
    case GgmlType::kQ5_K:
      return dequantize_k(block, out, true);
    case GgmlType::kQ6_K:
      return dequantize_q6_k(block, out);
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      break;
  }
  throw InternalError(fmt::format("{} has no blocks", ggml_type_name(type)));
}

}  // namespace

void dequantize(GgmlType type, std::span<const std::byte> bytes, std::span<float> out) {
  const auto info = ggml_type_info(type);
  if (!info) throw UnsupportedError(fmt::format("{} cannot be dequantised", ggml_type_name(type)));
  if (bytes.size() % info->block_bytes != 0 || bytes.size() / info->block_bytes * info->block_elements != out.size())
    throw ShapeError(fmt::format("{} bytes of {} are not {} values", bytes.size(), info->name, out.size()));
  if (out.empty()) return;
  if (type == GgmlType::kF32) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
  } else if (type == GgmlType::kF16) {
    dequantize_half(bytes.data(), out, f16_to_f32);
  } else if (type == GgmlType::kBF16) {
    dequantize_half(bytes.data(), out, bf16_to_f32);
  } else {
    for (std::size_t b = 0; b * info->block_elements < out.size(); ++b)
      dequantize_block(type, bytes.data() + b * info->block_bytes, out.data() + b * info->block_elements);
  }
}

}  // namespace coreai
