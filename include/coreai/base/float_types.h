// Conversions between f32 and the small float formats. Narrowing rounds to nearest even.
// Sources: IEEE 754-2019 (f16), OCP 8-bit floating point 1.0 (E4M3, E5M2), OCP Microscaling 1.0 (E2M1, E8M0).
#pragma once

#include <bit>
#include <cstdint>

namespace coreai {

inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // keep a NaN quiet
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);
std::uint16_t f64_to_f16(double value);   // one rounding
std::uint16_t f64_to_bf16(double value);  // one rounding

float f8e5m2_to_f32(std::uint8_t bits);
std::uint8_t f32_to_f8e5m2(float value);  // overflow gives infinity
float f8e4m3fn_to_f32(std::uint8_t bits);
std::uint8_t f32_to_f8e4m3fn(float value);  // |value| > 464 gives NaN: the format has no infinity
float f4e2m1fn_to_f32(std::uint8_t bits);   // low four bits
std::uint8_t f32_to_f4e2m1fn(float value);  // saturates at 6
float f8e8m0fnu_to_f32(std::uint8_t bits);  // 2^(bits-127); 255 is NaN
std::uint8_t f32_to_f8e8m0fnu(float value);

}  // namespace coreai
