// The linear layer's kernels, written once over a level's vector type S. S must live in an anonymous namespace, which
// gives every instantiation internal linkage (see CMakeLists.txt). No function of the standard library is used here for
// the same reason.
//
// S gives: kLanes, F (floats), I (int32), zero, set1, load, store, load_f16, load_bf16, add, sub, mul, div, fma, min,
// max, abs, select_negative, scale_by_power, to_int (nearest even), largest_magnitude of 32 floats (its bits), encode
// (the digits, words and sums of 32 integers), kPrefetchAhead (bytes, 0: none), and the integer dot products:
//   dot<kind, D, B>(weights, row view, block, f)      one row of activations, a panel of weights as packed
//   tile_unpack<kind, B>(weights, zero, buffer)       a block widened for tile_dot; kTileBytes each at most
//   tile_dot<D, B, T>(buffer, vector, rows, block, f) T rows of activations, kTileVectors vectors of the panel
// both yield the exact integer sum of (q - zero) * x over the block, rounded to f32 (three digits: two rounded parts).
#pragma once

#include "backend/cpu/linear_kernels.h"

namespace coreai::cpu {

#define COREAI_ALWAYS_INLINE inline __attribute__((always_inline))

// zero * (a + b), wrapping: a late chunk, whose result is discarded, may read other bytes in place of sums.
static COREAI_ALWAYS_INLINE std::int32_t wrapped_product(std::int32_t zero, std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(zero) *
                                   (static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b)));
}

// How scales and offsets lie in a panel; the two common forms have their own kernels.
enum class ParamMode : int { kScaleF16, kScaleOffsetF16, kGeneral };

// Sums of the 16-column halves of a block: of the integers, at three digits of integer >> 8 (rounded) and low digit.
struct BlockSums {
  std::int32_t high[2];
  std::int32_t low[2];
};

// One quantised row.
struct RowView {
  const std::byte* digits;
  const std::byte* words;
  const float* scale;
  const float* sum32;
  const float* sum16;
  const std::int32_t* isum;
  const std::int32_t* isum_low;
};

template <class S>
struct LinearImpl {
  using F = typename S::F;
  static constexpr int kRows = 32;
  static constexpr int kVectors = kRows / S::kLanes;
  static constexpr int kTokenBlock = 64;   // rows of activations that share an unpacked chunk of weights
  static constexpr int kFloatChunk = 128;  // columns summed before they join the total (bounds the rounding error)

  // ---- activations -------------------------------------------------------------------------------------------------

  static COREAI_ALWAYS_INLINE F exp(F x) {
    // Cody-Waite reduction and a degree-6 polynomial; relative error about 1e-7.
    x = S::min(S::max(x, S::set1(-87.0f)), S::set1(88.0f));
    const F magic = S::set1(12582912.0f);  // 1.5 * 2^23: rounds to an integer
    const F n = S::sub(S::add(S::mul(x, S::set1(1.44269504f)), magic), magic);
    F r = S::fma(n, S::set1(-0.693359375f), x);
    r = S::fma(n, S::set1(2.12194440e-4f), r);
    F p = S::set1(1.9875691500e-4f);
    p = S::fma(p, r, S::set1(1.3981999507e-3f));
    p = S::fma(p, r, S::set1(8.3334519073e-3f));
    p = S::fma(p, r, S::set1(4.1665795894e-2f));
    p = S::fma(p, r, S::set1(1.6666665459e-1f));
    p = S::fma(p, r, S::set1(5.0000001201e-1f));
    p = S::fma(S::mul(p, r), r, S::add(r, S::set1(1.0f)));
    return S::scale_by_power(p, S::to_int(n));
  }

  static COREAI_ALWAYS_INLINE F activate(KernelActivation activation, F x) {
    const F one = S::set1(1.0f);
    const F top = S::max(S::set1(-1e20f), x);  // exp stops at e^88; keeps x / e^88 a zero. A NaN stays.
    switch (activation) {
      case KernelActivation::kSilu:
        return S::div(top, S::add(one, exp(S::sub(S::zero(), x))));
      case KernelActivation::kGeluTanh: {
        // x/2 (1 + tanh u) = x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
        const F cube = S::mul(S::mul(x, x), x);
        const F u = S::mul(S::set1(-1.5957691216f), S::fma(S::set1(0.044715f), cube, x));
        return S::div(top, S::add(one, exp(u)));
      }
      case KernelActivation::kGeluErf:
        return gelu_erf(x);
      case KernelActivation::kIdentity:
        break;
    }
    return x;
  }

