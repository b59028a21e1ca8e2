#include "backend/cpu/linear_simd.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

namespace coreai::cpu {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8;
  using F = __m256;
  using I = __m256i;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void store_int(std::int32_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F select_negative(F sign, F negative, F other) { return _mm256_blendv_ps(other, negative, sign); }
  static I to_int(F x) { return _mm256_cvtps_epi32(x); }
  static F scale_by_power(F x, I n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(n, 23)));
  }
  static F load_f16(const std::byte* p) { return _mm256_cvtph_ps(load_half(p)); }
  static F load_bf16(const std::byte* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(p)), 16));
  }
  static __m128i load_half(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static __m256i load_bytes(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static __m256i broadcast(const std::byte* p) {  // four bytes to every lane
    std::int32_t four = 0;
    __builtin_memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
  }

  static std::uint32_t largest_magnitude(const float* x) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < 32; i += 8) {
      largest = _mm256_max_epi32(largest, _mm256_and_si256(mask, _mm256_castps_si256(load(x + i))));
    }
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
  }

  // Sum of a block's integers times the zero point, in every lane.
  template <int B>
  static COREAI_ALWAYS_INLINE __m256i zero_term(const std::int32_t* isum, std::int64_t b, std::int32_t zero) {
    return _mm256_set1_epi32(zero * (B == 32 ? isum[2 * b] + isum[2 * b + 1] : isum[b]));
  }

  template <KernelKind kKind, int D, int B>
  static COREAI_ALWAYS_INLINE void dot(const std::byte* weights, const RowView& x, std::int64_t b, std::int32_t zero,
                                       F* f) {
    __m256i high[4];  // sums over the upper 16 bits of x (all of it below three digits)
    __m256i low[4];   // three digits: over the lowest digit
    if constexpr (kKind == KernelKind::kU4) {
      dot_nibbles<D, B>(weights, digits_of<D, B>(x, b), high, low);
    } else {
      dot_words<B>(weights, words_of<D, B>(x, b), high);
      if (D == 3) dot_words<B>(weights, words_of<D, B>(x, b) + 64, low);
    }
    if (zero != 0) {
      const __m256i term = zero_term<B>(x.isum, b, zero);
      for (int v = 0; v < 4; ++v) high[v] = _mm256_sub_epi32(high[v], term);
      if (D == 3) {
        const __m256i low_term = zero_term<B>(x.isum_low, b, zero);
        for (int v = 0; v < 4; ++v) low[v] = _mm256_sub_epi32(low[v], low_term);
      }
    }
    for (int v = 0; v < 4; ++v) {
      f[v] = _mm256_cvtepi32_ps(high[v]);
      if (D == 3) f[v] = fma(f[v], set1(256.0f), _mm256_cvtepi32_ps(low[v]));
    }
  }

  template <int D, int B>
  static COREAI_ALWAYS_INLINE const std::byte* digits_of(const RowView& x, std::int64_t b) {
    return B == 32 ? x.digits + b * 32 * D : x.digits + b / 2 * 32 * D + b % 2 * 16;
  }
  template <int D, int B>
  static COREAI_ALWAYS_INLINE const std::byte* words_of(const RowView& x, std::int64_t b) {
    constexpr int kPlanes = D == 3 ? 2 : 1;
    return B == 32 ? x.words + b * 64 * kPlanes : x.words + b / 2 * 64 * kPlanes + b % 2 * 32;
  }

  // Byte products in pairs: 2 * 15 * 128 * 8 steps = 30720 stays within 16 bits, so a block needs no widening inside.
  template <int D, int B>
  static COREAI_ALWAYS_INLINE void dot_nibbles(const std::byte* weights, const std::byte* digits, __m256i* high,
                                               __m256i* low) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i sum[D][4];
