// Convolutions, pooling, padding and ranges whose extents a call gives: compiled, equal to what runs op by op.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "coreai/base/error.h"
#include "coreai/ir/builder.h"
#include "coreai/runtime/ai_model.h"

namespace coreai {
namespace {

using ir::OpCode;
using V = ir::Value*;

NDArray random(const Shape& shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
  for (double& v : values) v = std::normal_distribution<double>()(engine);
  NDArray out(DType::kF32, shape);
  write_from_f64(out, values);
  return out;
}

NDArray scalar(DType dtype, double value) {
  NDArray out(dtype, Shape{});
  write_from_f64(out, std::vector<double>{value});
  return out;
}

enum class Kind : std::uint8_t { kConvolution, kMaxPool, kMaxPoolUp, kSumPool, kPad, kRange, kExtents };

// y = kind(x) of x [1, 2, ?, ?].
std::unique_ptr<ir::Module> program(Kind kind) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder b(*module);
  ir::Context& context = b.context();
  const auto type = [&](std::int64_t channels) {
    return context.tensor_type(DType::kF32, Shape{1, channels, kDynamic, kDynamic});
  };
  const std::int64_t channels = kind == Kind::kConvolution ? 3 : 2;
  ir::GraphSpec spec;
  spec.name = "main";
  spec.inputs = {{"x", type(2), ""}};
  spec.outputs = {{"y", type(channels), ""}};
  const V x = b.begin_graph(spec).body().arguments[0];
  const V window = b.constant_u32({3, 2}), stride = b.constant_u32({2, 1}), dilation = b.constant_u32({1, 2});
  V y = nullptr;
  switch (kind) {
    case Kind::kConvolution:
      y = b.op1(OpCode::kConv2d,
                {x, b.constant(random(Shape{3, 2, 3, 2}, 1)), stride, dilation, b.constant(scalar(DType::kUI32, 1))},
                type(3));
      break;
    case Kind::kMaxPool:
    case Kind::kMaxPoolUp:
      y = b.op1(OpCode::kMaxPool2d,
                {x, window, stride, dilation, b.constant(scalar(DType::kI1, kind == Kind::kMaxPoolUp ? 1 : 0))},
                type(2));
      break;
    case Kind::kSumPool:
      y = b.op1(OpCode::kSumPool2d, {x, window, stride, dilation}, type(2));
      break;
    case Kind::kPad:
      y = b.op1(OpCode::kPad, {x, b.constant_u32({0, 0, 0, 0, 1, 2, 0, 3}), b.constant(scalar(DType::kF32, 0.5))},
                type(2), {{"padding_mode", context.enum_attr(ir::AttrCode::kPaddingMode, 1)}});
      break;
    case Kind::kRange: {  // y = x + (2 w, 2 w - 2, .., 2), w the width
      const auto one = context.tensor_type(DType::kSI32, Shape{1});
      V extents = b.op1(OpCode::kGetShape, {x}, context.tensor_type(DType::kUI32, Shape{4}));
      extents = b.op1(OpCode::kCast, {extents}, context.tensor_type(DType::kSI32, Shape{4}));
      V width = b.op1(OpCode::kSlice, {extents, b.constant_i32({3}), b.constant_i32({4}), b.constant_i32({1})}, one);
      width = b.op1(OpCode::kReshape, {width, b.constant_u32({})}, context.tensor_type(DType::kSI32, Shape{}));
      V twice = b.op1(OpCode::kBroadcastingMul, {width, b.scalar_i32(2)}, context.tensor_type(DType::kSI32, Shape{}));
      V down = b.op1(OpCode::kRange, {twice, b.scalar_i32(0), b.scalar_i32(-2)},
                     context.tensor_type(DType::kSI32, Shape{kDynamic}));
      down = b.op1(OpCode::kCast, {down}, context.tensor_type(DType::kF32, Shape{kDynamic}));
      y = b.op1(OpCode::kBroadcastingAdd, {x, down}, type(2));
      break;
    }
    case Kind::kExtents: {  // y = x times the sum of its extents
      const Shape four{1, 4};
      V extents = b.op1(OpCode::kGetShape, {x}, context.tensor_type(DType::kUI32, Shape{4}));
      extents = b.op1(OpCode::kCast, {extents}, context.tensor_type(DType::kSI32, Shape{4}));
      extents = b.op1(OpCode::kReshape, {extents, b.constant_u32({1, 4})}, context.tensor_type(DType::kSI32, four));
      extents = b.op1(OpCode::kCast, {extents}, context.tensor_type(DType::kF32, four));
      V sum = b.op1(OpCode::kReduceSum, {extents, b.constant_i32({1})}, context.tensor_type(DType::kF32, Shape{1, 1}));
      y = b.op1(OpCode::kBroadcastingMul, {x, sum}, type(2));
      break;
    }
  }
  b.end_graph({y});
  return module;
}

InferenceFunction load(Kind kind, Precision precision, int threads = 2) {
  SpecializationOptions options;
  options.precision = precision;
  options.threads = threads;
  options.use_cache = false;
  return AIModel::from_module(program(kind), options).load_function("main");
}

// The result, or the kind of error as its message.
std::pair<Shape, std::vector<double>> run(const InferenceFunction& function, const Shape& extents) {
  Invocation call = function.make_invocation();
  call.set_input(0, random(extents, 5));
  call.run();
  std::vector<double> y(static_cast<std::size_t>(call.output(0).element_count()));
  read_as_f64(call.output(0), y);
  return {call.output(0).shape(), y};
}

class DynamicExtents : public testing::TestWithParam<Kind> {};

TEST_P(DynamicExtents, AreCompiledAndEqualToOpByOp) {
  const InferenceFunction compiled = load(GetParam(), Precision::kFaithful);
  const InferenceFunction strict = load(GetParam(), Precision::kStrict);
  ASSERT_EQ(compiled.execution_kind(), "compiled");
  for (const Shape& extents : {Shape{1, 2, 5, 6}, Shape{1, 2, 3, 3}, Shape{1, 2, 12, 4}, Shape{1, 2, 6, 33}}) {
    const auto got = run(compiled, extents), wanted = run(strict, extents);
    ASSERT_EQ(got.first, wanted.first) << extents.to_string();
    for (std::size_t i = 0; i < got.second.size(); ++i) {
      ASSERT_NEAR(got.second[i], wanted.second[i], 1e-5 * std::max(1.0, std::fabs(wanted.second[i])))
          << extents.to_string() << " " << i;
    }
    EXPECT_EQ(got, run(load(GetParam(), Precision::kFaithful, 1), extents));
  }
}

// A window larger than the input is refused as it is op by op, and the function stays usable.
TEST_P(DynamicExtents, AnInputThatIsTooSmallIsAnError) {
  const InferenceFunction compiled = load(GetParam(), Precision::kFaithful);
  const bool any_will_do = GetParam() >= Kind::kPad;
  for (const Shape& extents : {Shape{1, 2, 2, 6}, Shape{1, 2, 6, 2}}) {
    if (any_will_do) {
      EXPECT_NO_THROW(run(compiled, extents));
    } else {
      EXPECT_THROW(run(compiled, extents), Error);
    }
  }
  EXPECT_NO_THROW(run(compiled, Shape{1, 2, 3, 3}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DynamicExtents,
                         testing::Values(Kind::kConvolution, Kind::kMaxPool, Kind::kMaxPoolUp, Kind::kSumPool,
                                         Kind::kPad, Kind::kRange, Kind::kExtents));

// Steps and extents that a file may hold but no call can mean: what runs op by op decides, nothing wraps.
TEST(HostileExtents, FallBackToOpByOp) {
  const auto build = [](std::int32_t step, std::int32_t shift) {
    auto module = std::make_unique<ir::Module>();
    ir::Builder b(*module);
    ir::Context& context = b.context();
    const auto ints = [&](std::int64_t n) { return context.tensor_type(DType::kSI32, Shape{n}); };
    ir::GraphSpec spec;
    spec.name = "main";
    spec.inputs = {{"x", context.tensor_type(DType::kF32, Shape{kDynamic}), ""}};
    spec.outputs = {{"y", context.tensor_type(DType::kF32, Shape{kDynamic, kDynamic}), ""},
                    {"r", context.tensor_type(DType::kSI32, Shape{kDynamic}), ""}};
    const V x = b.begin_graph(spec).body().arguments[0];
    V extent = b.op1(OpCode::kGetShape, {x}, context.tensor_type(DType::kUI32, Shape{1}));
    extent = b.op1(OpCode::kCast, {extent}, ints(1));
    V first = b.op1(OpCode::kBroadcastingAdd, {extent, b.constant_i32({shift})}, ints(1));
    V wanted = b.op1(OpCode::kConcat, {b.scalar_i32(0), first, b.constant_i32({-1})}, ints(2));
    V y = b.op1(OpCode::kReshape, {x, wanted}, context.tensor_type(DType::kF32, Shape{kDynamic, kDynamic}));
    V end = b.op1(OpCode::kReshape, {extent, b.constant_u32({})}, context.tensor_type(DType::kSI32, Shape{}));
    V r = b.op1(OpCode::kRange, {b.scalar_i32(0), end, b.scalar_i32(step)},
                context.tensor_type(DType::kSI32, Shape{kDynamic}));
    b.end_graph({y, r});
    return module;
  };
  const auto outcome = [&](std::int32_t step, std::int32_t shift,
                           Precision precision) -> std::pair<std::string, std::string> {
    SpecializationOptions options;
    options.precision = precision;
    options.use_cache = false;
    const InferenceFunction function = AIModel::from_module(build(step, shift), options).load_function("main");
    Invocation call = function.make_invocation();
    call.set_input(0, random(Shape{4}, 1));
    try {
      call.run();
    } catch (const Error&) {
      return {"refused", ""};
    }
    return {call.output(0).shape().to_string(), call.output(1).shape().to_string()};
  };
  constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();
  for (const auto& [step, shift] :
       std::vector<std::pair<std::int32_t, std::int32_t>>{{1, 0}, {kLargest, 0}, {1, -5}, {1, -4}, {3, -2}})
    EXPECT_EQ(outcome(step, shift, Precision::kFaithful), outcome(step, shift, Precision::kStrict))
        << step << " " << shift;
  EXPECT_EQ(outcome(1, -5, Precision::kFaithful).first, "refused");
  EXPECT_EQ(outcome(3, -2, Precision::kFaithful).second, "2");
}

// A mask, keys and values whose extents are equal in the call alone: attention under a check, else op by op.
TEST(DynamicAttention, ChecksExtentsWhenCalled) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder b(*module);
  ir::Context& context = b.context();
  const auto type = [&](const Shape& shape) { return context.tensor_type(DType::kF32, shape); };
  const Shape heads{1, 2, kDynamic, 8}, scores{1, 2, kDynamic, kDynamic};
  ir::GraphSpec spec;
  spec.name = "main";
  spec.inputs = {{"q", type(heads), ""},
                 {"k", type(heads), ""},
                 {"v", type(heads), ""},
                 {"mask", type(Shape{kDynamic, kDynamic}), ""}};
  spec.outputs = {{"y", type(heads), ""}};
  const auto in = b.begin_graph(spec).body().arguments;
  V keys = b.op1(OpCode::kTranspose, {in[1], b.constant_u32({0, 1, 3, 2})}, type(Shape{1, 2, 8, kDynamic}));
  V s = b.op1(OpCode::kBroadcastingBatchMatmul, {in[0], keys}, type(scores));
  s = b.op1(OpCode::kBroadcastingMul, {s, b.splat(DType::kF32, Shape{1}, 0.35)}, type(scores));
  s = b.op1(OpCode::kBroadcastingAdd, {s, in[3]}, type(scores));
  s = b.op1(OpCode::kSoftmax, {s, b.scalar_i32(-1)}, type(scores));
  b.end_graph({b.op1(OpCode::kBroadcastingBatchMatmul, {s, in[2]}, type(heads))});
  SpecializationOptions options;
  options.use_cache = false;
  options.precision = Precision::kFaithful;
  const AIModel model = AIModel::from_module(std::move(module), options);
  const InferenceFunction function = model.load_function("main");
  ASSERT_EQ(function.execution_kind(), "compiled");
  EXPECT_THAT(function.plan_text(std::vector<std::int64_t>{3, 4, 4, 3, 4}, false), testing::HasSubstr("attention"));
  // softmax(q k^T * 0.35 + mask) v in f64.
  const auto expect = [&](std::int64_t rows, std::int64_t count, const Shape& mask_shape) {
    const NDArray q = random(Shape{1, 2, rows, 8}, 1), k = random(Shape{1, 2, count, 8}, 2),
                  v = random(Shape{1, 2, count, 8}, 3), mask = random(mask_shape, 4);
    Invocation call = function.make_invocation();
    call.set_input(0, q), call.set_input(1, k), call.set_input(2, v), call.set_input(3, mask);
    call.run();
    const auto y = call.output(0).values<float>();
    const auto qs = q.values<float>(), ks = k.values<float>(), vs = v.values<float>(), ms = mask.values<float>();
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t r = 0; r < rows; ++r) {
        std::vector<double> weight(static_cast<std::size_t>(count));
        double sum = 0;
        for (std::int64_t c = 0; c < count; ++c) {
          double dot = 0;
          for (std::int64_t d = 0; d < 8; ++d)
            dot += static_cast<double>(qs[static_cast<std::size_t>((h * rows + r) * 8 + d)]) *
                   ks[static_cast<std::size_t>((h * count + c) * 8 + d)];
          const std::int64_t row = mask_shape[0] == 1 ? 0 : r, column = mask_shape[1] == 1 ? 0 : c;
          const float added = ms[static_cast<std::size_t>(row * mask_shape[1] + column)];
          sum += weight[static_cast<std::size_t>(c)] = std::exp(dot * static_cast<double>(0.35F) + added);
        }
        for (std::int64_t d = 0; d < 8; ++d) {
          double wanted = 0;
          for (std::int64_t c = 0; c < count; ++c)
            wanted += weight[static_cast<std::size_t>(c)] / sum * vs[static_cast<std::size_t>((h * count + c) * 8 + d)];
          ASSERT_NEAR(y[static_cast<std::size_t>((h * rows + r) * 8 + d)], wanted, 1e-5) << h << " " << r << " " << d;
        }
      }
    }
  };
  expect(3, 4, Shape{3, 4});
  expect(5, 9, Shape{1, 9});  // a mask that is broadcast: the plan does not hold
  expect(1, 7, Shape{1, 7});
  expect(6, 6, Shape{6, 1});
}

}  // namespace
}  // namespace coreai