  // x/2 erfc(-x / sqrt 2) by the Chebyshev fit of erfc in Numerical Recipes, relative error 1.2e-7.
  static COREAI_ALWAYS_INLINE F gelu_erf(F x) {
    const F z = S::mul(S::abs(x), S::set1(0.70710678f));
    const F t = S::div(S::set1(1.0f), S::fma(z, S::set1(0.5f), S::set1(1.0f)));
    F p = S::set1(0.17087277f);
    p = S::fma(p, t, S::set1(-0.82215223f));
    p = S::fma(p, t, S::set1(1.48851587f));
    p = S::fma(p, t, S::set1(-1.13520398f));
    p = S::fma(p, t, S::set1(0.27886807f));
    p = S::fma(p, t, S::set1(-0.18628806f));
    p = S::fma(p, t, S::set1(0.09678418f));
    p = S::fma(p, t, S::set1(0.37409196f));
    p = S::fma(p, t, S::set1(1.00002368f));
    p = S::fma(p, t, S::set1(-1.26551223f));
    const F half = S::mul(S::mul(t, S::set1(0.5f)), exp(S::fma(S::sub(S::zero(), z), z, p)));  // erfc(|x|/sqrt 2) / 2
    const F lower = S::mul(x, half);                                                           // x < 0
    const F upper = S::fma(S::sub(S::zero(), x), half, x);                                     // x >= 0
    return S::select_negative(x, lower, upper);
  }

  // One row's 32 columns of y. `gate` holds the products (and `up` those of the second panel).
  static void store_outputs(const LinearKernelArgs& a, std::int64_t row, std::int64_t unit, const float* gate,
                            const float* up) {
    const std::int64_t column = unit * kRows;
    float* y = a.y + row * a.y_stride + column;
    const float* residual = a.residual == nullptr ? nullptr : a.residual + row * a.residual_stride + column;
    const float* bias = a.bias == nullptr ? nullptr : a.bias + column;
    const float* up_bias = a.bias == nullptr || !a.gate_up ? nullptr : a.bias + a.outputs + column;
    if (a.outputs - column >= kRows) {
      finish(a.activation, gate, up, bias, up_bias, residual, y);
      return;
    }
    const auto count = static_cast<int>(a.outputs - column);
    alignas(64) float edge[4][kRows] = {};  // the last panel's columns beyond y are computed on copies
    copy(edge[0], bias, count);
    copy(edge[1], up_bias, count);
    copy(edge[2], residual, count);
    finish(a.activation, gate, up, bias == nullptr ? nullptr : edge[0], up_bias == nullptr ? nullptr : edge[1],
           residual == nullptr ? nullptr : edge[2], edge[3]);
    copy(y, edge[3], count);
  }

  static void copy(float* to, const float* from, int count) {
    if (from == nullptr) return;
    for (int i = 0; i < count; ++i) to[i] = from[i];
  }

  static void finish(KernelActivation activation, const float* gate, const float* up, const float* bias,
                     const float* up_bias, const float* residual, float* y) {
    for (int i = 0; i < kRows; i += S::kLanes) {
      F value = S::load(gate + i);
      if (bias != nullptr) value = S::add(value, S::load(bias + i));
      value = activate(activation, value);
      if (up != nullptr) {
        F other = S::load(up + i);
        if (up_bias != nullptr) other = S::add(other, S::load(up_bias + i));
        value = S::mul(value, other);
      }
      if (residual != nullptr) value = S::add(value, S::load(residual + i));
      S::store(y + i, value);
    }
  }

  // ---- quantised rows ----------------------------------------------------------------------------------------------

  static RowView view_row(const LinearKernelArgs& a, std::int64_t row) {
    const std::byte* base = a.rows + static_cast<std::size_t>(row) * a.layout.row_bytes;
    return {base + a.layout.digit_bytes,
            base + a.layout.words,
            reinterpret_cast<const float*>(base + a.layout.scale),
            reinterpret_cast<const float*>(base + a.layout.sum32),
            reinterpret_cast<const float*>(base + a.layout.sum16),
            reinterpret_cast<const std::int32_t*>(base + a.layout.isum),
            reinterpret_cast<const std::int32_t*>(base + a.layout.isum_low)};
  }

