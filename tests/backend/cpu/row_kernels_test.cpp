#include "backend/cpu/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "coreai/base/float_types.h"
#include "kernel_test_support.h"

namespace coreai::cpu {
namespace {

using testing::Random;
using testing::same_bits;

constexpr std::int64_t kDims[] = {1, 3, 15, 16, 17, 63, 64, 100, 576, 1001};

double max_error(const std::vector<float>& got, const std::vector<double>& want) {
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]) / (1.0 + std::fabs(want[i])));
  }
  return worst;
}

// Runs the kernel on every level, whole and in two pieces of rows: all bits must agree.
std::vector<float> on_every_level(
    std::int64_t rows, std::size_t size,
    const std::function<void(const RowKernels&, float*, std::int64_t, std::int64_t)>& run) {
  std::vector<float> first;
  for (const Isa isa : testing::levels()) {
    std::vector<float> whole(size, -7.0f), pieces(size, -7.0f);
    run(row_kernels(isa), whole.data(), 0, rows);
    run(row_kernels(isa), pieces.data(), rows / 2, rows);
    run(row_kernels(isa), pieces.data(), 0, rows / 2);
    EXPECT_TRUE(same_bits(whole, pieces)) << isa_name(isa);
    if (first.empty()) first = whole;
    EXPECT_TRUE(same_bits(whole, first)) << isa_name(isa);
  }
  return first;
}

TEST(RowKernels, RmsNormWithSumGroupsAndResidual) {
  for (const std::int64_t dim : kDims) {
    for (int form = 0; form < 4; ++form) {
      SCOPED_TRACE(std::to_string(dim) + " form " + std::to_string(form));
      const std::int64_t rows = 5, groups = 3, stride = groups * dim + 2;
      Random random(static_cast<std::uint64_t>(dim));
      const std::size_t size = static_cast<std::size_t>(rows * stride);
      const auto x = random.values(size, -3, 3), add = random.values(size), residual = random.values(size);
      const auto weight = random.values(static_cast<std::size_t>(groups * dim));
      std::vector<float> sums(size, -7.0f);
      RmsNormArgs a;
      a.x = x.data();
      a.x_row_stride = a.out_row_stride = a.add_row_stride = a.sum_row_stride = a.residual_row_stride = stride;
      a.x_group_stride = a.out_group_stride = a.add_group_stride = a.sum_group_stride = a.residual_group_stride = dim;
      a.groups = groups;
      a.dim = dim;
      a.eps = 1e-5f;
      if (form != 1) a.weight = weight.data();
      if (form == 1 || form == 3) a.add = add.data();
      if (form == 3) a.sum_out = sums.data();
      if (form >= 2) {
        a.weight_group_stride = dim;
        a.weight_offset = 1.0f;
        a.residual = residual.data();
      }
      const auto got = on_every_level(rows, size, [&](const RowKernels& k, float* out, auto begin, auto end) {
        a.out = out;
        k.rms_norm(a, begin, end);
      });
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t g = 0; g < groups; ++g) {
          const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(r * stride + g * dim + i); };
          const auto s = [&](std::int64_t i) {
            return static_cast<double>(a.add != nullptr ? x[at(i)] + add[at(i)] : x[at(i)]);
          };
          double squares = 0;
          for (std::int64_t i = 0; i < dim; ++i) squares += s(i) * s(i);
          const double factor = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-5);
          for (std::int64_t i = 0; i < dim; ++i) {
            double want = s(i) * factor;
            if (form == 0) want *= static_cast<double>(weight[static_cast<std::size_t>(i)]);
            if (form >= 2) {
              want = want * (1.0 + static_cast<double>(weight[static_cast<std::size_t>(g * dim + i)])) +
                     static_cast<double>(residual[at(i)]);
            }
            ASSERT_NEAR(static_cast<double>(got[at(i)]), want, 2e-6 * (1 + std::fabs(want)));
            if (form == 3) {
              ASSERT_EQ(static_cast<double>(sums[at(i)]), s(i));
            }
          }
        }
        ASSERT_EQ(got[static_cast<std::size_t>(r * stride + groups * dim)], -7.0f);
      }
    }
  }
}

