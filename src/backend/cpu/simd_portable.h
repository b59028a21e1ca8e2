// The vectors of simd_avx2.h with 4 lanes in plain C++ (vector extensions of GCC and Clang).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "coreai/base/float_types.h"

namespace coreai::cpu {
namespace {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));

struct V {
  static constexpr int kLanes = 4;
  Float4 v;
};
struct Mask {
  Int4 v;
};
struct Int {
  Int4 v;
};

inline V load(const float* p) {
  V a;
  std::memcpy(&a.v, p, sizeof a.v);
  return a;
}
inline void store(float* p, V a) {
  std::memcpy(p, &a.v, sizeof a.v);
}
inline V splat(float x) {
  return {Float4{x, x, x, x}};
}
inline V zero() {
  return splat(0.0f);
}
inline V load_n(const float* p, int n) {
  V a = zero();
  for (int i = 0; i < n; ++i) a.v[i] = p[i];
  return a;
}
inline void store_n(float* p, V a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
inline V operator+(V a, V b) {
  return {a.v + b.v};
}
inline V operator-(V a, V b) {
  return {a.v - b.v};
}
inline V operator*(V a, V b) {
  return {a.v * b.v};
}
inline V operator/(V a, V b) {
  return {a.v / b.v};
}
inline V operator-(V a) {
  return {-a.v};
}
// a * b + c with one rounding. The product is exact in f64; the sum is rounded to odd there (Boldo and Melquiond 2008),
// which makes the second rounding exact too.
inline float fma1(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  const double p = static_cast<double>(a) * static_cast<double>(b);
  const double x = static_cast<double>(c);
  double s = p + x;
  const double t = s - p;
  const double error = (p - (s - t)) + (x - t);
  const auto word = std::bit_cast<std::uint64_t>(s);
  // An inexact sum with an even last bit moves one step towards the error.
  const bool inexact = error != 0.0 && (word & 1) == 0 && std::isfinite(s);
  const bool away = (error > 0.0) == (s > 0.0);
  const std::uint64_t moved = away ? word + 1 : word - 1;
  s = std::bit_cast<double>(inexact ? moved : word);
  return static_cast<float>(s);
#endif
}
inline V fma(V a, V b, V c) {
  V r;
  for (int i = 0; i < 4; ++i) r.v[i] = fma1(a.v[i], b.v[i], c.v[i]);
  return r;
}
inline V min(V a, V b) {
  return {a.v < b.v ? a.v : b.v};
}
inline V max(V a, V b) {
  return {a.v > b.v ? a.v : b.v};
}
template <typename Fn>
inline V each_lane(V a, Fn fn) {
  V r;
  for (int i = 0; i < 4; ++i) r.v[i] = fn(a.v[i]);
  return r;
}
inline V sqrt(V a) {
  return each_lane(a, [](float x) { return __builtin_sqrtf(x); });
}
inline V floor(V a) {
  return each_lane(a, [](float x) { return __builtin_floorf(x); });
}
inline V ceil(V a) {
  return each_lane(a, [](float x) { return __builtin_ceilf(x); });
}
inline V trunc(V a) {
  return each_lane(a, [](float x) { return __builtin_truncf(x); });
}
inline V round_even(V a) {
  return each_lane(a, [](float x) { return __builtin_nearbyintf(x); });
}
inline Mask operator<(V a, V b) {
  return {a.v < b.v};
}
inline Mask operator<=(V a, V b) {
  return {a.v <= b.v};
}
inline Mask operator==(V a, V b) {
  return {a.v == b.v};
}
inline Int bits(V a) {
  return {std::bit_cast<Int4>(a.v)};
}
inline V from_bits(Int a) {
  return {std::bit_cast<Float4>(a.v)};
}
inline V select(Mask m, V yes, V no) {
  return from_bits({(bits(yes).v & m.v) | (bits(no).v & ~m.v)});
}
inline V abs(V a) {
  return from_bits({bits(a).v & 0x7fffffff});
}
inline Int splat_int(std::int32_t x) {
  return {Int4{x, x, x, x}};
}
// Through unsigned: two's complement wraps.
using Word4 = std::uint32_t __attribute__((vector_size(16)));
inline Word4 words(Int a) {
  return std::bit_cast<Word4>(a.v);
}
inline Int from_words(Word4 a) {
  return {std::bit_cast<Int4>(a)};
}
inline Int operator+(Int a, Int b) {
  return from_words(words(a) + words(b));
}
inline Int operator-(Int a, Int b) {
  return from_words(words(a) - words(b));
}
inline Int operator&(Int a, Int b) {
  return {a.v & b.v};
}
inline Int operator|(Int a, Int b) {
  return {a.v | b.v};
}
template <int kBits>
inline Int shift_left(Int a) {
  return from_words(words(a) << kBits);
}
template <int kBits>
inline Int shift_right(Int a) {
  return {a.v >> kBits};
}
inline V to_float(Int a) {
  return {__builtin_convertvector(a.v, Float4)};
}

inline V load_f16(const std::uint16_t* p) {
  // Shifted to f32's fields and scaled by 2^112: subnormals come out right; the largest exponent becomes inf or NaN.
  Int4 h;
  for (int i = 0; i < 4; ++i) h[i] = p[i];
  const V magnitude = from_bits({(h & 0x7fff) << 13});
  const V scaled = magnitude * splat(0x1p112f);
  const Int special{bits(scaled).v | 0x7f800000};
  const V value = select({(h & 0x7c00) == 0x7c00}, from_bits(special), scaled);
  return from_bits(bits(value) | shift_left<16>({h & 0x8000}));
}
inline void store_f16(std::uint16_t* p, V a) {
  for (int i = 0; i < 4; ++i) p[i] = f32_to_f16(a.v[i]);
}
inline V load_bf16(const std::uint16_t* p) {
  Int4 h;
  for (int i = 0; i < 4; ++i) h[i] = p[i];
  return from_bits(shift_left<16>({h}));
}
inline void store_bf16(std::uint16_t* p, V a) {
  for (int i = 0; i < 4; ++i) p[i] = f32_to_bf16(a.v[i]);
}
inline V round_to_f16(V a) {
  return each_lane(a, [](float x) { return f16_to_f32(f32_to_f16(x)); });
}
inline V round_to_bf16(V a) {
  return each_lane(a, [](float x) { return bf16_to_f32(f32_to_bf16(x)); });
}
inline void prefetch(const char* p) {
  __builtin_prefetch(p);
}

struct V16 {
  static constexpr int kParts = 4;
  V part[kParts];
};
inline float sum16(const V16& a) {
  const Float4 r4 = (a.part[0].v + a.part[2].v) + (a.part[1].v + a.part[3].v);
  return (r4[0] + r4[2]) + (r4[1] + r4[3]);
}
inline float max16(const V16& a) {
  const V r4 = max(max(a.part[0], a.part[2]), max(a.part[1], a.part[3]));
  const float even = r4.v[0] > r4.v[2] ? r4.v[0] : r4.v[2];
  const float odd = r4.v[1] > r4.v[3] ? r4.v[1] : r4.v[3];
  return even > odd ? even : odd;
}
inline float first_lane(V a) {
  return a.v[0];
}

}  // namespace
}  // namespace coreai::cpu