  static void quantize_row(const float* x, const ActivationLayout& layout, std::byte* out) {
    for (std::int64_t b = 0; b < layout.blocks; ++b) {
      const float* block = x + b * 32;
      alignas(64) float padded[32];
      if (layout.k - b * 32 < 32) {
        for (int i = 0; i < 32; ++i) padded[i] = i < layout.k - b * 32 ? block[i] : 0.0f;
        block = padded;
      }
      quantize_block(block, layout, b, out);
    }
  }

  static void quantize_block(const float* x, const ActivationLayout& layout, std::int64_t b, std::byte* out) {
    alignas(64) std::int32_t q[32];
    const std::uint32_t largest = S::largest_magnitude(x);
    float scale = 0.0f;
    if (largest >= 0x7f800000u) {  // infinity or NaN: the row's results become NaN
      scale = __builtin_nanf("");
      for (int i = 0; i < 32; ++i) q[i] = 0;
    } else if (largest < 0x0d800000u) {  // below 2^-100 the reciprocal could overflow
      for (int i = 0; i < 32; ++i) q[i] = 0;
    } else {
      float max = 0.0f;
      __builtin_memcpy(&max, &largest, 4);
      const auto limit = static_cast<float>(layout.limit);
      scale = max / limit;
      const F inverse = S::set1(limit / max);
      for (int i = 0; i < 32; i += S::kLanes) S::store_int(q + i, S::to_int(S::mul(S::load(x + i), inverse)));
    }
    reinterpret_cast<float*>(out + layout.scale)[b] = scale;
    auto* digits = reinterpret_cast<std::int8_t*>(out + layout.digit_bytes) + b * 32 * layout.digits;
    auto* words = reinterpret_cast<std::int16_t*>(out + layout.words) + b * (layout.digits == 3 ? 64 : 32);
    BlockSums sums{};
    if (layout.digits == 1) S::template encode<1>(q, digits, words, sums);
    if (layout.digits == 2) S::template encode<2>(q, digits, words, sums);
    if (layout.digits == 3) S::template encode<3>(q, digits, words, sums);
    write_sums(sums, layout, b, scale, out);
  }

  static void write_sums(const BlockSums& sums, const ActivationLayout& layout, std::int64_t b, float scale,
                         std::byte* out) {
    auto* isum = reinterpret_cast<std::int32_t*>(out + layout.isum) + 2 * b;
    auto* isum_low = reinterpret_cast<std::int32_t*>(out + layout.isum_low) + 2 * b;
    auto* sum16 = reinterpret_cast<float*>(out + layout.sum16) + 2 * b;
    std::int32_t total = 0;
    for (int half = 0; half < 2; ++half) {
      isum[half] = sums.high[half];
      std::int32_t sum = sums.high[half];
      if (layout.digits == 3) {
        isum_low[half] = sums.low[half];
        sum = sum * 256 + sums.low[half];
      }
      sum16[half] = static_cast<float>(sum) * scale;
      total += sum;
    }
    reinterpret_cast<float*>(out + layout.sum32)[b] = static_cast<float>(total) * scale;
  }

  // ---- integer weights ---------------------------------------------------------------------------------------------

  struct Params {
    const std::byte* scale;
    const std::byte* offset;
  };

  template <ParamMode M>
  static COREAI_ALWAYS_INLINE F load_scale(const LinearKernelArgs& a, const Params& p, int row) {
    if (M != ParamMode::kGeneral || a.scale_is_f16) return S::load_f16(p.scale + 2 * row);
    return S::load(reinterpret_cast<const float*>(p.scale) + row);
  }
  template <ParamMode M>
  static COREAI_ALWAYS_INLINE F load_offset(const LinearKernelArgs& a, const Params& p, int row) {
    if (M != ParamMode::kGeneral || a.offset_is_f16) return S::load_f16(p.offset + 2 * row);
    return S::load(reinterpret_cast<const float*>(p.offset) + row);
  }
  template <ParamMode M>
  static COREAI_ALWAYS_INLINE bool has_offset(const LinearKernelArgs& a) {
    return M == ParamMode::kScaleOffsetF16 || (M == ParamMode::kGeneral && a.has_offset);
  }
  // Where a group's scales and offsets are; `at` moves to its first block.
  static COREAI_ALWAYS_INLINE Params take_params(const LinearKernelArgs& a, const std::byte*& at) {
    Params p{at, at};
    at += kRows * (a.scale_is_f16 ? 2 : 4);
    p.offset = at;
    if (a.has_offset) at += kRows * (a.offset_is_f16 ? 2 : 4);
    return p;
  }