TEST(RowKernels, RmsNormInPlaceAddsTheResidualStreamOnce) {
  Random random(5);
  const auto x = random.values(100), add = random.values(100), weight = random.values(100);
  std::vector<float> want(100), sum(100), stream = x, out(100);
  RmsNormArgs a;
  a.dim = 100;
  a.eps = 1e-6f;
  a.weight = weight.data();
  a.add = add.data();
  a.x = x.data();
  a.sum_out = sum.data();
  a.out = want.data();
  const RowKernels& k = row_kernels(detect_isa());
  k.rms_norm(a, 0, 1);
  a.x = stream.data();
  a.sum_out = stream.data();
  a.out = out.data();
  k.rms_norm(a, 0, 1);
  EXPECT_TRUE(same_bits(out, want));
  EXPECT_TRUE(same_bits(stream, sum));
}

TEST(RowKernels, LayerNorm) {
  for (const std::int64_t dim : kDims) {
    const std::int64_t rows = 4;
    Random random(static_cast<std::uint64_t>(dim));
    const auto x = random.values(static_cast<std::size_t>(rows * dim), 1, 5);
    const auto weight = random.values(static_cast<std::size_t>(dim)),
               bias = random.values(static_cast<std::size_t>(dim));
    LayerNormArgs a{x.data(), dim, weight.data(), bias.data(), nullptr, dim, dim, 1e-5f};
    const auto got = on_every_level(rows, x.size(), [&](const RowKernels& k, float* out, auto begin, auto end) {
      a.out = out;
      k.layer_norm(a, begin, end);
    });
    std::vector<double> want;
    for (std::int64_t r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      const auto at = [&](std::int64_t i) { return static_cast<double>(x[static_cast<std::size_t>(r * dim + i)]); };
      for (std::int64_t i = 0; i < dim; ++i) mean += at(i) / static_cast<double>(dim);
      for (std::int64_t i = 0; i < dim; ++i) variance += (at(i) - mean) * (at(i) - mean) / static_cast<double>(dim);
      for (std::int64_t i = 0; i < dim; ++i) {
        want.push_back((at(i) - mean) / std::sqrt(variance + 1e-5) *
                           static_cast<double>(weight[static_cast<std::size_t>(i)]) +
                       static_cast<double>(bias[static_cast<std::size_t>(i)]));
      }
    }
    EXPECT_LT(max_error(got, want), dim == 1 ? 1e-6 : 1e-5) << dim;
  }
}

TEST(RowKernels, SinAndCosToHalfAnUlp) {
  Random random(1);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const float range = std::pow(10.0f, random.uniform(-3.0f, 6.0f));
    const float x = i < 1000 ? static_cast<float>(i) * 1.57079637f : random.uniform(-range, range);
    float s, c;
    sin_cos(x, s, c);
    worst = std::max({worst, testing::ulps(s, std::sin(static_cast<double>(x))),
                      testing::ulps(c, std::cos(static_cast<double>(x)))});
  }
  EXPECT_LT(worst, 0.501);
  float s, c;
  sin_cos(3.0e20f, s, c);
  EXPECT_LT(testing::ulps(s, std::sin(static_cast<double>(3.0e20f))), 0.501);
  sin_cos(std::numeric_limits<float>::infinity(), s, c);
  EXPECT_TRUE(std::isnan(s) && std::isnan(c));
}

TEST(RowKernels, RopeTableUsesAnglesInF32) {
  const std::vector<std::int64_t> positions{0, 1, 17, 131071};
  const std::vector<float> inv_freq{1.0f, 0.1f, 1e-4f};
  std::vector<float> cos(16), sin(16);
  RopeTableArgs a{positions.data(), DType::kSI64, 0.25f, inv_freq.data(), 3, 1.5f, cos.data(), sin.data(), 4};
  rope_table(a, 0, 4);
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t i = 0; i < 3; ++i) {
      const float angle = static_cast<float>(positions[r]) * 0.25f * inv_freq[i];
      EXPECT_EQ(cos[r * 4 + i], static_cast<float>(std::cos(static_cast<double>(angle))) * 1.5f);
      EXPECT_EQ(sin[r * 4 + i], static_cast<float>(std::sin(static_cast<double>(angle))) * 1.5f);
    }
  }
}

