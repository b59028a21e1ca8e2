// Linear layers whose weights share stored integers.
#include <gtest/gtest.h>

#include <cmath>

#include "coreai/ir/builder.h"
#include "coreai/runtime/ai_model.h"

namespace coreai {
namespace {

using ir::OpCode;

NDArray filled(DType dtype, const Shape& shape, double (*value)(std::int64_t)) {
  NDArray out(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(static_cast<std::int64_t>(i));
  write_from_f64(out, values);
  return out;
}

double zeros(std::int64_t) {
  return 0;
}

// y = x W1' - z W2', both of the same si8 constant; what else they are made of is given.
std::unique_ptr<ir::Module> difference(const NDArray& scale1, const NDArray& scale2, const NDArray& offset1,
                                       const NDArray& offset2) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder builder(*module);
  const auto type = [&](DType dtype, const Shape& shape) { return builder.context().tensor_type(dtype, shape); };
  ir::GraphSpec spec;
  spec.name = "main";
  spec.inputs.push_back({"x", type(DType::kF32, {2, 64}), ""});
  spec.inputs.push_back({"z", type(DType::kF32, {2, 64}), ""});  // layers on one input would be one call
  spec.outputs.push_back({"y", type(DType::kF32, {2, 32}), ""});
  const auto& inputs = builder.begin_graph(spec).body().arguments;
  const NDArray data =
      filled(DType::kSI8, {32, 64}, [](std::int64_t i) { return static_cast<double>((i * 37) % 101 - 50); });
  const auto product = [&](ir::Value* x, const NDArray& scale, const NDArray& offset) {
    ir::Value* weight = builder.op1(OpCode::kBlockwiseShiftScale,
                                    {builder.constant(data), builder.constant(scale),
                                     builder.constant(filled(DType::kSI8, {32, 2}, zeros)), builder.constant(offset)},
                                    type(DType::kF32, {32, 64}));
    ir::Value* turned =
        builder.op1(OpCode::kTranspose, {weight, builder.constant_u32({1, 0})}, type(DType::kF32, {64, 32}));
    return builder.op1(OpCode::kBroadcastingBatchMatmul, {x, turned}, type(DType::kF32, {2, 32}));
  };
  ir::Value* first = product(inputs[0], scale1, offset1);
  ir::Value* second = product(inputs[1], scale2, offset2);
  builder.end_graph({builder.op1(OpCode::kBroadcastingSub, {first, second}, type(DType::kF32, {2, 32}))});
  return module;
}

std::vector<float> run(std::unique_ptr<ir::Module> module, Precision precision) {
  SpecializationOptions options;
  options.precision = precision;
  options.use_cache = false;
  const InferenceFunction function = AIModel::from_module(std::move(module), options).load_function();
  EXPECT_EQ(function.execution_kind() == "compiled", precision != Precision::kStrict) << function.execution_kind();
  Invocation call = function.make_invocation();
  const NDArray x = filled(DType::kF32, {2, 64}, [](std::int64_t i) { return std::sin(static_cast<double>(i)); });
  call.set_input(0, x);
  call.set_input(1, x);
  call.run();
  const auto values = call.output(0).values<float>();
  return {values.begin(), values.end()};
}

// One packed matrix may serve two layers only when every part of the weight is the same.
TEST(SharedWeight, OtherScalesOrOffsetsAreAnotherWeight) {
  const NDArray small =
      filled(DType::kF32, {32, 2}, [](std::int64_t i) { return 0.01 + 1e-4 * static_cast<double>(i); });
  const NDArray large =
      filled(DType::kF32, {32, 2}, [](std::int64_t i) { return 0.05 - 2e-4 * static_cast<double>(i); });
  const NDArray none = filled(DType::kF32, {32, 2}, zeros);
  const NDArray some = filled(DType::kF32, {32, 2}, [](std::int64_t i) { return 0.1 * static_cast<double>(i); });
  const auto expect_as_strict = [](const auto& build) {
    const std::vector<float> wanted = run(build(), Precision::kStrict), got = run(build(), Precision::kExact);
    float largest = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(got[i], wanted[i], 1e-3) << i;
      largest = std::max(largest, std::fabs(wanted[i]));
    }
    return largest;
  };
  EXPECT_GT(expect_as_strict([&] { return difference(small, large, none, none); }), 1.0f);
  EXPECT_GT(expect_as_strict([&] { return difference(small, small, none, some); }), 1.0f);
  EXPECT_EQ(expect_as_strict([&] { return difference(small, small, none, none); }), 0.0f);
}

// Blocks of columns that no kernel reads as digits: packed as what the operation gives, rounded to its type, whatever
// the number of elements.
TEST(SharedWeight, BlocksThatAreNoDigitsAreRoundedAsTheOperationRounds) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const std::int64_t outputs : {std::int64_t{32}, std::int64_t{512}}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + std::to_string(outputs));
      const auto build = [&] {
        auto module = std::make_unique<ir::Module>();
        ir::Builder b(*module);
        const auto type = [&](DType d, const Shape& shape) { return b.context().tensor_type(d, shape); };
        ir::GraphSpec spec;
        spec.name = "main";
        spec.inputs = {{"x", type(DType::kF32, {2, 256}), ""}};
        spec.outputs = {{"y", type(DType::kF32, {2, outputs}), ""}};
        ir::Value* x = b.begin_graph(spec).body().arguments[0];
        const NDArray data = filled(DType::kSI8, {outputs, 256},
                                    [](std::int64_t i) { return static_cast<double>((i * 37) % 101 - 50); });
        const NDArray scale =
            filled(dtype, {outputs, 32}, [](std::int64_t i) { return 0.01 + 1e-5 * static_cast<double>(i % 977); });
        ir::Value* weight = b.op1(OpCode::kBlockwiseShiftScale,
                                  {b.constant(data), b.constant(scale), b.splat(DType::kSI8, {outputs, 32}, 0),
                                   b.splat(dtype, {outputs, 32}, 0)},
                                  type(dtype, {outputs, 256}));
        weight = b.op1(OpCode::kCast, {weight}, type(DType::kF32, {outputs, 256}));
        weight = b.op1(OpCode::kTranspose, {weight, b.constant_u32({1, 0})}, type(DType::kF32, {256, outputs}));
        b.end_graph({b.op1(OpCode::kBroadcastingBatchMatmul, {x, weight}, type(DType::kF32, {2, outputs}))});
        return module;
      };
      std::vector<std::vector<float>> results;
      for (const Precision precision : {Precision::kFaithful, Precision::kStrict}) {
        SpecializationOptions options;
        options.precision = precision;
        options.use_cache = false;
        const InferenceFunction function = AIModel::from_module(build(), options).load_function();
        Invocation call = function.make_invocation();
        call.set_input(0,
                       filled(DType::kF32, {2, 256}, [](std::int64_t i) { return std::sin(static_cast<double>(i)); }));
        call.run();
        const auto values = call.output(0).values<float>();
        results.emplace_back(values.begin(), values.end());
        if (precision == Precision::kFaithful) {
          EXPECT_NE(function.plan_text({}, false).find("linear"), std::string::npos);
        }
      }
      for (std::size_t i = 0; i < results[0].size(); ++i) ASSERT_NEAR(results[0][i], results[1][i], 2e-5) << i;
    }
  }
}

}  // namespace
}  // namespace coreai
