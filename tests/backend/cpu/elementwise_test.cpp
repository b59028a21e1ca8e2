#include "backend/cpu/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"
#include "kernel_test_support.h"

namespace coreai::cpu {
namespace {

using testing::Random;
using testing::same_bits;

EwInstruction load(std::uint8_t dst, std::uint8_t input) {
  return {EwOp::kLoad, dst, input};
}
EwInstruction store(std::uint8_t output, std::uint8_t from) {
  return {EwOp::kStore, output, from};
}

// One operation over flat arrays, on every level with equal bits.
std::vector<float> apply(EwOp op, const std::vector<std::vector<float>>& inputs) {
  EwProgram program;
  program.inputs = static_cast<int>(inputs.size());
  program.outputs = 1;
  for (int i = 0; i < program.inputs; ++i)
    program.code.push_back(load(static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(i)));
  program.code.push_back({op, 5, 0, 1, 2});
  program.code.push_back(store(0, 5));
  program.validate();
  const std::size_t n = inputs[0].size();
  std::vector<float> first;
  for (const Isa isa : testing::levels()) {
    std::vector<float> out(n);
    EwBinding b;
    b.rank = 1;
    b.extents[0] = static_cast<std::int64_t>(n);
    for (std::size_t i = 0; i < inputs.size(); ++i) b.inputs[i] = {inputs[i].data(), DType::kF32, {1}};
    b.outputs[0] = {out.data(), DType::kF32, {1}};
    const std::int64_t units = ew_units(b);
    elementwise_kernel(isa)(program, b, units / 2, units);
    elementwise_kernel(isa)(program, b, 0, units / 2);
    if (first.empty()) first = out;
    for (std::size_t k = 0; k < n; ++k) {
      const bool same = std::bit_cast<std::uint32_t>(out[k]) == std::bit_cast<std::uint32_t>(first[k]) ||
                        (std::isnan(out[k]) && std::isnan(first[k]));
      EXPECT_TRUE(same) << isa_name(isa) << " op " << static_cast<int>(op) << " of " << inputs[0][k];
      if (!same) return first;
    }
  }
  return first;
}

std::vector<float> spread() {
  Random random(2);
  std::vector<float> x;
  for (int i = 0; i < 30001; ++i) {
    const float range = std::pow(10.0f, random.uniform(-6.0f, 2.2f));
    x.push_back(random.uniform(-range, range));
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (const float v : {0.0f,   -0.0f,   inf,    -inf,    std::numeric_limits<float>::quiet_NaN(),
                        1e-40f, -1e-40f, 3e38f,  -3e38f,  88.7f,
                        88.73f, -87.3f,  -88.0f, -103.0f, -104.5f,
                        0.92f,  0.55f,   4.0f,   1.0f,    -1.0f,
                        1e-38f}) {
    x.push_back(v);
  }
  return x;
}

struct Function {
  EwOp op;
  const char* name;
  std::function<double(double)> exact;
  double ulp, absolute;  // either is enough
};

TEST(Elementwise, FunctionsAreAccurate) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<Function> functions = {
      {EwOp::kExp, "exp", [](double x) { return std::exp(x); }, 1.1, 1e-45},
      {EwOp::kLog, "log", [](double x) { return std::log(x); }, 1.5, 0},
      {EwOp::kTanh, "tanh", [](double x) { return std::tanh(x); }, 2.0, 0},
      {EwOp::kErf, "erf", [](double x) { return std::erf(x); }, 2.0, 0},
      {EwOp::kSigmoid, "sigmoid", sigmoid, 2.5, 1e-38},
      {EwOp::kSilu, "silu", [&](double x) { return x * sigmoid(x); }, 3.0, 1e-36},
      {EwOp::kGeluErf, "gelu_erf", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }, 4.0, 3e-7},
      {EwOp::kGeluTanh, "gelu_tanh",
       [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }, 4.0, 4e-7},
      {EwOp::kSqrt, "sqrt", [](double x) { return std::sqrt(x); }, 0.51, 0},
      {EwOp::kRsqrt, "rsqrt", [](double x) { return 1 / std::sqrt(x); }, 1.51, 0},
      {EwOp::kReciprocal, "reciprocal", [](double x) { return 1 / x; }, 0.51, 0},
      {EwOp::kNeg, "neg", [](double x) { return -x; }, 0, 0},
      {EwOp::kAbs, "abs", [](double x) { return std::fabs(x); }, 0, 0},
      {EwOp::kRelu, "relu", [](double x) { return x > 0 || std::isnan(x) ? x : 0; }, 0, 0},
      {EwOp::kFloor, "floor", [](double x) { return std::floor(x); }, 0, 0},
      {EwOp::kCeil, "ceil", [](double x) { return std::ceil(x); }, 0, 0},
      {EwOp::kRound, "round", [](double x) { return std::nearbyint(x); }, 0, 0},
      {EwOp::kTrunc, "trunc", [](double x) { return std::trunc(x); }, 0, 0},
      {EwOp::kSin, "sin", [](double x) { return std::sin(x); }, 0.501, 0},
      {EwOp::kCos, "cos", [](double x) { return std::cos(x); }, 0.501, 0},
      {EwOp::kNot, "not", [](double x) { return x == 0 ? 1.0 : 0.0; }, 0, 0},
      {EwOp::kRoundF16, "f16", [](double x) { return f16_to_f32(f64_to_f16(x)); }, 0, 0},
      {EwOp::kRoundBF16, "bf16", [](double x) { return bf16_to_f32(f64_to_bf16(x)); }, 0, 0},
  };
  const std::vector<float> x = spread();
  for (const Function& f : functions) {
    const std::vector<float> y = apply(f.op, {x});
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = f.exact(static_cast<double>(x[i]));
      // Infinities where the definition in f64 gives 0 * inf.
      if (std::isinf(x[i]) && std::isnan(want)) continue;
      if (std::fabs(static_cast<double>(y[i]) - want) <= f.absolute) continue;
      const double error = testing::ulps(y[i], want);
      ASSERT_LE(error, f.ulp) << f.name << " of " << x[i] << " is " << y[i] << " not " << want;
      worst = std::max(worst, error);
    }
    RecordProperty(f.name, std::to_string(worst));
  }
}

