#include "backend/cpu/linear_simd.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__)
#include <immintrin.h>

namespace coreai::cpu {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
  using F = __m512;
  using I = __m512i;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void store_int(std::int32_t* p, I x) { _mm512_storeu_si512(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F abs(F a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
  static F select_negative(F sign, F negative, F other) {
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(sign)), other, negative);
  }
  static I to_int(F x) { return _mm512_cvtps_epi32(x); }
  static F scale_by_power(F x, I n) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(n, 23)));
  }
  static F load_f16(const std::byte* p) { return _mm512_cvtph_ps(load_half(p)); }
  static F load_bf16(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_half(p)), 16));
  }
  static __m256i load_half(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static __m512i load_bytes(const std::byte* p) { return _mm512_loadu_si512(p); }
  static __m512i broadcast(const std::byte* p) {  // four bytes to every lane
    std::int32_t four = 0;
    __builtin_memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
  }

  static std::uint32_t largest_magnitude(const float* x) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    const __m512i first = _mm512_and_si512(mask, _mm512_castps_si512(load(x)));
    const __m512i second = _mm512_and_si512(mask, _mm512_castps_si512(load(x + 16)));
    return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(_mm512_max_epi32(first, second)));
  }

  template <int D>
  static COREAI_ALWAYS_INLINE void encode(const std::int32_t* q, std::int8_t* digits, std::int16_t*, BlockSums& sums) {
    for (int half = 0; half < 2; ++half) {
      __m512i value = _mm512_loadu_si512(q + 16 * half);
      if (D == 3) {
        sums.low[half] = _mm512_reduce_add_epi32(_mm512_srai_epi32(_mm512_slli_epi32(value, 24), 24));
        store_digits(digits + 64 + 16 * half, value);
        value = next_digit(value);
      }
      sums.high[half] = _mm512_reduce_add_epi32(value);
      if (D >= 2) {
        store_digits(digits + 32 + 16 * half, value);
        value = next_digit(value);
      }
      store_digits(digits + 16 * half, value);
    }
  }
  static COREAI_ALWAYS_INLINE void store_digits(std::int8_t* out, __m512i value) {  // the low bytes
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(value));
  }
  static COREAI_ALWAYS_INLINE __m512i next_digit(__m512i value) {  // (value - signed low byte) / 256
    return _mm512_srai_epi32(_mm512_add_epi32(value, _mm512_set1_epi32(128)), 8);
  }

  // Measured on Zen 4: prefetching an ascending stream costs up to 16 %.
  static constexpr int kPrefetchAhead = 0;

  template <int D, int B>
  static COREAI_ALWAYS_INLINE const std::byte* digits_of(const RowView& x, std::int64_t b) {
    return B == 32 ? x.digits + b * 32 * D : x.digits + b / 2 * 32 * D + b % 2 * 16;
  }
  template <int B>
  static COREAI_ALWAYS_INLINE __m512i zero_term(const std::int32_t* isum, std::int64_t b, std::int32_t zero) {
    return _mm512_set1_epi32(wrapped_product(zero, isum[B == 32 ? 2 * b : b], B == 32 ? isum[2 * b + 1] : 0));
  }

  // Sums of the digits to the float of the exact integer; `sum` holds the highest digit first.
  template <int D>
  static COREAI_ALWAYS_INLINE F join_digits(const __m512i* sum, bool has_zero, __m512i term, __m512i low_term) {
    __m512i high = sum[0];
    if (D >= 2) high = _mm512_add_epi32(_mm512_slli_epi32(high, 8), sum[D >= 2 ? 1 : 0]);
    if (has_zero) high = _mm512_sub_epi32(high, term);
    if (D < 3) return _mm512_cvtepi32_ps(high);
    __m512i low = sum[D - 1];
    if (has_zero) low = _mm512_sub_epi32(low, low_term);
    return fma(_mm512_cvtepi32_ps(high), set1(256.0f), _mm512_cvtepi32_ps(low));
  }

  template <KernelKind kKind, int D, int B>
  static COREAI_ALWAYS_INLINE void dot(const std::byte* weights, const RowView& x, std::int64_t b, std::int32_t zero,
                                       F* f) {
    const std::byte* digits = digits_of<D, B>(x, b);
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i sum[2][D];
    for (int v = 0; v < 2; ++v) {
      for (int d = 0; d < D; ++d) sum[v][d] = _mm512_setzero_si512();
    }
    if constexpr (kKind == KernelKind::kU4) {
#pragma GCC unroll 4
      for (int p = 0; p < B / 8; ++p) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          const __m512i q = load_bytes(weights + p * 128 + v * 64);
          const __m512i lower = _mm512_and_si512(q, mask);
          const __m512i upper = _mm512_and_si512(_mm512_srli_epi16(q, 4), mask);
          for (int d = 0; d < D; ++d) {
            sum[v][d] = _mm512_dpbusd_epi32(sum[v][d], lower, broadcast(digits + 32 * d + 8 * p));
            sum[v][d] = _mm512_dpbusd_epi32(sum[v][d], upper, broadcast(digits + 32 * d + 8 * p + 4));
          }
        }
      }
    } else {
#pragma GCC unroll 8
      for (int s = 0; s < B / 4; ++s) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          const __m512i q = load_bytes(weights + s * 128 + v * 64);
          for (int d = 0; d < D; ++d) {
            sum[v][d] = _mm512_dpbusd_epi32(sum[v][d], q, broadcast(digits + 32 * d + 4 * s));
          }
        }
      }
    }
    const bool has_zero = zero != 0;
    const __m512i term = has_zero ? zero_term<B>(x.isum, b, zero) : _mm512_setzero_si512();
    const __m512i low_term = has_zero && D == 3 ? zero_term<B>(x.isum_low, b, zero) : _mm512_setzero_si512();
    for (int v = 0; v < 2; ++v) f[v] = join_digits<D>(sum[v], has_zero, term, low_term);
  }

  // ---- many rows: nibbles widened to bytes; 27 or fewer accumulators of the 32 registers ----------------------------

  static constexpr int kTileMinimum = 2;
  static constexpr int kTileVectors = 2;
  static constexpr int kTileChunkBytes = 16384;
  template <int D>
  static constexpr int tile_tokens() {
    return D == 1 ? 6 : (D == 2 ? 4 : 3);
  }
  // A block's bytes and the 64 bytes that hold its zero point.
  template <int B>
  static constexpr int tile_bytes() {
    return 32 * B + 64;
  }

  template <KernelKind kKind, int B>
  static void tile_unpack(const std::byte* weights, std::int32_t zero, std::byte* out) {
    if constexpr (kKind == KernelKind::kU4) {
      const __m512i mask = _mm512_set1_epi8(15);
      for (int p = 0; p < B / 8; ++p) {
        for (int v = 0; v < 2; ++v) {
          const __m512i q = load_bytes(weights + p * 128 + v * 64);
          _mm512_store_si512(out + p * 256 + v * 64, _mm512_and_si512(q, mask));
          _mm512_store_si512(out + p * 256 + v * 64 + 128, _mm512_and_si512(_mm512_srli_epi16(q, 4), mask));
        }
      }
    } else {
      for (int i = 0; i < 32 * B; i += 64) _mm512_store_si512(out + i, load_bytes(weights + i));
    }
    __builtin_memcpy(out + 32 * B, &zero, 4);
  }

  template <int D, int B, int T>
  static COREAI_ALWAYS_INLINE void tile_dot(const std::byte* unpacked, int, const RowView* x, std::int64_t b,
                                            F (*f)[kTileVectors]) {
    const std::byte* digits[T];
    for (int t = 0; t < T; ++t) digits[t] = digits_of<D, B>(x[t], b);
    __m512i sum[T][2][D];
    for (int t = 0; t < T; ++t) {
      for (int d = 0; d < D; ++d) sum[t][0][d] = sum[t][1][d] = _mm512_setzero_si512();
    }
#pragma GCC unroll 8
    for (int s = 0; s < B / 4; ++s) {
      const __m512i w0 = load_bytes(unpacked + s * 128);
      const __m512i w1 = load_bytes(unpacked + s * 128 + 64);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 3
        for (int d = 0; d < D; ++d) {
          const __m512i value = broadcast(digits[t] + 32 * d + 4 * s);
          sum[t][0][d] = _mm512_dpbusd_epi32(sum[t][0][d], w0, value);
          sum[t][1][d] = _mm512_dpbusd_epi32(sum[t][1][d], w1, value);
        }
      }
    }
    std::int32_t zero = 0;
    __builtin_memcpy(&zero, unpacked + 32 * B, 4);
    const bool has_zero = zero != 0;
    for (int t = 0; t < T; ++t) {
      const __m512i term = has_zero ? zero_term<B>(x[t].isum, b, zero) : _mm512_setzero_si512();
      const __m512i low = has_zero && D == 3 ? zero_term<B>(x[t].isum_low, b, zero) : _mm512_setzero_si512();
      for (int w = 0; w < 2; ++w) f[t][w] = join_digits<D>(sum[t][w], has_zero, term, low);
    }
  }

  static constexpr int kFloatTileMinimum = 2;
  static constexpr int kFloatTileTokens = 12;
  static constexpr int kFloatTileVectors = 2;
};

}  // namespace

const LinearKernels& avx512_linear_kernels() {
  static const LinearKernels kernels{&LinearImpl<Avx512>::quantize_row, &LinearImpl<Avx512>::linear};
  return kernels;
}

}  // namespace coreai::cpu

#else

namespace coreai::cpu {

const LinearKernels& avx512_linear_kernels() {
  return portable_linear_kernels();
}

}  // namespace coreai::cpu

#endif