  // The one rule that joins a block: acc += (dot * scale of x) * scale of W + sum of x * offset of W.
  static COREAI_ALWAYS_INLINE F join(F acc, F dot, F x_scale, F scale) {
    return S::fma(S::mul(dot, x_scale), scale, acc);
  }

  template <KernelKind kKind, int B>
  static constexpr int block_bytes() {
    return kRows * B / (kKind == KernelKind::kU4 ? 2 : 1);
  }

  // Beyond the end of the panel lies the next one, beyond that whatever the plan reads next; a prefetch never faults.
  template <int kBytes>
  static COREAI_ALWAYS_INLINE void prefetch(const std::byte* at) {
    if constexpr (S::kPrefetchAhead > 0) {
#pragma GCC unroll 16
      for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(at + S::kPrefetchAhead + i);
    }
  }

  // out[32] = a panel times one row.
  template <KernelKind kKind, int D, int B, ParamMode M>
  static void dot_row(const LinearKernelArgs& a, const std::byte* at, std::int64_t row, float* out) {
    const RowView x = view_row(a, row);
    F acc[kVectors];
    for (int v = 0; v < kVectors; ++v) acc[v] = S::zero();
    const std::int64_t blocks = a.layout.blocks * (32 / B);
    const float* sums = B == 32 ? x.sum32 : x.sum16;
    for (std::int64_t b = 0; b < blocks;) {
      const std::int64_t end = blocks - b < a.group ? blocks : b + a.group;
      prefetch<128>(at);
      const Params params = take_params(a, at);
      for (; b < end; ++b, at += block_bytes<kKind, B>()) {
        prefetch<block_bytes<kKind, B>()>(at);
        F dot[kVectors];
        S::template dot<kKind, D, B>(at, x, b, a.zero, dot);
        const F x_scale = S::set1(x.scale[B == 32 ? b : b / 2]);
        for (int v = 0; v < kVectors; ++v) {
          acc[v] = join(acc[v], dot[v], x_scale, load_scale<M>(a, params, v * S::kLanes));
        }
        if (has_offset<M>(a)) {
          const F sum = S::set1(sums[b]);
          for (int v = 0; v < kVectors; ++v) {
            acc[v] = S::fma(sum, load_offset<M>(a, params, v * S::kLanes), acc[v]);
          }
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) S::store(out + v * S::kLanes, acc[v]);
  }

  // acc[T][32] += the unpacked blocks [first, first + count) times T rows.
  template <int D, int B, ParamMode M, int T>
  static void tile(const LinearKernelArgs& a, const std::byte* unpacked, const Params* params, std::int64_t first,
                   int count, const RowView* x, float* acc) {
    for (int v = 0; v < kVectors; v += S::kTileVectors) {
      for (int i = 0; i < count; ++i) {
        const std::int64_t b = first + i;
        F dot[T][S::kTileVectors];
        S::template tile_dot<D, B, T>(unpacked + i * S::template tile_bytes<B>(), v, x, b, dot);
        for (int w = 0; w < S::kTileVectors; ++w) {
          const int row = (v + w) * S::kLanes;
          const F scale = load_scale<M>(a, params[i], row);
          const F offset = has_offset<M>(a) ? load_offset<M>(a, params[i], row) : S::zero();
          for (int t = 0; t < T; ++t) {
            float* place = acc + t * kRows + row;
            F value = join(S::load(place), dot[t][w], S::set1(x[t].scale[B == 32 ? b : b / 2]), scale);
            if (has_offset<M>(a)) value = S::fma(S::set1((B == 32 ? x[t].sum32 : x[t].sum16)[b]), offset, value);
            S::store(place, value);
          }
        }
      }
    }
  }

  // out[count][32] = a panel times rows [first, first + count), count up to kTokenBlock.
  template <KernelKind kKind, int D, int B, ParamMode M>
  static void dot_rows(const LinearKernelArgs& a, const std::byte* at, std::int64_t first, int count, float* out) {
    if constexpr (S::kTileMinimum <= kTokenBlock) {
      if (count >= S::kTileMinimum) return dot_tiles<kKind, D, B, M>(a, at, first, count, out);
    }
    for (int t = 0; t < count; ++t) dot_row<kKind, D, B, M>(a, at, first + t, out + t * kRows);
  }

  template <KernelKind kKind, int D, int B, ParamMode M>
  static void dot_tiles(const LinearKernelArgs& a, const std::byte* at, std::int64_t first, int count, float* out) {
    constexpr int kChunk = S::kTileChunkBytes / S::template tile_bytes<B>();
    constexpr int kTokens = S::template tile_tokens<D>();
    alignas(64) std::byte buffer[S::kTileChunkBytes];
    Params params[kChunk];
    RowView x[kTokenBlock];
    for (int t = 0; t < count; ++t) x[t] = view_row(a, first + t);
    for (int i = 0; i < count * kRows; ++i) out[i] = 0.0f;
    const std::int64_t blocks = a.layout.blocks * (32 / B);
    Params current{};
    std::int64_t left = 0;  // blocks of the current group
    for (std::int64_t b = 0; b < blocks; b += kChunk) {
      const int chunk = blocks - b < kChunk ? static_cast<int>(blocks - b) : kChunk;
      for (int i = 0; i < chunk; ++i, --left, at += block_bytes<kKind, B>()) {
        if (left == 0) {
          current = take_params(a, at);
          left = a.group;
        }
        params[i] = current;
        S::template tile_unpack<kKind, B>(at, a.zero, buffer + i * S::template tile_bytes<B>());
      }
      int t = 0;
      for (; t + kTokens <= count; t += kTokens) {
        tile<D, B, M, kTokens>(a, buffer, params, b, chunk, x + t, out + t * kRows);
      }
      for (; t + 2 <= count; t += 2) tile<D, B, M, 2>(a, buffer, params, b, chunk, x + t, out + t * kRows);
      if (t < count) tile<D, B, M, 1>(a, buffer, params, b, chunk, x + t, out + t * kRows);
    }
  }

  // ---- float weights -----------------------------------------------------------------------------------------------

  template <KernelKind kKind>
  static COREAI_ALWAYS_INLINE F load_weight(const std::byte* at) {
    if constexpr (kKind == KernelKind::kF16) return S::load_f16(at);
    if constexpr (kKind == KernelKind::kBF16) return S::load_bf16(at);
    return S::load(reinterpret_cast<const float*>(at));
  }

  // acc[T][...] += columns [0, count) of T rows times `vectors` vectors of a panel from vector v on. Each output is a
  // chain of multiply-adds over the chunk's columns in ascending order, then one addition to the total.
  template <KernelKind kKind, int T, int W>
  static COREAI_ALWAYS_INLINE void float_tile(const std::byte* weights, int v, const float* const* x,
                                              std::int64_t count, float* acc) {
    constexpr int kBytes = kKind == KernelKind::kF32 ? 4 : 2;
    F sum[T][W];
    for (int t = 0; t < T; ++t) {
      for (int w = 0; w < W; ++w) sum[t][w] = S::zero();
    }
    const std::byte* at = weights + v * S::kLanes * kBytes;
    for (std::int64_t c = 0; c < count; ++c, at += kRows * kBytes) {
      F weight[W];
      for (int w = 0; w < W; ++w) weight[w] = load_weight<kKind>(at + w * S::kLanes * kBytes);
      for (int t = 0; t < T; ++t) {
        const F value = S::set1(x[t][c]);
        for (int w = 0; w < W; ++w) sum[t][w] = S::fma(weight[w], value, sum[t][w]);
      }
    }
    for (int t = 0; t < T; ++t) {
      for (int w = 0; w < W; ++w) {
        float* place = acc + t * kRows + (v + w) * S::kLanes;
        S::store(place, S::add(S::load(place), sum[t][w]));
      }
    }
  }

  // All of a panel's rows for T rows of activations, in the vectors that fit the registers.
  template <int T>
  static COREAI_ALWAYS_INLINE void wide_float_tile(const std::byte* weights, const float* const* x,
                                                   std::int64_t columns, float* acc) {
    for (int v = 0; v < kVectors; v += S::kFloatTileVectors) {
      float_tile<KernelKind::kF32, T, S::kFloatTileVectors>(weights, v, x, columns, acc);
    }
  }

  template <KernelKind kKind>
  static void float_rows(const LinearKernelArgs& a, const std::byte* at, std::int64_t first, int count, float* out) {
    constexpr int kBytes = kKind == KernelKind::kF32 ? 4 : 2;
    alignas(64) float buffer[kFloatChunk * kRows];
    for (int i = 0; i < count * kRows; ++i) out[i] = 0.0f;
    for (std::int64_t c = 0; c < a.k; c += kFloatChunk, at += kFloatChunk * kRows * kBytes) {
      const std::int64_t columns = a.k - c < kFloatChunk ? a.k - c : kFloatChunk;
      const float* x[kTokenBlock];
      for (int t = 0; t < count; ++t) x[t] = a.x + (first + t) * a.x_stride + c;
      if (count < S::kFloatTileMinimum) {
        for (int t = 0; t < count; ++t) float_tile<kKind, 1, kVectors>(at, 0, x + t, columns, out + t * kRows);
        continue;
      }
      const std::byte* weights = at;
      if (kKind != KernelKind::kF32) {
        for (std::int64_t i = 0; i < columns * kRows; i += S::kLanes) {
          S::store(buffer + i, load_weight<kKind>(at + i * kBytes));
        }
        weights = reinterpret_cast<const std::byte*>(buffer);
      }
      int t = 0;
      for (; t + S::kFloatTileTokens <= count; t += S::kFloatTileTokens) {
        wide_float_tile<S::kFloatTileTokens>(weights, x + t, columns, out + t * kRows);
      }
      if constexpr (S::kFloatTileTokens > 4) {
        for (; t + 4 <= count; t += 4) wide_float_tile<4>(weights, x + t, columns, out + t * kRows);
      }
      if constexpr (S::kFloatTileTokens > 2) {
        for (; t + 2 <= count; t += 2) wide_float_tile<2>(weights, x + t, columns, out + t * kRows);
      }
      for (; t < count; ++t) float_tile<KernelKind::kF32, 1, kVectors>(weights, 0, x + t, columns, out + t * kRows);
    }
  }

  // ---- dispatch ----------------------------------------------------------------------------------------------------

  using RowsFunction = void (*)(const LinearKernelArgs&, const std::byte*, std::int64_t, int, float*);

  template <KernelKind kKind, int D, int B>
  static RowsFunction by_params(const LinearKernelArgs& a) {
    // The rarer forms take the general kernel: a well predicted branch per load, a third of the code.
    if constexpr (S::kLanes == 1 || D == 3 || B == 16) return &dot_rows<kKind, D, B, ParamMode::kGeneral>;
    if (!a.scale_is_f16 || (a.has_offset && !a.offset_is_f16)) {
      return &dot_rows<kKind, D, B, ParamMode::kGeneral>;
    }
    return a.has_offset ? &dot_rows<kKind, D, B, ParamMode::kScaleOffsetF16>
                        : &dot_rows<kKind, D, B, ParamMode::kScaleF16>;
  }
  template <KernelKind kKind, int D>
  static RowsFunction by_block(const LinearKernelArgs& a) {
    return a.block == 32 ? by_params<kKind, D, 32>(a) : by_params<kKind, D, 16>(a);
  }
  template <KernelKind kKind>
  static RowsFunction by_digits(const LinearKernelArgs& a) {
    if (a.layout.digits == 1) return by_block<kKind, 1>(a);
    return a.layout.digits == 2 ? by_block<kKind, 2>(a) : by_block<kKind, 3>(a);
  }
  static RowsFunction choose(const LinearKernelArgs& a) {
    switch (a.kind) {
      case KernelKind::kU4:
        return by_digits<KernelKind::kU4>(a);
      case KernelKind::kU8:
        return by_digits<KernelKind::kU8>(a);
      case KernelKind::kF16:
        return &float_rows<KernelKind::kF16>;
      case KernelKind::kBF16:
        return &float_rows<KernelKind::kBF16>;
      case KernelKind::kF32:
        break;
    }
    return &float_rows<KernelKind::kF32>;
  }

  static void linear(const LinearKernelArgs& a, std::int64_t unit_begin, std::int64_t unit_end) {
    const RowsFunction rows = choose(a);
    alignas(64) float gate[kTokenBlock * kRows];
    alignas(64) float up[kTokenBlock * kRows];
    for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) {
      const std::byte* panel = a.panels + static_cast<std::size_t>(a.gate_up ? 2 * unit : unit) * a.panel_bytes;
      for (std::int64_t t = 0; t < a.m; t += kTokenBlock) {
        const int count = a.m - t < kTokenBlock ? static_cast<int>(a.m - t) : kTokenBlock;
        rows(a, panel, t, count, gate);
        if (a.gate_up) rows(a, panel + a.panel_bytes, t, count, up);
        for (int i = 0; i < count; ++i) {
          store_outputs(a, t + i, unit, gate + i * kRows, a.gate_up ? up + i * kRows : nullptr);
        }
      }
    }
  }
};

}  // namespace coreai::cpu