TEST(Elementwise, BinaryAndTernaryOperations) {
  Random random(6);
  std::vector<float> a = random.values(1003, -2, 2), b = random.values(1003, -2, 2), c = random.values(1003, -2, 2);
  for (std::size_t i = 0; i < a.size(); i += 5) a[i] = 0.0f;
  for (std::size_t i = 0; i < a.size(); i += 3) b[i] = a[i];
  a[10] = b[20] = std::numeric_limits<float>::quiet_NaN();
  const auto check = [&](EwOp op, const std::function<float(float, float, float)>& exact, bool third = false) {
    const auto y = third ? apply(op, {a, b, c}) : apply(op, {a, b});
    for (std::size_t i = 0; i < a.size(); ++i) {
      const float want = exact(a[i], b[i], c[i]);
      ASSERT_TRUE(y[i] == want || (std::isnan(y[i]) && std::isnan(want))) << static_cast<int>(op) << " at " << i;
    }
  };
  const auto nan_or = [](float x, float y, float z) { return std::isnan(x) || std::isnan(y) ? x + y : z; };
  check(EwOp::kAdd, [](float x, float y, float) { return x + y; });
  check(EwOp::kSub, [](float x, float y, float) { return x - y; });
  check(EwOp::kMul, [](float x, float y, float) { return x * y; });
  check(EwOp::kDiv, [](float x, float y, float) { return x / y; });
  check(EwOp::kMax, [&](float x, float y, float) { return nan_or(x, y, std::fmax(x, y)); });
  check(EwOp::kMin, [&](float x, float y, float) { return nan_or(x, y, std::fmin(x, y)); });
  check(EwOp::kPow, [](float x, float y, float) {
    return static_cast<float>(std::pow(static_cast<double>(x), static_cast<double>(y)));
  });
  check(EwOp::kEqual, [](float x, float y, float) { return x == y ? 1.0f : 0.0f; });
  check(EwOp::kLess, [](float x, float y, float) { return x < y ? 1.0f : 0.0f; });
  check(EwOp::kLessEqual, [](float x, float y, float) { return x <= y ? 1.0f : 0.0f; });
  check(EwOp::kAnd, [](float x, float y, float) { return x != 0 && y != 0 ? 1.0f : 0.0f; });
  check(EwOp::kOr, [](float x, float y, float) { return x != 0 || y != 0 ? 1.0f : 0.0f; });
  check(EwOp::kSelect, [](float x, float y, float z) { return x != 0 ? y : z; }, true);
  check(EwOp::kFma, [](float x, float y, float z) { return std::fma(x, y, z); }, true);
}

