#include "backend/cpu/row_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/cpu/kernel_tables.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

// Taylor series in f64 on [-pi/4, pi/4]: the first term left out is below 3e-14 of the result.
double sin_core(double r) {
  const double u = r * r;
  double p = 1.0 / 6227020800.0;
  for (const double c : {-1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0}) p = p * u + c;
  return r + r * u * p;
}
double cos_core(double r) {
  const double u = r * r;
  double p = -1.0 / 87178291200.0;
  for (const double c : {1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5}) {
    p = p * u + c;
  }
  return 1.0 + u * p;
}

float position_value(const RopeTableArgs& args, std::int64_t row) {
  switch (args.position_dtype) {
    case DType::kSI32:
      return static_cast<float>(static_cast<const std::int32_t*>(args.positions)[row]);
    case DType::kUI32:
      return static_cast<float>(static_cast<const std::uint32_t*>(args.positions)[row]);
    case DType::kSI64:
      return static_cast<float>(static_cast<const std::int64_t*>(args.positions)[row]);
    default:
      COREAI_INVARIANT(args.position_dtype == DType::kF32);
      return static_cast<const float*>(args.positions)[row];
  }
}

}  // namespace

void sin_cos(float x, float& sine, float& cosine) {
  const double value = static_cast<double>(x);
  if (!(std::abs(value) < 1.6e6)) {
    sine = static_cast<float>(std::sin(value));
    cosine = static_cast<float>(std::cos(value));
    return;
  }
  // pi/2 in parts of 33 bits: their products with a quadrant below 2^20 are exact (Cody and Waite 1980).
  constexpr double kPart1 = 0x1.921fb544p+0, kPart2 = 0x1.0b4611a6p-34, kPart3 = 0x1.3198a2e037073p-69;
  const double quadrant = std::nearbyint(value * 0.63661977236758134);
  const double r = ((value - quadrant * kPart1) - quadrant * kPart2) - quadrant * kPart3;
  const auto q = static_cast<std::int64_t>(quadrant);
  double s = sin_core(r), c = cos_core(r);
  if ((q & 1) != 0) std::swap(s, c);
  sine = static_cast<float>((q & 2) != 0 ? -s : s);
  cosine = static_cast<float>(((q + 1) & 2) != 0 ? -c : c);
}

void rope_table(const RopeTableArgs& args, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float scaled = position_value(args, r) * args.position_scale;
    for (std::int64_t i = 0; i < args.pairs; ++i) {
      float sine, cosine;
      sin_cos(scaled * args.inv_freq[i], sine, cosine);
      args.sin_out[r * args.row_stride + i] = sine * args.factor;
      args.cos_out[r * args.row_stride + i] = cosine * args.factor;
    }
  }
}

std::int64_t top_k(const float* x, std::int64_t n, std::int64_t k, std::int32_t* indices, float* values) {
  k = std::min(k, n);
  if (k <= 0) return 0;
  const auto value = [x](std::int32_t i) { return std::isnan(x[i]) ? -std::numeric_limits<float>::infinity() : x[i]; };
  // Largest first, the lower index first of ties; the heap's top is the worst of the k so far.
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float va = value(a), vb = value(b);
    return va > vb || (va == vb && a < b);
  };
  std::int64_t held = 0;
  float worst = 0.0f;
  for (std::int64_t i = 0; i < n; ++i) {
    if (held == k && !(x[i] > worst)) continue;
    if (held == k) {
      std::pop_heap(indices, indices + held, better);
      --held;
    }
    indices[held++] = static_cast<std::int32_t>(i);
    std::push_heap(indices, indices + held, better);
    worst = value(indices[0]);
  }
  std::sort_heap(indices, indices + held, better);
  for (std::int64_t i = 0; values != nullptr && i < held; ++i) values[i] = value(indices[i]);
  return held;
}

namespace {

// A matrix of the two innermost dimensions, in squares that stay in L1 when neither side is contiguous in both.
void copy_matrix(const float* in, float* out, const std::int64_t* extents, const std::int64_t* in_strides,
                 const std::int64_t* out_strides) {
  if (in_strides[1] == 1 && out_strides[1] == 1) {
    for (std::int64_t i = 0; i < extents[0]; ++i) {
      std::memcpy(out + i * out_strides[0], in + i * in_strides[0],
                  static_cast<std::size_t>(extents[1]) * sizeof(float));
    }
    return;
  }
  constexpr std::int64_t kSquare = 16;
  for (std::int64_t i0 = 0; i0 < extents[0]; i0 += kSquare) {
    const std::int64_t i1 = std::min(extents[0], i0 + kSquare);
    for (std::int64_t j0 = 0; j0 < extents[1]; j0 += kSquare) {
      const std::int64_t j1 = std::min(extents[1], j0 + kSquare);
      for (std::int64_t i = i0; i < i1; ++i) {
        for (std::int64_t j = j0; j < j1; ++j) {
          out[i * out_strides[0] + j * out_strides[1]] = in[i * in_strides[0] + j * in_strides[1]];
        }
      }
    }
  }
}

}  // namespace

void strided_copy(const StridedCopyArgs& args, std::int64_t begin, std::int64_t end) {
  constexpr int kRank = StridedCopyArgs::kMaxRank;
  COREAI_INVARIANT(args.rank >= 0 && args.rank <= kRank);
  // Padded to full rank in front; the first extent is cut to [begin, end).
  std::array<std::int64_t, kRank> extents, in_strides{}, out_strides{};
  extents.fill(1);
  const int shift = kRank - args.rank;
  for (int i = 0; i < args.rank; ++i) {
    extents[static_cast<std::size_t>(shift + i)] = i == 0 ? end - begin : args.extents[i];
    in_strides[static_cast<std::size_t>(shift + i)] = args.in_strides[i];
    out_strides[static_cast<std::size_t>(shift + i)] = args.out_strides[i];
  }
  if (args.rank == 0 && end <= begin) return;
  const std::int64_t in_start = args.rank > 0 ? begin * args.in_strides[0] : 0;
  const std::int64_t out_start = args.rank > 0 ? begin * args.out_strides[0] : 0;
  std::int64_t outer = 1;
  for (const std::int64_t extent : extents) {
    if (extent <= 0) return;
  }
  for (std::size_t i = 0; i < kRank - 2; ++i) outer *= extents[i];
  for (std::int64_t index = 0; index < outer; ++index) {
    std::int64_t rest = index, in = in_start, out = out_start;
    for (std::size_t i = kRank - 2; i-- > 0;) {
      in += rest % extents[i] * in_strides[i];
      out += rest % extents[i] * out_strides[i];
      rest /= extents[i];
    }
    copy_matrix(args.in + in, args.out + out, &extents[kRank - 2], &in_strides[kRank - 2], &out_strides[kRank - 2]);
  }
}

}  // namespace coreai::cpu