// x rotated in double.
std::vector<double> rotated(const float* x, std::int64_t dim, const float* cos, const float* sin, std::int64_t pairs,
                            RopeForm form) {
  std::vector<double> y(x, x + dim);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto a = static_cast<std::size_t>(form == RopeForm::kHalfSplit ? i : 2 * i);
    const auto b = static_cast<std::size_t>(form == RopeForm::kHalfSplit ? i + pairs : 2 * i + 1);
    const double c = static_cast<double>(cos[i]), s = static_cast<double>(sin[i]);
    const double u = static_cast<double>(x[a]), v = static_cast<double>(x[b]);
    y[a] = u * c - v * s;
    y[b] = v * c + u * s;
  }
  return y;
}

TEST(RowKernels, RopeInBothFormsAndInPlace) {
  for (const RopeForm form : {RopeForm::kHalfSplit, RopeForm::kInterleaved}) {
    for (const auto& [dim, pairs] : {std::pair<std::int64_t, std::int64_t>{64, 32}, {10, 5}, {80, 13}, {96, 32}}) {
      const std::int64_t rows = 3, heads = 2;
      Random random(9);
      const auto x = random.values(static_cast<std::size_t>(rows * heads * dim));
      const auto cos = random.values(static_cast<std::size_t>(rows * pairs)), sin = random.values(cos.size());
      RopeArgs a{x.data(), heads * dim, dim,        nullptr, heads * dim, dim, heads,
                 dim,      cos.data(),  sin.data(), pairs,   pairs,       form};
      const auto got = on_every_level(rows, x.size(), [&](const RowKernels& k, float* out, auto begin, auto end) {
        a.out = out;
        k.rope(a, begin, end);
      });
      std::vector<double> want;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const auto row = rotated(x.data() + (r * heads + h) * dim, dim, cos.data() + r * pairs,
                                   sin.data() + r * pairs, pairs, form);
          want.insert(want.end(), row.begin(), row.end());
        }
      }
      EXPECT_LT(max_error(got, want), 2e-7);
      auto in_place = x;
      a.x = a.out = in_place.data();
      row_kernels(detect_isa()).rope(a, 0, rows);
      EXPECT_TRUE(same_bits(in_place, got));
    }
  }
}

// Norm, rotation and stores in one pass against the single kernels; the two halves against the whole.
TEST(RowKernels, QkvEqualsItsParts) {
  const std::int64_t rows = 45, dim = 24, pairs = 8, nq = 4, nk = 2, nv = 2, heads = nq + nk + nv;
  Random random(3);
  const auto x = random.values(static_cast<std::size_t>(rows * heads * dim), -2, 2);
  const auto q_norm = random.values(dim), k_norm = random.values(nk * dim);
  const auto cos = random.values(rows * pairs), sin = random.values(rows * pairs);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const bool norm : {false, true}) {
      KvBuffer reference_keys(KvRole::kKey, dtype, {3, nk, dim}, 300),
          reference_values(KvRole::kValue, dtype, {3, nv, dim}, 300);
      std::vector<float> want_q(static_cast<std::size_t>(rows * nq * dim)), head(dim);
      const RowKernels& k = row_kernels(detect_isa());
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const float* from = x.data() + (r * heads + h) * dim;
          std::copy(from, from + dim, head.begin());
          if (h < nq + nk) {
            RmsNormArgs n;
            n.x = n.out = nullptr;
            n.x = head.data();
            n.out = head.data();
            n.weight = h < nq ? q_norm.data() : k_norm.data() + (h - nq) * dim;
            n.dim = dim;
            n.eps = 1e-6f;
            n.weight_offset = 1.0f;
            if (norm) k.rms_norm(n, 0, 1);
            RopeArgs rope{head.data(),
                          0,
                          0,
                          head.data(),
                          0,
                          0,
                          1,
                          dim,
                          cos.data() + r * pairs,
                          sin.data() + r * pairs,
                          0,
                          pairs,
                          RopeForm::kHalfSplit};
            k.rope(rope, 0, 1);
          }
          if (h < nq) {
            std::copy(head.begin(), head.end(), want_q.begin() + (r * nq + h) * dim);
          } else if (h < nq + nk) {
            reference_keys.store_rows(2, h - nq, 230 + r, 1, head.data(), 0);
          } else {
            reference_values.store_rows(2, h - nq - nk, 230 + r, 1, head.data(), 0);
          }
        }
      }
      for (const Isa isa : testing::levels()) {
        for (const bool halves : {false, true}) {
          KvBuffer keys(KvRole::kKey, dtype, {3, nk, dim}, 300), values(KvRole::kValue, dtype, {3, nv, dim}, 300);
          std::vector<float> q(want_q.size());
          QkvArgs a;
          a.x = x.data();
          a.x_row_stride = heads * dim;
          a.q_heads = nq;
          a.k_heads = nk;
          a.v_heads = nv;
          a.head_dim = dim;
          if (norm) {
            a.q_norm = q_norm.data();
            a.k_norm = k_norm.data();
          }
          a.k_norm_head_stride = dim;
          a.norm_weight_offset = 1.0f;
          a.eps = 1e-6f;
          a.cos = cos.data();
          a.sin = sin.data();
          a.rope_row_stride = a.pairs = pairs;
          a.q_out = q.data();
          a.q_row_stride = nq * dim;
          a.q_head_stride = dim;
          a.keys = &keys;
          a.values = &values;
          a.layer = 2;
          a.first_position = 230;
          for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 20}, {20, rows}}) {
            for (const auto& [from, to] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {5, heads}}) {
              if (!halves) {
                row_kernels(isa).qkv(a, begin, end, from, to);
                continue;
              }
              std::vector<float> scratch(static_cast<std::size_t>((end - begin) * (to - from) * dim));
              row_kernels(isa).qkv_compute(a, begin, end, from, to, scratch.data());
              row_kernels(isa).qkv_publish(a, begin, end, from, to, scratch.data());
            }
          }
          EXPECT_TRUE(same_bits(q, want_q));
          EXPECT_TRUE(std::ranges::equal(keys.to_array().bytes(), reference_keys.to_array().bytes()));
          EXPECT_TRUE(std::ranges::equal(values.to_array().bytes(), reference_values.to_array().bytes()));
        }
      }
    }
  }
}

