#include "coreai/base/float_types.h"

#include <array>
#include <cmath>
#include <limits>

namespace coreai {
namespace {

// Rounds a finite double to `mantissa` explicit bits with smallest normal exponent `min_exponent`, nearest even.
double round_to_format(double value, int mantissa, int min_exponent) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, min_exponent);
  const double quantum = std::ldexp(1.0, exponent - mantissa);
  return std::nearbyint(value / quantum) * quantum;  // the default rounding mode is to nearest even
}

// Bits of a value that is already representable in a format with the given mantissa and bias.
std::uint32_t encode(double value, int exponent_bits, int mantissa, int bias) {
  const std::uint32_t sign = std::signbit(value) ? 1u << (exponent_bits + mantissa) : 0u;
  const double magnitude = std::fabs(value);
  if (magnitude == 0.0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  --exponent;
  if (exponent < 1 - bias) {
    return sign | static_cast<std::uint32_t>(std::ldexp(magnitude, bias - 1 + mantissa));
  }
  const double fraction = std::ldexp(magnitude, mantissa - exponent) - std::ldexp(1.0, mantissa);
  return sign | (static_cast<std::uint32_t>(exponent + bias) << mantissa) | static_cast<std::uint32_t>(fraction);
}

double decode(std::uint32_t bits, int exponent_bits, int mantissa, int bias) {
  const std::uint32_t exponent = (bits >> mantissa) & ((1u << exponent_bits) - 1);
  const std::uint32_t fraction = bits & ((1u << mantissa) - 1);
  const double sign = (bits >> (exponent_bits + mantissa)) & 1u ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(fraction), 1 - bias - mantissa);
  return sign *
         std::ldexp(static_cast<double>((1u << mantissa) | fraction), static_cast<int>(exponent) - bias - mantissa);
}

std::uint16_t to_f16(double value) {
  if (std::isnan(value)) return 0x7e00;
  const double rounded = round_to_format(value, 10, -14);
  if (std::fabs(rounded) > 65504.0) return std::signbit(value) ? 0xfc00 : 0x7c00;
  return static_cast<std::uint16_t>(encode(rounded, 5, 10, 15));
}

}  // namespace

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude >= 0x38800000u) {  // normal: rebias and round to nearest even in the integer domain
    const std::uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (rounded >> 13));
  }
  // Subnormal: adding 0.5 makes the hardware round at 2^-24.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
}

std::uint16_t f64_to_f16(double value) {
  return to_f16(value);
}

std::uint16_t f64_to_bf16(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const double rounded = round_to_format(value, 7, -126);
  if (std::fabs(rounded) > std::ldexp(255.0, 120)) return std::signbit(value) ? 0xff80 : 0x7f80;
  return f32_to_bf16(static_cast<float>(rounded));
}

float f8e5m2_to_f32(std::uint8_t bits) {
  return f16_to_f32(static_cast<std::uint16_t>(bits << 8));
}

std::uint8_t f32_to_f8e5m2(float value) {
  if (std::isnan(value)) return 0x7e;
  const double rounded = round_to_format(static_cast<double>(value), 2, -14);
  if (std::fabs(rounded) > 57344.0) return std::signbit(value) ? 0xfc : 0x7c;
  return static_cast<std::uint8_t>(encode(rounded, 5, 2, 15));
}

float f8e4m3fn_to_f32(std::uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(decode(bits, 4, 3, 7));
}

std::uint8_t f32_to_f8e4m3fn(float value) {
  const std::uint8_t nan = std::signbit(value) ? 0xff : 0x7f;
  if (!std::isfinite(value) || std::fabs(value) > 464.0f) return nan;
  double rounded = round_to_format(static_cast<double>(value), 3, -6);
  if (std::fabs(rounded) > 448.0) rounded = std::copysign(448.0, rounded);
  return static_cast<std::uint8_t>(encode(rounded, 4, 3, 7));
}

float f4e2m1fn_to_f32(std::uint8_t bits) {
  constexpr std::array<float, 8> kValues = {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f};
  const float magnitude = kValues[bits & 7u];
  return bits & 8u ? -magnitude : magnitude;
}

std::uint8_t f32_to_f4e2m1fn(float value) {
  if (std::isnan(value)) return 0;  // the format has no NaN
  double rounded = round_to_format(static_cast<double>(value), 1, 0);
  if (std::fabs(rounded) > 6.0) rounded = std::copysign(6.0, rounded);
  return static_cast<std::uint8_t>(encode(rounded, 2, 1, 1));
}

float f8e8m0fnu_to_f32(std::uint8_t bits) {
  if (bits == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, static_cast<int>(bits) - 127);
}

std::uint8_t f32_to_f8e8m0fnu(float value) {
  if (std::isnan(value) || value < 0.0f) return 255;
  if (value <= 0x1p-127f) return 0;
  if (std::isinf(value)) return 254;
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);  // value = fraction * 2^exponent, fraction in [0.5, 1)
  const int code = exponent - 1 + 127 + (fraction > 0.75f || (fraction == 0.75f && ((exponent - 1) & 1)) ? 1 : 0);
  return static_cast<std::uint8_t>(std::min(std::max(code, 0), 254));
}

}  // namespace coreai
