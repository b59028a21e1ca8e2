// What the tests of CPU kernels share: levels to run, repeatable random values, comparison of bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "backend/cpu/isa.h"

namespace coreai::cpu::testing {

inline std::vector<Isa> levels() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (isa_supported(isa)) out.push_back(isa);
  }
  return out;
}

// SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform in [low, high).
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(static_cast<double>(next() >> 11) * 0x1p-53);
  }
  std::vector<float> values(std::size_t count, float low = -1.0f, float high = 1.0f) {
    std::vector<float> out(count);
    for (float& v : out) v = uniform(low, high);
    return out;
  }

 private:
  std::uint64_t state_;
};

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Distance in units of the last place of `want` rounded to f32.
inline double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0.0 : 1e9;
  const float near = static_cast<float>(want);
  if (got == near) return 0.0;
  if (!std::isfinite(got) || !std::isfinite(near)) return 1e9;
  const float size = std::fabs(near);
  const double unit = static_cast<double>(std::nextafterf(size, INFINITY)) - static_cast<double>(size);
  return std::fabs(static_cast<double>(got) - want) / unit;
}

}  // namespace coreai::cpu::testing