TEST(RowKernels, SoftmaxAndItsLogarithm) {
  for (const std::int64_t dim : kDims) {
    for (const bool log : {false, true}) {
      const std::int64_t rows = 3;
      Random random(static_cast<std::uint64_t>(dim));
      auto x = random.values(static_cast<std::size_t>(rows * dim), -20, 20);
      if (dim > 3) x[1] = -std::numeric_limits<float>::infinity();
      SoftmaxArgs a{x.data(), dim, nullptr, dim, dim, 0.7f, log};
      const auto got = on_every_level(rows, x.size(), [&](const RowKernels& k, float* out, auto begin, auto end) {
        a.out = out;
        k.softmax(a, begin, end);
      });
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto scaled = [&](std::int64_t i) {
          return static_cast<double>(x[static_cast<std::size_t>(r * dim + i)]) * static_cast<double>(0.7f);
        };
        double top = -INFINITY, sum = 0;
        for (std::int64_t i = 0; i < dim; ++i) top = std::max(top, scaled(i));
        for (std::int64_t i = 0; i < dim; ++i) sum += std::exp(scaled(i) - top);
        for (std::int64_t i = 0; i < dim; ++i) {
          const double value = got[static_cast<std::size_t>(r * dim + i)];
          const double want = log ? scaled(i) - top - std::log(sum) : std::exp(scaled(i) - top) / sum;
          if (std::isinf(want)) {
            ASSERT_EQ(value, want);
          } else {
            ASSERT_NEAR(value, want, log ? 4e-6 : 1e-7 + 2e-6 * want) << dim;
          }
        }
      }
    }
  }
  std::vector<float> nothing(20, -std::numeric_limits<float>::infinity());
  SoftmaxArgs a{nothing.data(), 20, nothing.data(), 20, 20, 1.0f, false};
  row_kernels(detect_isa()).softmax(a, 0, 1);
  EXPECT_EQ(nothing, std::vector<float>(20, 0.0f));
}

TEST(RowKernels, ArgmaxTakesTheFirstOfTies) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const Isa isa : testing::levels()) {
    const auto argmax = row_kernels(isa).argmax;
    Random random(4);
    for (const std::int64_t n : {1, 2, 15, 16, 17, 100, 5003}) {
      auto x = random.values(static_cast<std::size_t>(n), -5, -1);
      EXPECT_EQ(argmax(x.data(), n), std::max_element(x.begin(), x.end()) - x.begin());
      if (n < 3) continue;
      x[static_cast<std::size_t>(n - 1)] = x[1] = 3.0f;
      x[0] = nan;
      EXPECT_EQ(argmax(x.data(), n), 1);
    }
    const std::vector<float> rest{nan, -inf, nan, -inf};
    EXPECT_EQ(argmax(rest.data(), 4), 1);
    EXPECT_EQ(argmax(rest.data(), 1), 0);
  }
}

