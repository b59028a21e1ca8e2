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

  // 32 integers of 32 bits, each within 16 bits, to 2 x 16 in order.
  static COREAI_ALWAYS_INLINE __m256i narrow(__m256i a, __m256i b) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
  }
  // The low bytes of 2 x 16 words, in order.
  static COREAI_ALWAYS_INLINE __m256i low_bytes(__m256i a, __m256i b) {
    const __m256i mask = _mm256_set1_epi16(255);
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)), 0xd8);
  }
  static COREAI_ALWAYS_INLINE std::int32_t sum_words(__m256i words) {
    const __m256i pairs = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtsi128_si32(four);
  }
  // Columns 0 1 2 3 of each four to 0 2 1 3.
  static COREAI_ALWAYS_INLINE void store_words(std::int16_t* out, __m256i words) {
    const __m256i order = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), order);
  }
  static COREAI_ALWAYS_INLINE void store_bytes(std::int8_t* out, __m256i bytes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
  }

  template <int D>
  static COREAI_ALWAYS_INLINE void encode(const std::int32_t* q, std::int8_t* digits, std::int16_t* words,
                                          BlockSums& sums) {
    __m256i value[4];
    for (int i = 0; i < 4; ++i) value[i] = load_bytes(reinterpret_cast<const std::byte*>(q + 8 * i));
    if (D == 3) {
      __m256i low[4];
      for (int i = 0; i < 4; ++i) {
        low[i] = _mm256_srai_epi32(_mm256_slli_epi32(value[i], 24), 24);
        value[i] = _mm256_srai_epi32(_mm256_add_epi32(value[i], _mm256_set1_epi32(128)), 8);
      }
      const __m256i first = narrow(low[0], low[1]);
      const __m256i second = narrow(low[2], low[3]);
      store_bytes(digits + 64, low_bytes(first, second));
      store_words(words + 32, first);
      store_words(words + 48, second);
      sums.low[0] = sum_words(first);
      sums.low[1] = sum_words(second);
    }
    const __m256i first = narrow(value[0], value[1]);
    const __m256i second = narrow(value[2], value[3]);
    store_words(words, first);
    store_words(words + 16, second);
    sums.high[0] = sum_words(first);
    sums.high[1] = sum_words(second);
    if (D == 1) {
      store_bytes(digits, low_bytes(first, second));
      return;
    }
    const __m256i half = _mm256_set1_epi16(128);  // the limit leaves room for it
    store_bytes(digits, low_bytes(_mm256_srai_epi16(_mm256_add_epi16(first, half), 8),
                                  _mm256_srai_epi16(_mm256_add_epi16(second, half), 8)));
    store_bytes(digits + 32, low_bytes(first, second));
  }

  // Without it the memory's latency is not hidden on Zen 3: 68 % of the read rate instead of 100 %.
  static constexpr int kPrefetchAhead = 4096;

  // Product and sum in one piece: left alone, GCC moves products ahead until an accumulator lies on the stack, whose
  // reload then bounds the loop (2 times slower).
  static COREAI_ALWAYS_INLINE void add_byte_products(__m256i& sum, __m256i bytes, __m256i digits) {
    __m256i product;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(bytes), "x"(digits));
  }
  static COREAI_ALWAYS_INLINE void add_word_products(__m256i& sum, __m256i a, __m256i b) {
    __m256i product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
  }

  // Sum of a block's integers times the zero point, in every lane.
  template <int B>
  static COREAI_ALWAYS_INLINE __m256i zero_term(const std::int32_t* isum, std::int64_t b, std::int32_t zero) {
    return _mm256_set1_epi32(wrapped_product(zero, isum[B == 32 ? 2 * b : b], B == 32 ? isum[2 * b + 1] : 0));
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
    for (int d = 0; d < D; ++d) {
      for (int v = 0; v < 4; ++v) sum[d][v] = _mm256_setzero_si256();
    }
#pragma GCC unroll 1
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
          for (int d = 0; d < D; ++d) add_byte_products(sum[d][v], q, x[d]);
        }
        asm volatile("" ::: "memory");  // keeps the compiler from holding weights in registers between halves
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
    for (int v = 0; v < 4; ++v) sum[v] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int s = 0; s < B / 4; ++s) {
      const __m256i even = broadcast(words + 8 * s);
      const __m256i odd = broadcast(words + 8 * s + 4);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const __m256i q = load_bytes(weights + s * 128 + v * 32);
        add_word_products(sum[v], _mm256_and_si256(q, mask), even);
        add_word_products(sum[v], _mm256_srli_epi16(q, 8), odd);
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
    for (int t = 0; t < T; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int s = 0; s < B / 2; ++s) {
      const __m256i w0 = load_bytes(unpacked + s * 128);
      const __m256i w1 = load_bytes(unpacked + s * 128 + 32);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i value = broadcast(words[t] + 4 * s);
        add_word_products(sum[t][0], w0, value);
        add_word_products(sum[t][1], w1, value);
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
