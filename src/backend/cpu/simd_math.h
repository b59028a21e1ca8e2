// Functions of a vector, the same operations at every level. Included after a simd_*.h. Polynomials: minimax fits in
// relative error (Lawson's method) with coefficients rounded to f32 one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace coreai::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2e = 1.44269504f;
// ln 2 in two parts: the product of the first with an integer below 2^9 is exact.
constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;
constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

// Masked accesses cost tens of cycles on some CPUs: only where a vector is not whole.
inline V load_part(const float* p, int n) {
  return n == V::kLanes ? load(p) : load_n(p, n);
}
inline void store_part(float* p, V a, int n) {
  if (n == V::kLanes) {
    store(p, a);
  } else {
    store_n(p, a, n);
  }
}

template <std::size_t kCount>
inline V polynomial(V x, const float (&c)[kCount]) {
  V p = splat(c[kCount - 1]);
  for (std::size_t i = kCount - 1; i-- > 0;) p = fma(p, x, splat(c[i]));
  return p;
}

// e^r for |r| <= ln2/2.
inline V exp_core(V r) {
  constexpr float kC[] = {0.49999994f, 0.166665211f, 0.0416682772f, 0.00836868677f, 0.00138198247f};
  return fma(polynomial(r, kC) * r, r, r) + splat(1.0f);
}
// x = n ln2 + r; n comes back as the low bits of a float near kRoundMagic.
inline V reduce_exp(V x, V& r) {
  const V shifted = fma(x, splat(kLog2e), splat(kRoundMagic));
  const V n = shifted - splat(kRoundMagic);
  r = fma(n, splat(-kLn2Low), fma(n, splat(-kLn2High), x));
  return shifted;
}

// Any x: overflows to infinity, underflows gradually, NaN stays.
inline V exp(V x) {
  const V clamped = min(splat(89.0f), max(splat(-105.0f), x));
  V r;
  const V shifted = reduce_exp(clamped, r);
  const Int n = bits(shifted) - bits(splat(kRoundMagic));
  const Int half = shift_right<1>(n);
  const V p = exp_core(r);
  const V scale1 = from_bits(shift_left<23>(half + splat_int(127)));
  const V scale2 = from_bits(shift_left<23>(n - half + splat_int(127)));
  return p * scale1 * scale2;
}

// x <= 0, as softmax needs it: below -87 it is 0.
inline V exp_nonpositive(V x) {
  const V clamped = max(splat(-87.0f), x);
  V r;
  const V shifted = reduce_exp(clamped, r);
  const V scale = from_bits(shift_left<23>(bits(shifted) - bits(splat(kRoundMagic)) + splat_int(127)));
  return select(x < splat(-87.0f), zero(), exp_core(r) * scale);
}
inline float exp_nonpositive(float x) {
  return first_lane(exp_nonpositive(splat(x)));
}

inline V log(V x) {
  constexpr float kC[] = {0.333333135f,  -0.250000089f, 0.200020775f,  -0.166679993f, 0.142201737f,
                          -0.124058343f, 0.118848525f,  -0.116736174f, 0.0675044805f};
  // Subnormals are scaled up; m in [sqrt(1/2), sqrt(2)).
  const Mask tiny = x < splat(0x1p-126f);
  const V scaled = select(tiny, x * splat(0x1p24f), x);
  const Int word = bits(scaled) - splat_int(0x3f3504f3);
  const Int exponent = shift_right<23>(word);
  const V m = from_bits((word & splat_int(0x007fffff)) + splat_int(0x3f3504f3));
  const V e = to_float(exponent) - select(tiny, splat(24.0f), zero());
  const V f = m - splat(1.0f);
  const V f2 = f * f;
  V y = fma(polynomial(f, kC) * f, f2, e * splat(kLn2Low));
  y = fma(splat(-0.5f), f2, y);
  y = fma(e, splat(kLn2High), y + f);
  y = select(x == splat(kInfinity), x, y);
  y = select(x == zero(), splat(-kInfinity), y);
  y = select(x < zero(), splat(std::numeric_limits<float>::quiet_NaN()), y);
  return select(x == x, y, x);
}

inline V sigmoid(V x) {
  return splat(1.0f) / (splat(1.0f) + exp(-x));
}
inline V silu(V x) {
  return x / (splat(1.0f) + exp(-x));
}
inline V copy_sign(V magnitude, V sign) {
  return from_bits(bits(magnitude) | (bits(sign) & splat_int(std::numeric_limits<std::int32_t>::min())));
}

inline V tanh(V x) {
  constexpr float kC[] = {-0.333333313f, 0.133332282f, -0.0539495908f, 0.0217157193f, -0.0082116015f, 0.00216958672f};
  const V a = abs(x);
  const V u = x * x;
  const V small = fma(polynomial(u, kC) * u, x, x);
  const V large = splat(1.0f) - splat(2.0f) / (exp(a + a) + splat(1.0f));
  return select(a < splat(0.55f), small, select(x == x, copy_sign(large, x), x));
}

inline V erf(V x) {
  constexpr float kSmall[] = {0.128379166f,   -0.376126289f,    0.112836257f,   -0.0268557314f,
                              0.00519240508f, -0.000804976909f, 7.99664194e-05f};
  // erf(x) = 1 - exp(-q(x)) above 0.92.
  constexpr float kLarge[] = {-0.000160397057f, 1.12943411f,      0.633543372f,    0.108012252f,   -0.0248956159f,
                              0.00405375473f,   -0.000396822114f, 1.43384741e-05f, 5.19256105e-07f};
  const V a = abs(x);
  const V small = fma(polynomial(x * x, kSmall), x, x);
  const V clamped = min(splat(4.0f), a);
  const V large = splat(1.0f) - exp_nonpositive(-polynomial(clamped, kLarge));
  return select(a < splat(0.92f), small, select(x == x, copy_sign(large, x), x));
}
inline V gelu_erf(V x) {
  const V half = splat(0.5f) * x;
  return fma(half, erf(x * splat(0.707106781f)), half);
}
inline V gelu_tanh(V x) {
  const V inner = splat(0.797884561f) * fma(splat(0.044715f) * (x * x), x, x);
  const V half = splat(0.5f) * x;
  return fma(half, tanh(inner), half);
}

}  // namespace
}  // namespace coreai::cpu
