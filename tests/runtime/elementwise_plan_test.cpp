// Element-wise chains in plans: joined, and equal to the operations one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "coreai/ir/builder.h"
#include "coreai/runtime/ai_model.h"

namespace coreai {
namespace {

using ir::OpCode;
using V = ir::Value*;

struct Built {
  std::unique_ptr<ir::Module> module = std::make_unique<ir::Module>();
  ir::Builder builder{*module};
  std::vector<V> arguments;

  Built(const std::vector<std::pair<DType, Shape>>& inputs, DType out, const Shape& out_shape) {
    ir::GraphSpec spec;
    spec.name = "main";
    for (std::size_t i = 0; i < inputs.size(); ++i)
      spec.inputs.push_back(
          {"x" + std::to_string(i), builder.context().tensor_type(inputs[i].first, inputs[i].second), ""});
    spec.outputs.push_back({"y", builder.context().tensor_type(out, out_shape), ""});
    const auto& block = builder.begin_graph(spec).body().arguments;
    arguments.assign(block.begin(), block.end());
  }
  V op(OpCode code, std::vector<V> operands, DType dtype, const Shape& shape) {
    return builder.op1(code, std::move(operands), builder.context().tensor_type(dtype, shape));
  }
};

NDArray random_array(DType dtype, const Shape& shape, std::mt19937& random) {
  NDArray out(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
  for (double& v : values) v = std::uniform_real_distribution<double>(0.25, 1.75)(random);
  write_from_f64(out, values);
  return out;
}

NDArray widened(const NDArray& array) {
  std::vector<double> values(static_cast<std::size_t>(array.element_count()));
  read_as_f64(array, values);
  NDArray out(DType::kF32, array.shape());
  write_from_f64(out, values);
  return out;
}

std::vector<double> run(const InferenceFunction& function, const std::vector<NDArray>& inputs) {
  Invocation call = function.make_invocation();
  for (std::size_t i = 0; i < inputs.size(); ++i) call.set_input(i, inputs[i]);
  call.run();
  std::vector<double> out(static_cast<std::size_t>(call.output(0).element_count()));
  read_as_f64(call.output(0), out);
  return out;
}

SpecializationOptions options(Precision precision, std::vector<std::string> disabled = {}, int threads = 2) {
  SpecializationOptions made;
  made.precision = precision;
  made.threads = threads;
  made.use_cache = false;
  made.disabled_passes = std::move(disabled);
  return made;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(wanted[i])) continue;
    if (got[i] == wanted[i]) continue;
    largest = std::max(largest, std::fabs(wanted[i]));
    worst = std::max(worst, std::fabs(got[i] - wanted[i]));
  }
  EXPECT_LE(worst, tolerance * std::max(largest, 1.0));
}

// A layer of arithmetic on operands that broadcast and a transposed view: one step.
TEST(ElementwisePlan, AChainIsOneStep) {
  const Shape shape{4, 3, kDynamic, 10};
  const auto build = [&] {
    Built b({{DType::kF32, Shape{4, kDynamic, 3, 10}}, {DType::kF32, Shape{3, 1, 10}}}, DType::kF32, shape);
    V x = b.op(OpCode::kTranspose, {b.arguments[0], b.builder.constant_u32({0, 2, 1, 3})}, DType::kF32, shape);
    V y = b.op(OpCode::kBroadcastingAdd, {x, b.arguments[1]}, DType::kF32, shape);
    y = b.op(OpCode::kBroadcastingMul, {y, b.builder.scalar_f32(0.5f)}, DType::kF32, shape);
    y = b.op(OpCode::kTanh, {y}, DType::kF32, shape);
    y = b.op(OpCode::kBroadcastingSub, {y, x}, DType::kF32, shape);
    b.builder.end_graph({y});
    return std::move(b.module);
  };
  std::mt19937 random(1);
  const std::vector<NDArray> inputs{random_array(DType::kF32, {4, 70, 3, 10}, random),
                                    random_array(DType::kF32, {3, 1, 10}, random)};
  const InferenceFunction one = AIModel::from_module(build(), options(Precision::kFaithful)).load_function();
  EXPECT_EQ(one.execution_kind(), "compiled");
  const std::string plan = one.plan_text(std::vector<std::int64_t>{70}, false);
  EXPECT_NE(plan.find("elementwise 5"), std::string::npos) << plan;
  const auto strict = run(AIModel::from_module(build(), options(Precision::kStrict)).load_function(), inputs);
  const auto off = AIModel::from_module(build(), options(Precision::kFaithful, {"elementwise"})).load_function();
  expect_close(run(one, inputs), strict, 1e-6);
  expect_close(run(off, inputs), strict, 1e-6);
  const auto three = AIModel::from_module(build(), options(Precision::kFaithful, {}, 3)).load_function();
  EXPECT_EQ(run(three, inputs), run(one, inputs));
}

// Programs drawn at random: values read often and late, chains longer than the registers, truth values, narrow floats.
std::unique_ptr<ir::Module> random_program(unsigned seed, DType dtype) {
  std::mt19937 random(seed);
  const Shape shape{3, 37};
  Built b({{dtype, shape}, {dtype, Shape{37}}, {dtype, Shape{3, 1}}, {DType::kI1, shape}}, dtype, shape);
  std::vector<V> floats, truths{b.arguments[3]};
  for (int i = 0; i < 3; ++i) {
    V x = b.op(OpCode::kBroadcastingAdd, {b.arguments[static_cast<std::size_t>(i)], b.builder.splat(dtype, shape, 0.5)},
               dtype, shape);
    floats.push_back(x);
  }
  const auto pick = [&](const std::vector<V>& from) {
    return from[std::uniform_int_distribution<std::size_t>(0, from.size() - 1)(random)];
  };
  const int length = std::uniform_int_distribution<int>(5, 90)(random);
  for (int i = 0; i < length; ++i) {
    switch (std::uniform_int_distribution<int>(0, 9)(random)) {
      case 0:
        floats.push_back(b.op(OpCode::kBroadcastingAdd, {pick(floats), pick(floats)}, dtype, shape));
        break;
      case 1:
        floats.push_back(b.op(OpCode::kBroadcastingSub, {pick(floats), pick(floats)}, dtype, shape));
        break;
      case 2:
        floats.push_back(b.op(OpCode::kMaximum, {pick(floats), pick(floats)}, dtype, shape));
        break;
      case 3:
        floats.push_back(b.op(OpCode::kTanh, {pick(floats)}, dtype, shape));
        break;
      case 4:
        floats.push_back(b.op(OpCode::kSigmoid, {pick(floats)}, dtype, shape));
        break;
      case 5:
        truths.push_back(b.op(OpCode::kGreater, {pick(floats), pick(floats)}, DType::kI1, shape));
        break;
      case 6:
        truths.push_back(b.op(OpCode::kNot, {pick(truths)}, DType::kI1, shape));
        break;
      case 7:
        truths.push_back(b.op(OpCode::kLogicalOr, {pick(truths), pick(truths)}, DType::kI1, shape));
        break;
      case 8:
        floats.push_back(b.op(OpCode::kWhere, {pick(truths), pick(floats), pick(floats)}, dtype, shape));
        break;
      default:
        floats.push_back(b.op(OpCode::kCast, {pick(truths)}, dtype, shape));
        break;
    }
  }
  V sum = floats.back();
  for (V v : floats) sum = b.op(OpCode::kBroadcastingMaximum, {sum, v}, dtype, shape);
  b.builder.end_graph({sum});
  return std::move(b.module);
}

TEST(ElementwisePlan, RandomProgramsAgree) {
  std::mt19937 random(5);
  for (unsigned seed = 0; seed < 60; ++seed) {
    const DType dtype = seed % 3 == 0 ? DType::kF16 : seed % 3 == 1 ? DType::kBF16 : DType::kF32;
    SCOPED_TRACE(seed);
    NDArray truth(DType::kI1, {3, 37});
    for (std::byte& byte : truth.mutable_bytes()) byte = static_cast<std::byte>(random() & 1);
    const std::vector<NDArray> inputs{random_array(dtype, {3, 37}, random), random_array(dtype, {37}, random),
                                      random_array(dtype, {3, 1}, random), truth};
    const auto exact = AIModel::from_module(random_program(seed, DType::kF32), options(Precision::kStrict));
    const auto wanted = run(exact.load_function(), {widened(inputs[0]), widened(inputs[1]), widened(inputs[2]), truth});
    const auto function =
        AIModel::from_module(random_program(seed, dtype), options(Precision::kFaithful)).load_function();
    EXPECT_EQ(function.execution_kind(), "compiled");
    // Comparisons of values that differ by a rounding may fall either way: most elements must agree.
    const auto got = run(function, inputs);
    ASSERT_EQ(got.size(), wanted.size());
    const double tolerance = dtype == DType::kF32 ? 1e-5 : dtype == DType::kF16 ? 2e-3 : 2e-2;
    int apart = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      apart += std::fabs(got[i] - wanted[i]) > tolerance * std::max(1.0, std::fabs(wanted[i])) ? 1 : 0;
    EXPECT_LE(apart, dtype == DType::kF32 ? 0 : 8);
  }
}

}  // namespace
}  // namespace coreai
