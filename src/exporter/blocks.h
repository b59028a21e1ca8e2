// Integers and scales inside ggml's quantised blocks, in the order of the elements. Source: ggml-common.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "coreai/base/float_types.h"
#include "coreai/exporter/gguf.h"

namespace coreai::blocks {

inline std::uint8_t byte_at(const std::byte* block, int i) {
  return static_cast<std::uint8_t>(block[i]);
}
inline std::uint16_t half_bits_at(const std::byte* block, int i) {
  std::uint16_t bits;
  std::memcpy(&bits, block + i, 2);
  return bits;
}
inline float half_at(const std::byte* block, int i) {
  return f16_to_f32(half_bits_at(block, i));
}

// Q4_0, Q4_1: 16 bytes; low nibbles are elements 0-15, high nibbles 16-31.
void unpack_q4(const std::byte* nibbles, std::uint8_t* q);
// Q5_0, Q5_1: 4 bytes of fifth bits (bit i of element i), then 16 bytes as above. 0..31.
void unpack_q5(const std::byte* bits, std::uint8_t* q);

// Q4_K, Q5_K: f16 d, f16 dmin, then twelve bytes with eight 6-bit scales and minima.
struct KScales {
  float scale[8];    // d * sc, exact in f32
  float minimum[8];  // dmin * m, exact in f32
};
KScales k_scales(const std::byte* block);
void unpack_q4_k(const std::byte* block, std::uint8_t* q);  // 256 values 0..15
void unpack_q5_k(const std::byte* block, std::uint8_t* q);  // 256 values 0..31

// Q6_K: 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, f16 d.
void q6_k_scales(const std::byte* block, float* scale);    // 16 values d * sc, exact in f32
void unpack_q6_k(const std::byte* block, std::int8_t* q);  // 256 values -32..31

}  // namespace coreai::blocks
