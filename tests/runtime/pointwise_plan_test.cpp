// Convolutions with one tap in plans: linear layers, equal to the convolution; other convolutions stay.
#include <gtest/gtest.h>

#include <random>

#include "coreai/ir/builder.h"
#include "coreai/runtime/ai_model.h"

namespace coreai {
namespace {

using ir::OpCode;
using V = ir::Value*;

constexpr std::int64_t kBatch = 2, kIn = 32, kOut = 48, kWidth = 9;

struct Form {
  std::string name;
  bool palettised = false;
  std::int64_t height = 1;
  std::uint32_t stride = 1;
  bool linear = true;  // whether a linear layer is expected
};

NDArray random_array(DType dtype, const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  NDArray out(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
  for (double& v : values) v = std::uniform_real_distribution<double>(-1, 1)(random);
  write_from_f64(out, values);
  return out;
}

// y = conv(silu(conv(x) + bias) * conv(x)) with filters [out, in, 1, 1].
std::unique_ptr<ir::Module> program(const Form& form) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder b(*module);
  const auto type = [&](const Shape& s) { return b.context().tensor_type(DType::kF16, s); };
  const std::int64_t width = (kWidth - 1) / form.stride + 1, height = (form.height - 1) / form.stride + 1;
  const Shape inner{kBatch, kOut, height, width};
  ir::GraphSpec spec;
  spec.name = "main";
  spec.inputs = {{"x", type(Shape{kBatch, kIn, form.height, kWidth}), ""}};
  spec.outputs = {{"y", type(Shape{kBatch, kIn, height, width}), ""}};
  V x = b.begin_graph(spec).body().arguments[0];
  const auto filter = [&](std::int64_t out, std::int64_t in, unsigned seed) {
    const Shape shape{out, in, 1, 1};
    if (!form.palettised) return b.constant(random_array(DType::kF16, shape, seed));
    NDArray codes(DType::kUI4, shape);
    std::mt19937 random(seed);
    for (std::byte& code : codes.mutable_bytes()) code = static_cast<std::byte>(random());
    V table = b.constant(random_array(DType::kF16, Shape{out / 8, 1, 1, 1, 16, 1}, seed + 1));
    NDArray axis(DType::kSI16, Shape{});
    return b.op1(OpCode::kLutToDense, {b.constant(codes), table, b.constant(axis)}, type(shape));
  };
  const auto conv = [&](V in, V w, std::uint32_t stride, const Shape& shape) {
    NDArray one(DType::kUI32, Shape{});
    const double value = 1;
    write_from_f64(one, std::span(&value, 1));
    return b.op1(OpCode::kConv2d, {in, w, b.constant_u32({stride, stride}), b.constant_u32({1, 1}), b.constant(one)},
                 type(shape));
  };
  V gate = conv(x, filter(kOut, kIn, 1), form.stride, inner), up = conv(x, filter(kOut, kIn, 3), form.stride, inner);
  V bias = b.constant(random_array(DType::kF16, Shape{1, kOut, 1, 1}, 9));
  gate = b.op1(OpCode::kSilu, {b.op1(OpCode::kBroadcastingAdd, {gate, bias}, type(inner))}, type(inner));
  V hidden = b.op1(OpCode::kBroadcastingMul, {gate, up}, type(inner));
  b.end_graph({conv(hidden, filter(kIn, kOut, 5), 1, Shape{kBatch, kIn, height, width})});
  return module;
}

TEST(PointwisePlan, OneTapIsALinearLayer) {
  for (const Form& form : {Form{"dense"}, Form{"palettised", true}, Form{"palettised image", true, 5},
                           Form{"dense image", false, 5, 1, false}, Form{"strided", true, 1, 2, true}}) {
    SCOPED_TRACE(form.name);
    SpecializationOptions options;
    options.use_cache = false;
    std::vector<std::vector<double>> results;
    for (int kind = 0; kind < 6; ++kind) {
      options.precision = kind == 0 ? Precision::kStrict : Precision::kFaithful;
      options.threads = kind == 2 ? 1 : 2;
      options.disabled_passes.clear();
      if (kind >= 3) options.disabled_passes = {kind == 3 ? "linear" : kind == 4 ? "views" : "fusion"};
      const InferenceFunction function = AIModel::from_module(program(form), options).load_function();
      if (kind == 1) {
        const std::string plan = function.plan_text({}, false);
        EXPECT_EQ(plan.find("linear") != std::string::npos, form.linear) << plan;
        const bool looked_up = plan.find("lut_to_dense") != std::string::npos;
        EXPECT_TRUE(form.stride != 1 || !looked_up) << plan;
      }
      Invocation call = function.make_invocation();
      call.set_input(0, random_array(DType::kF16, Shape{kBatch, kIn, form.height, kWidth}, 77));
      call.run();
      results.emplace_back(static_cast<std::size_t>(call.output(0).element_count()));
      read_as_f64(call.output(0), results.back());
    }
    for (std::size_t kind = 1; kind < results.size(); ++kind) {
      for (std::size_t i = 0; i < results[0].size(); ++i)
        ASSERT_NEAR(results[kind][i], results[0][i], 0.06) << kind << " " << i;
    }
    EXPECT_EQ(results[1], results[2]);
  }
}

}  // namespace
}  // namespace coreai