#pragma GCC unroll 4
    for (int p = 0; p < B / 8; ++p) {
#pragma GCC unroll 2
      for (int upper = 0; upper < 2; ++upper) {
        __m256i x[D];
        for (int d = 0; d < D; ++d) x[d] = broadcast(digits + 32 * d + 8 * p + 4 * upper);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          __m256i q = load_bytes(weights + p * 128 + v * 32);
          if (upper != 0) q = _mm256_srli_epi16(q, 4);
          q = _mm256_and_si256(q, mask);
          for (int d = 0; d < D; ++d) {
            const __m256i product = _mm256_maddubs_epi16(q, x[d]);
            sum[d][v] = p == 0 && upper == 0 ? product : _mm256_add_epi16(sum[d][v], product);
          }
        }
      }
    }
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i weight = _mm256_set1_epi16(256);
    for (int v = 0; v < 4; ++v) {
      if (D == 1) high[v] = _mm256_madd_epi16(sum[0][v], ones);
      if (D >= 2) {
        high[v] =
            _mm256_add_epi32(_mm256_madd_epi16(sum[0][v], weight), _mm256_madd_epi16(sum[D >= 2 ? 1 : 0][v], ones));
      }
      if (D == 3) low[v] = _mm256_madd_epi16(sum[D - 1][v], ones);
    }
  }

  // Bytes widened in place (even bytes masked, odd ones shifted) times 16-bit activations.
  template <int B>
  static COREAI_ALWAYS_INLINE void dot_words(const std::byte* weights, const std::byte* words, __m256i* sum) {
    const __m256i mask = _mm256_set1_epi16(255);
#pragma GCC unroll 8
    for (int s = 0; s < B / 4; ++s) {
      const __m256i even = broadcast(words + 8 * s);
      const __m256i odd = broadcast(words + 8 * s + 4);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const __m256i q = load_bytes(weights + s * 128 + v * 32);
        const __m256i products = _mm256_add_epi32(_mm256_madd_epi16(_mm256_and_si256(q, mask), even),
                                                  _mm256_madd_epi16(_mm256_srli_epi16(q, 8), odd));
        sum[v] = s == 0 ? products : _mm256_add_epi32(sum[v], products);
      }
    }
  }

  // ---- many rows: weights widened to 16 bits, pairs of columns in the order of ActivationLayout::words --------------

  static constexpr int kTileMinimum = 3;
  static constexpr int kTileVectors = 2;
  static constexpr int kTileChunkBytes = 16384;  // half of the first-level cache
  template <int D>
  static constexpr int tile_tokens() {
    return 4;
  }
  template <int B>
  static constexpr int tile_bytes() {
    return 64 * B;
  }

  template <KernelKind kKind, int B>
  static void tile_unpack(const std::byte* weights, std::int32_t zero, std::byte* out) {
    const __m256i zeros = _mm256_set1_epi16(static_cast<std::int16_t>(zero));
    const auto put = [&](std::byte* place, __m256i q) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(place), _mm256_sub_epi16(q, zeros));
    };
    if constexpr (kKind == KernelKind::kU4) {
      const __m256i mask = _mm256_set1_epi16(15);
      for (int p = 0; p < B / 8; ++p, out += 512) {
        for (int v = 0; v < 4; ++v) {
          const __m256i q = load_bytes(weights + p * 128 + v * 32);
          put(out + v * 32, _mm256_and_si256(q, mask));
          put(out + v * 32 + 128, _mm256_and_si256(_mm256_srli_epi16(q, 8), mask));
          put(out + v * 32 + 256, _mm256_and_si256(_mm256_srli_epi16(q, 4), mask));
          put(out + v * 32 + 384, _mm256_srli_epi16(q, 12));
        }
      }
    } else {
      const __m256i mask = _mm256_set1_epi16(255);
      for (int s = 0; s < B / 4; ++s, out += 256) {
        for (int v = 0; v < 4; ++v) {
          const __m256i q = load_bytes(weights + s * 128 + v * 32);
          put(out + v * 32, _mm256_and_si256(q, mask));
          put(out + v * 32 + 128, _mm256_srli_epi16(q, 8));
        }
      }
    }
  }

  template <int D, int B, int T>
  static COREAI_ALWAYS_INLINE void tile_dot(const std::byte* unpacked, int v, const RowView* x, std::int64_t b,
                                            F (*f)[kTileVectors]) {
    const std::byte* words[T];
    for (int t = 0; t < T; ++t) words[t] = words_of<D, B>(x[t], b);
    __m256i sum[T][2];
    tile_words<B, T>(unpacked + 32 * v, words, sum);
    for (int t = 0; t < T; ++t) {
      for (int w = 0; w < 2; ++w) f[t][w] = _mm256_cvtepi32_ps(sum[t][w]);
    }
    if (D < 3) return;
    for (int t = 0; t < T; ++t) words[t] += 64;
    tile_words<B, T>(unpacked + 32 * v, words, sum);
    for (int t = 0; t < T; ++t) {
      for (int w = 0; w < 2; ++w) f[t][w] = fma(f[t][w], set1(256.0f), _mm256_cvtepi32_ps(sum[t][w]));
    }
  }

  template <int B, int T>
  static COREAI_ALWAYS_INLINE void tile_words(const std::byte* unpacked, const std::byte* const* words,
                                              __m256i (*sum)[2]) {
#pragma GCC unroll 16
    for (int s = 0; s < B / 2; ++s) {
      const __m256i w0 = load_bytes(unpacked + s * 128);
      const __m256i w1 = load_bytes(unpacked + s * 128 + 32);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i value = broadcast(words[t] + 4 * s);
        const __m256i p0 = _mm256_madd_epi16(w0, value);
        const __m256i p1 = _mm256_madd_epi16(w1, value);
        sum[t][0] = s == 0 ? p0 : _mm256_add_epi32(sum[t][0], p0);
        sum[t][1] = s == 0 ? p1 : _mm256_add_epi32(sum[t][1], p1);
      }
    }
  }

  static constexpr int kFloatTileMinimum = 3;
  static constexpr int kFloatTileTokens = 6;
  static constexpr int kFloatTileVectors = 2;
};

}  // namespace

const LinearKernels& avx2_linear_kernels() {
  static const LinearKernels kernels{&LinearImpl<Avx2>::quantize_row, &LinearImpl<Avx2>::linear};
  return kernels;
}

}  // namespace coreai::cpu

#else

namespace coreai::cpu {

const LinearKernels& avx2_linear_kernels() {
  return portable_linear_kernels();
}

}  // namespace coreai::cpu

#endif
