#include "backend/cpu/linear_simd.h"

namespace coreai::cpu {
namespace {

// One lane: the definition that the other levels must match bit for bit.
struct Portable {
  static constexpr int kLanes = 1;
  using F = float;
  using I = std::int32_t;

  static F zero() { return 0.0f; }
  static F set1(float x) { return x; }
  static F load(const float* p) { return *p; }
  static void store(float* p, F x) { *p = x; }
  static void store_int(std::int32_t* p, I x) { *p = x; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return __builtin_fmaf(a, b, c); }
  // The second operand wins when one is NaN, as in the x86 instructions.
  static F min(F a, F b) { return a < b ? a : b; }
  static F max(F a, F b) { return a > b ? a : b; }
  static F abs(F a) { return __builtin_fabsf(a); }
  static F select_negative(F sign, F negative, F other) { return __builtin_signbit(sign) ? negative : other; }
  static I to_int(F x) { return x == x ? static_cast<I>(__builtin_rintf(x)) : 0; }
  static F scale_by_power(F x, I n) {
    std::int32_t bits = 0;
    __builtin_memcpy(&bits, &x, 4);
    bits = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits) + (static_cast<std::uint32_t>(n) << 23));
    __builtin_memcpy(&x, &bits, 4);
    return x;
  }

  static F from_bits(std::uint32_t bits) {
    float x = 0;
    __builtin_memcpy(&x, &bits, 4);
    return x;
  }
  static std::uint32_t half_word(const std::byte* p) {
    std::uint16_t bits = 0;
    __builtin_memcpy(&bits, p, 2);
    return bits;
  }
  static F load_bf16(const std::byte* p) { return from_bits(half_word(p) << 16); }
  static F load_f16(const std::byte* p) {
    const std::uint32_t bits = half_word(p);
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return from_bits(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
    // Moving the fields and multiplying by 2^112 also gives subnormals their value.
    return from_bits(sign | (rest << 13)) * 0x1p112f;
  }
  static std::uint32_t largest_magnitude(const float* x) {
    std::uint32_t largest = 0;
    for (int i = 0; i < 32; ++i) {
      std::uint32_t bits = 0;
      __builtin_memcpy(&bits, x + i, 4);
      bits &= 0x7fffffffu;
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }

  static std::int32_t low_digit(std::int32_t q) { return static_cast<std::int8_t>(q & 0xff); }

  template <int D>
  static void encode(const std::int32_t* q, std::int8_t* digits, std::int16_t*, BlockSums& sums) {
    for (int i = 0; i < 32; ++i) {
      std::int32_t rest = q[i];
      if (D == 3) sums.low[i / 16] += low_digit(rest);
      sums.high[i / 16] += D == 3 ? (rest - low_digit(rest)) / 256 : rest;
      for (int d = D - 1; d >= 0; --d) {
        digits[32 * d + i] = static_cast<std::int8_t>(low_digit(rest));
        rest = (rest - low_digit(rest)) / 256;
      }
    }
  }

  static constexpr int kPrefetchAhead = 0;

  template <KernelKind kKind, int D, int B>
  static void dot(const std::byte* weights, const RowView& x, std::int64_t b, std::int32_t zero, F* f) {
    constexpr int kHalves = 32 / B;
    const auto* digits = reinterpret_cast<const std::int8_t*>(x.digits) + b / kHalves * 32 * D + b % kHalves * B;
    const auto* w = reinterpret_cast<const std::uint8_t*>(weights);
    std::int32_t sum[D][32] = {};
    for (int c = 0; c < B; ++c) {
      for (int r = 0; r < 32; ++r) {
        std::int32_t q = 0;
        if (kKind == KernelKind::kU4) {
          q = (w[c / 8 * 128 + r * 4 + c % 4] >> (c % 8 >= 4 ? 4 : 0)) & 15;
        } else {
          q = w[c / 4 * 128 + r * 4 + c % 4];
        }
        for (int d = 0; d < D; ++d) sum[d][r] += (q - zero) * digits[32 * d + c];
      }
    }
    for (int r = 0; r < 32; ++r) {
      if (D == 1) f[r] = static_cast<float>(sum[0][r]);
      if (D == 2) f[r] = static_cast<float>(sum[0][r] * 256 + sum[D - 1][r]);
      if (D == 3) {
        f[r] = fma(static_cast<float>(sum[0][r] * 256 + sum[D / 2][r]), 256.0f, static_cast<float>(sum[D - 1][r]));
      }
    }
  }

  static constexpr int kTileMinimum = 1 << 30;
  static constexpr int kFloatTileMinimum = 2;
  static constexpr int kFloatTileTokens = 1;
  static constexpr int kFloatTileVectors = 32;
};

}  // namespace

const LinearKernels& portable_linear_kernels() {
  static const LinearKernels kernels{&LinearImpl<Portable>::quantize_row, &LinearImpl<Portable>::linear};
  return kernels;
}

}  // namespace coreai::cpu