TEST(Elementwise, PortableFmaRoundsOnce) {
  Random random(12);
  std::vector<float> a, b, c;
  for (int i = 0; i < 50000; ++i) {
    a.push_back(std::ldexp(random.uniform(-1, 1), static_cast<int>(random.next() % 60) - 30));
    b.push_back(std::ldexp(random.uniform(-1, 1), static_cast<int>(random.next() % 60) - 30));
    // Near the product, where a second rounding would show.
    c.push_back(i % 2 == 0 ? std::ldexp(-a.back() * b.back(), static_cast<int>(random.next() % 50) - 25)
                           : random.uniform(-1, 1));
    if (i % 7 == 0) a.back() = std::ldexp(a.back(), -110);
  }
  const auto y = apply(EwOp::kFma, {a, b, c});
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(y[i], std::fma(a[i], b[i], c[i])) << a[i] << " " << b[i] << " " << c[i];
}

// out[i][j][k] = silu(x[i][j][k]) * row[k] + column[j] with a scalar, on odd extents and strides.
TEST(Elementwise, BroadcastsStridesAndDtypes) {
  const std::int64_t n0 = 3, n1 = 5;
  for (const std::int64_t n2 : {1, 7, 16, 255, 256, 257, 600}) {
    Random random(static_cast<std::uint64_t>(n2));
    const auto x = random.values(static_cast<std::size_t>(n0 * n1 * n2 * 2), -3, 3);
    std::vector<std::uint16_t> row(static_cast<std::size_t>(n2));
    for (auto& r : row) r = f32_to_f16(random.uniform(-1, 1));
    std::vector<std::int32_t> column(static_cast<std::size_t>(n1));
    for (auto& c : column) c = static_cast<std::int32_t>(random.next() % 10);
    const float scalar = 0.25f;
    EwProgram program;
    program.inputs = 4;
    program.outputs = 3;
    program.code = {load(0, 0),
                    {EwOp::kSilu, 1, 0},
                    load(2, 1),
                    {EwOp::kMul, 1, 1, 2},
                    load(3, 2),
                    {EwOp::kAdd, 1, 1, 3},
                    load(4, 3),
                    {EwOp::kMul, 1, 1, 4},
                    store(0, 1),
                    store(1, 1),
                    {EwOp::kConstant, 6, 0, 0, 0, 0.5f},
                    {EwOp::kLess, 7, 6, 1},
                    store(2, 7)};
    program.validate();
    for (const Isa isa : testing::levels()) {
      std::vector<float> out(static_cast<std::size_t>(n0 * n1 * n2), -7.0f);
      std::vector<std::uint16_t> narrow(out.size() * 3);
      std::vector<std::uint8_t> flags(out.size());
      EwBinding b;
      b.rank = 3;
      b.extents = {n0, n1, n2};
      b.inputs[0] = {x.data(), DType::kF32, {n1 * n2 * 2, n2 * 2, 2}};
      b.inputs[1] = {row.data(), DType::kF16, {0, 0, 1}};
      b.inputs[2] = {column.data(), DType::kSI32, {0, 1, 0}};
      b.inputs[3] = {&scalar, DType::kF32, {0, 0, 0}};
      b.outputs[0] = {out.data(), DType::kF32, {n1 * n2, n2, 1}};
      b.outputs[1] = {narrow.data(), DType::kBF16, {n1 * n2 * 3, n2 * 3, 3}};
      b.outputs[2] = {flags.data(), DType::kI1, {n1 * n2, n2, 1}};
      ew_collapse(program, b);
      EXPECT_LE(b.rank, 3);
      const std::int64_t units = ew_units(b);
      for (std::int64_t u = 0; u < units; u += 3) elementwise_kernel(isa)(program, b, u, std::min(units, u + 3));
      for (std::int64_t i = 0; i < n0 * n1 * n2; ++i) {
        const double v = static_cast<double>(x[static_cast<std::size_t>(2 * i)]);
        const double want =
            (v / (1 + std::exp(-v)) * static_cast<double>(f16_to_f32(row[static_cast<std::size_t>(i % n2)])) +
             column[static_cast<std::size_t>(i / n2 % n1)]) *
            0.25;
        const float got = out[static_cast<std::size_t>(i)];
        ASSERT_NEAR(static_cast<double>(got), want, 1e-6);
        ASSERT_EQ(narrow[static_cast<std::size_t>(3 * i)], f32_to_bf16(got));
        ASSERT_EQ(flags[static_cast<std::size_t>(i)], got > 0.5f ? 1 : 0);
      }
    }
  }
}

