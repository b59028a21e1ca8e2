// Vectors of one instruction-set level. simd_{portable,avx2,avx512}.h define the same names; a kernels_*.cpp includes
// exactly one of them. All have internal linkage (CMakeLists.txt says why).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace coreai::cpu {
namespace {

struct V {
  static constexpr int kLanes = 8;
  __m256 v;
};
struct Mask {
  __m256 v;
};
struct Int {
  __m256i v;
};

inline V load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline void store(float* p, V a) {
  _mm256_storeu_ps(p, a.v);
}
inline V splat(float x) {
  return {_mm256_set1_ps(x)};
}
inline V zero() {
  return {_mm256_setzero_ps()};
}
inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// The first n lanes; the others read 0 and are not written. 0 <= n <= kLanes.
inline V load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_lanes(n))};
}
inline void store_n(float* p, V a, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), a.v);
}
inline V operator+(V a, V b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline V operator-(V a, V b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline V operator*(V a, V b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline V operator/(V a, V b) {
  return {_mm256_div_ps(a.v, b.v)};
}
inline V operator-(V a) {
  return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f))};
}
inline V fma(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
// a < b ? a : b and a > b ? a : b: b where either is NaN.
inline V min(V a, V b) {
  return {_mm256_min_ps(a.v, b.v)};
}
inline V max(V a, V b) {
  return {_mm256_max_ps(a.v, b.v)};
}
inline V sqrt(V a) {
  return {_mm256_sqrt_ps(a.v)};
}
inline V abs(V a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)};
}
inline V floor(V a) {
  return {_mm256_floor_ps(a.v)};
}
inline V ceil(V a) {
  return {_mm256_ceil_ps(a.v)};
}
inline V trunc(V a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
}
inline V round_even(V a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Mask operator<(V a, V b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)};
}
inline Mask operator<=(V a, V b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)};
}
inline Mask operator==(V a, V b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)};
}
inline V select(Mask m, V yes, V no) {
  return {_mm256_blendv_ps(no.v, yes.v, m.v)};
}
inline Int bits(V a) {
  return {_mm256_castps_si256(a.v)};
}
inline V from_bits(Int a) {
  return {_mm256_castsi256_ps(a.v)};
}
inline Int splat_int(std::int32_t x) {
  return {_mm256_set1_epi32(x)};
}
inline Int operator+(Int a, Int b) {
  return {_mm256_add_epi32(a.v, b.v)};
}
inline Int operator-(Int a, Int b) {
  return {_mm256_sub_epi32(a.v, b.v)};
}
inline Int operator&(Int a, Int b) {
  return {_mm256_and_si256(a.v, b.v)};
}
inline Int operator|(Int a, Int b) {
  return {_mm256_or_si256(a.v, b.v)};
}
template <int kBits>
inline Int shift_left(Int a) {
  return {_mm256_slli_epi32(a.v, kBits)};
}
template <int kBits>
inline Int shift_right(Int a) {  // arithmetic
  return {_mm256_srai_epi32(a.v, kBits)};
}
inline V to_float(Int a) {
  return {_mm256_cvtepi32_ps(a.v)};
}

// f16 and bf16 as raw bits.
inline V load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline void store_f16(std::uint16_t* p, V a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline V load_bf16(const std::uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}
// Rounds to nearest even; NaN stays a quiet NaN. The low half of each lane is 0 afterwards.
inline __m256i rounded_bf16(V a) {
  const __m256i x = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x00400000));
  const __m256 nan = _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q);
  return _mm256_and_si256(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan)),
                          _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
}
inline void store_bf16(std::uint16_t* p, V a) {
  const __m256i r = _mm256_srli_epi32(rounded_bf16(a), 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
inline V round_to_f16(V a) {
  return {_mm256_cvtph_ps(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT))};
}
inline V round_to_bf16(V a) {
  return {_mm256_castsi256_ps(rounded_bf16(a))};
}
inline void prefetch(const char* p) {
  _mm_prefetch(p, _MM_HINT_T0);
}

// Sixteen running values: the lanes over which a reduction is spread at every level.
struct V16 {
  static constexpr int kParts = 2;
  V part[kParts];
};
// ((l0+l8)+(l4+l12)) + ((l2+l10)+(l6+l14)) + the same for odd lanes.
inline float sum16(const V16& a) {
  const __m256 r8 = _mm256_add_ps(a.part[0].v, a.part[1].v);
  const __m128 r4 = _mm_add_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));
  const __m128 r2 = _mm_add_ps(r4, _mm_movehl_ps(r4, r4));
  return _mm_cvtss_f32(_mm_add_ss(r2, _mm_movehdup_ps(r2)));
}
inline float max16(const V16& a) {
  const __m256 r8 = _mm256_max_ps(a.part[0].v, a.part[1].v);
  const __m128 r4 = _mm_max_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));
  const __m128 r2 = _mm_max_ps(r4, _mm_movehl_ps(r4, r4));
  return _mm_cvtss_f32(_mm_max_ss(r2, _mm_movehdup_ps(r2)));
}
inline float first_lane(V a) {
  return _mm256_cvtss_f32(a.v);
}

}  // namespace
}  // namespace coreai::cpu
