// The vectors of simd_avx2.h with 16 lanes, AVX-512 F, BW, DQ and VL.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace coreai::cpu {
namespace {

struct V {
  static constexpr int kLanes = 16;
  __m512 v;
};
struct Mask {
  __mmask16 v;
};
struct Int {
  __m512i v;
};

inline V load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline void store(float* p, V a) {
  _mm512_storeu_ps(p, a.v);
}
inline V splat(float x) {
  return {_mm512_set1_ps(x)};
}
inline V zero() {
  return {_mm512_setzero_ps()};
}
inline __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
inline V load_n(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
inline void store_n(float* p, V a, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}
inline V operator+(V a, V b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline V operator-(V a, V b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline V operator*(V a, V b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline V operator/(V a, V b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline V operator-(V a) {
  return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))};
}
inline V fma(V a, V b, V c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline V min(V a, V b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline V max(V a, V b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline V sqrt(V a) {
  return {_mm512_sqrt_ps(a.v)};
}
inline V abs(V a) {
  return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)};
}
inline V floor(V a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}
inline V ceil(V a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)};
}
inline V trunc(V a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
}
inline V round_even(V a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Mask operator<(V a, V b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
inline Mask operator<=(V a, V b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)};
}
inline Mask operator==(V a, V b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
inline V select(Mask m, V yes, V no) {
  return {_mm512_mask_blend_ps(m.v, no.v, yes.v)};
}
inline Int bits(V a) {
  return {_mm512_castps_si512(a.v)};
}
inline V from_bits(Int a) {
  return {_mm512_castsi512_ps(a.v)};
}
inline Int splat_int(std::int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline Int operator+(Int a, Int b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline Int operator-(Int a, Int b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
inline Int operator&(Int a, Int b) {
  return {_mm512_and_si512(a.v, b.v)};
}
inline Int operator|(Int a, Int b) {
  return {_mm512_or_si512(a.v, b.v)};
}
template <int kBits>
inline Int shift_left(Int a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
inline Int shift_right(Int a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}
inline V to_float(Int a) {
  return {_mm512_cvtepi32_ps(a.v)};
}

inline V load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store_f16(std::uint16_t* p, V a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline V load_bf16(const std::uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline __m512i rounded_bf16(V a) {
  const __m512i x = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(x, _mm512_set1_epi32(0x00400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return _mm512_and_si512(_mm512_mask_blend_epi32(nan, rounded, quiet),
                          _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
}
inline void store_bf16(std::uint16_t* p, V a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(a), 16)));
}
inline V round_to_f16(V a) {
  return {_mm512_cvtph_ps(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT))};
}
inline V round_to_bf16(V a) {
  return {_mm512_castsi512_ps(rounded_bf16(a))};
}
inline void prefetch(const char* p) {
  _mm_prefetch(p, _MM_HINT_T0);
}

struct V16 {
  static constexpr int kParts = 1;
  V part[kParts];
};
inline float sum16(const V16& a) {
  const __m256 r8 = _mm256_add_ps(_mm512_castps512_ps256(a.part[0].v), _mm512_extractf32x8_ps(a.part[0].v, 1));
  const __m128 r4 = _mm_add_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));
  const __m128 r2 = _mm_add_ps(r4, _mm_movehl_ps(r4, r4));
  return _mm_cvtss_f32(_mm_add_ss(r2, _mm_movehdup_ps(r2)));
}
inline float max16(const V16& a) {
  const __m256 r8 = _mm256_max_ps(_mm512_castps512_ps256(a.part[0].v), _mm512_extractf32x8_ps(a.part[0].v, 1));
  const __m128 r4 = _mm_max_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));
  const __m128 r2 = _mm_max_ps(r4, _mm_movehl_ps(r4, r4));
  return _mm_cvtss_f32(_mm_max_ss(r2, _mm_movehdup_ps(r2)));
}
inline float first_lane(V a) {
  return _mm512_cvtss_f32(a.v);
}

}  // namespace
}  // namespace coreai::cpu