TEST(RowKernels, TopKIsSortedWithTheLowerIndexFirst) {
  Random random(8);
  for (const std::int64_t n : {1, 5, 100, 4099}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = std::floor(random.uniform(-20, 20));
    if (n > 10) x[7] = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::int32_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](std::int32_t i) {
      return std::isnan(x[static_cast<std::size_t>(i)]) ? -INFINITY : x[static_cast<std::size_t>(i)];
    };
    std::sort(order.begin(), order.end(),
              [&](std::int32_t a, std::int32_t b) { return value(a) > value(b) || (value(a) == value(b) && a < b); });
    for (const std::int64_t k : {0, 1, 3, 40, 5000}) {
      std::vector<std::int32_t> indices(static_cast<std::size_t>(std::min(k, n)));
      std::vector<float> values(indices.size());
      ASSERT_EQ(top_k(x.data(), n, k, indices.data(), values.data()), std::min(k, n));
      for (std::size_t i = 0; i < indices.size(); ++i) {
        ASSERT_EQ(indices[i], order[i]);
        ASSERT_EQ(values[i], value(order[i]));
      }
    }
  }
}

TEST(RowKernels, ConvertsEveryHalfAndRoundsToNearestEven) {
  std::vector<std::uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  Random random(11);
  std::vector<float> floats(65536 + 5);
  for (float& f : floats) f = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
  for (std::size_t i = 0; i < 4096; ++i) floats[i] = random.uniform(-1e-4f, 1e-4f);  // f16 subnormals
  for (const Isa isa : testing::levels()) {
    const RowKernels& k = row_kernels(isa);
    std::vector<float> wide(65536);
    std::vector<std::uint16_t> narrow(floats.size());
    for (const bool half : {true, false}) {
      const DType dtype = half ? DType::kF16 : DType::kBF16;
      k.to_f32(dtype, halves.data(), wide.data(), 65533);
      for (std::size_t i = 0; i < 65533; ++i) {
        const float want = half ? f16_to_f32(halves[i]) : bf16_to_f32(halves[i]);
        ASSERT_TRUE(std::isnan(want) ? std::isnan(wide[i])
                                     : std::bit_cast<std::uint32_t>(want) == std::bit_cast<std::uint32_t>(wide[i]))
            << i;
      }
      k.from_f32(dtype, floats.data(), narrow.data(), static_cast<std::int64_t>(floats.size()));
      for (std::size_t i = 0; i < floats.size(); ++i) {
        if (std::isnan(floats[i])) {
          ASSERT_TRUE(std::isnan(half ? f16_to_f32(narrow[i]) : bf16_to_f32(narrow[i])));
        } else {
          ASSERT_EQ(narrow[i], half ? f32_to_f16(floats[i]) : f32_to_bf16(floats[i]));
        }
      }
    }
  }
}

TEST(RowKernels, StridedCopyTransposes) {
  const std::int64_t a = 5, b = 19, c = 33;
  std::vector<float> in(static_cast<std::size_t>(a * b * c)), out(in.size());
  std::iota(in.begin(), in.end(), 0.0f);
  StridedCopyArgs args;
  args.in = in.data();
  args.out = out.data();
  args.rank = 3;
  // out[c][b][a] from in[a][b][c], walked in out's order.
  const std::int64_t extents[] = {c, b, a}, from[] = {1, c, b * c}, to[] = {b * a, a, 1};
  for (int i = 0; i < 3; ++i) {
    args.extents[i] = extents[i];
    args.in_strides[i] = from[i];
    args.out_strides[i] = to[i];
  }
  strided_copy(args, 0, 10);
  strided_copy(args, 10, c);
  for (std::int64_t i = 0; i < a; ++i) {
    for (std::int64_t j = 0; j < b; ++j) {
      for (std::int64_t k = 0; k < c; ++k) {
        ASSERT_EQ(out[static_cast<std::size_t>((k * b + j) * a + i)],
                  in[static_cast<std::size_t>((i * b + j) * c + k)]);
      }
    }
  }
}

}  // namespace
}  // namespace coreai::cpu