TEST(Elementwise, CollapsesWhatIsContiguousAndWorksInPlace) {
  EwProgram program;
  program.inputs = 2;
  program.outputs = 1;
  // The input is read again after the output has been written over it: the loaded value counts.
  program.code = {load(0, 0), load(1, 1), {EwOp::kAdd, 2, 0, 1}, store(0, 2), {EwOp::kMul, 2, 0, 2}, store(0, 2)};
  std::vector<float> x(6 * 64, 2.0f), y(x.size(), 3.0f);
  EwBinding b;
  b.rank = 4;
  b.extents = {1, 6, 1, 64};
  b.inputs[0] = {x.data(), DType::kF32, {384, 64, 64, 1}};
  b.inputs[1] = {y.data(), DType::kF32, {384, 64, 64, 1}};
  b.outputs[0] = {x.data(), DType::kF32, {384, 64, 64, 1}};
  ew_collapse(program, b);
  EXPECT_EQ(b.rank, 1);
  EXPECT_EQ(b.extents[0], 384);
  EXPECT_EQ(ew_units(b), 2);
  elementwise_kernel(detect_isa())(program, b, 0, 2);
  EXPECT_EQ(x, std::vector<float>(x.size(), 10.0f));

  EwBinding scalar;
  float a = 4.0f, c = 5.0f;
  scalar.inputs[0] = {&a, DType::kF32, {}};
  scalar.inputs[1] = {&c, DType::kF32, {}};
  scalar.outputs[0] = {&a, DType::kF32, {}};
  elementwise_kernel(detect_isa())(program, scalar, 0, ew_units(scalar));
  EXPECT_EQ(a, 36.0f);
}

TEST(Elementwise, RefusesBrokenPrograms) {
  const auto with = [](EwInstruction i) {
    EwProgram p;
    p.inputs = p.outputs = 1;
    p.code = {load(0, 0), i, store(0, 0)};
    return p;
  };
  EXPECT_NO_THROW(with({EwOp::kAdd, 1, 0, 0}).validate());
  EXPECT_THROW(with({EwOp::kAdd, 1, 0, 3}).validate(), InvalidArgumentError);
  EXPECT_THROW(with({EwOp::kAdd, 16, 0, 0}).validate(), InvalidArgumentError);
  EXPECT_THROW(with({EwOp::kLoad, 1, 1}).validate(), InvalidArgumentError);
  EXPECT_THROW(with({EwOp::kStore, 1, 0}).validate(), InvalidArgumentError);
}

}  // namespace
}  // namespace coreai::cpu
