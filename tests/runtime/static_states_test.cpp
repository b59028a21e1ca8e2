// Functions of fixed shapes whose states are arrays: a position is given as a value, updates happen in place.
#include <gtest/gtest.h>

#include "coreai/base/error.h"
#include "coreai/compiler/compiler.h"
#include "coreai/ir/builder.h"
#include "coreai/runtime/ai_model.h"
#include "coreai/runtime/recorded_calls.h"

namespace coreai {
namespace {

using ir::OpCode;
using V = ir::Value*;

constexpr std::int64_t kLayers = 2, kChannels = 4, kNew = 2, kCapacity = 8;

// cache[1, :, position : position + 2] = x; y = cache[layer]; with `old`, of the content before the update.
std::unique_ptr<ir::Module> cache_program(bool old = false, std::int32_t layer = 1) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder b(*module);
  ir::Context& context = b.context();
  const auto f16 = [&](const Shape& shape) { return context.tensor_type(DType::kF16, shape); };
  const ir::TypeRef cache = f16(Shape{kLayers, kChannels, kCapacity});
  ir::GraphSpec spec;
  spec.name = "main";
  spec.inputs = {{"x", f16(Shape{1, kChannels, kNew}), ""},
                 {"position", context.tensor_type(DType::kSI32, Shape{1}), ""},
                 {"cache", context.handle_type(cache), "cache"}};
  spec.outputs = {{"cache", context.token_type(), ""}, {"y", f16(Shape{1, kChannels, kCapacity}), ""}};
  const auto arguments = b.begin_graph(spec).body().arguments;
  const ir::TypeRef one_int = context.tensor_type(DType::kSI32, Shape{1});
  const ir::TypeRef three = context.tensor_type(DType::kSI32, Shape{3});
  V token = b.op1(OpCode::kCreateToken, {}, context.token_type());
  const auto read = b.op(OpCode::kReadHandle, {arguments[2], token}, {cache, context.token_type()});
  V end = b.op1(OpCode::kBroadcastingAdd, {arguments[1], b.constant_i32({kNew})}, one_int);
  V from = b.op1(OpCode::kConcat, {b.scalar_i32(0), b.constant_i32({1}), b.constant_i32({0}), arguments[1]}, three);
  V to = b.op1(OpCode::kConcat, {b.scalar_i32(0), b.constant_i32({2}), b.constant_i32({kChannels}), end}, three);
  V ones = b.constant_i32({1, 1, 1});
  V written = b.op1(OpCode::kSliceUpdate, {read[0], from, to, ones, arguments[0]}, cache);
  V next = b.op1(OpCode::kWriteHandle, {arguments[2], written, read[1]}, context.token_type());
  const auto again = b.op(OpCode::kReadHandle, {arguments[2], next}, {cache, context.token_type()});
  V y = b.op1(OpCode::kSlice,
              {old ? read[0] : again[0], b.constant_i32({layer, 0, 0}),
               b.constant_i32({layer + 1, kChannels, kCapacity}), ones},
              f16(Shape{1, kChannels, kCapacity}));
  b.end_graph({next, y});
  return module;
}

InferenceFunction load(std::unique_ptr<ir::Module> module, Precision precision, int threads = 2) {
  SpecializationOptions options;
  options.precision = precision;
  options.threads = threads;
  options.use_cache = false;
  return AIModel::from_module(std::move(module), options).load_function();
}

NDArray numbers(DType dtype, const Shape& shape, double first) {
  NDArray out(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<double>(i);
  write_from_f64(out, values);
  return out;
}

struct Result {
  std::vector<double> y, state;
};
Result run(const InferenceFunction& function, State& state, double first, std::int32_t position) {
  Invocation call = function.make_invocation();
  call.set_input(0, numbers(DType::kF16, Shape{1, kChannels, kNew}, first));
  call.set_input(1, numbers(DType::kSI32, Shape{1}, position));
  call.set_state(0, state);
  call.run();
  const NDArray content = state.read();
  Result out{std::vector<double>(static_cast<std::size_t>(call.output(0).element_count())),
             std::vector<double>(static_cast<std::size_t>(content.element_count()))};
  read_as_f64(call.output(0), out.y);
  read_as_f64(content, out.state);
  return out;
}

TEST(StaticStates, AnUpdateAtAGivenPositionIsAStoreInPlace) {
  const InferenceFunction compiled = load(cache_program(), Precision::kFaithful);
  const InferenceFunction strict = load(cache_program(), Precision::kStrict);
  ASSERT_EQ(compiled.execution_kind(), "compiled");
  State a = compiled.make_state("cache", Shape{kLayers, kChannels, kCapacity}),
        b = strict.make_state("cache", Shape{kLayers, kChannels, kCapacity});
  for (const std::int32_t position : {0, 2, 5, 6, 1}) {
    const Result got = run(compiled, a, 10.0 * position, position), wanted = run(strict, b, 10.0 * position, position);
    EXPECT_EQ(got.y, wanted.y) << position;
    EXPECT_EQ(got.state, wanted.state) << position;
  }
}

// A position that the plan does not hold for gives what op by op gives, error or result, and the function stays usable.
TEST(StaticStates, APositionOutsideIsWhatOpByOpMakesOfIt) {
  const InferenceFunction compiled = load(cache_program(), Precision::kFaithful);
  const InferenceFunction strict = load(cache_program(), Precision::kStrict);
  State a = compiled.make_state("cache", Shape{kLayers, kChannels, kCapacity}),
        b = strict.make_state("cache", Shape{kLayers, kChannels, kCapacity});
  for (const std::int32_t position : {7, 8, 1000000, -3, -2147483647, 3}) {
    std::optional<Result> got, wanted;
    std::string problem, wanted_problem;
    try {
      got = run(compiled, a, 1, position);
    } catch (const Error& e) {
      problem = e.what();
    }
    try {
      wanted = run(strict, b, 1, position);
    } catch (const Error& e) {
      wanted_problem = e.what();
    }
    ASSERT_EQ(got.has_value(), wanted.has_value()) << position << problem << wanted_problem;
    if (got) {
      EXPECT_EQ(got->state, wanted->state) << position;
    }
  }
}

TEST(StaticStates, WhatTheCallerHoldsOfAStateStays) {
  const InferenceFunction compiled = load(cache_program(), Precision::kFaithful);
  State state = compiled.make_state("cache", Shape{kLayers, kChannels, kCapacity});
  const NDArray given = numbers(DType::kF16, Shape{kLayers, kChannels, kCapacity}, 100);
  state.write(given);
  const NDArray before = state.read();
  run(compiled, state, 1, 3);
  EXPECT_TRUE(std::ranges::equal(given.bytes(), before.bytes()));
  EXPECT_FALSE(std::ranges::equal(state.read().bytes(), before.bytes()));
}

TEST(StaticStates, AnOldContentIsNotOverwrittenBeforeItIsRead) {
  const InferenceFunction compiled = load(cache_program(true), Precision::kFaithful);
  State state = compiled.make_state("cache", Shape{kLayers, kChannels, kCapacity});
  run(compiled, state, 5, 0);
  const Result second = run(compiled, state, 50, 0);
  EXPECT_EQ(second.y[0], 5);
  EXPECT_EQ(second.state[kChannels * kCapacity], 50);
}

// Other slices of a state than the one that is replaced, read after that: of either content.
TEST(StaticStates, OtherSlicesAreReadLater) {
  for (const bool old : {false, true}) {
    const InferenceFunction compiled = load(cache_program(old, 0), Precision::kFaithful);
    const InferenceFunction strict = load(cache_program(old, 0), Precision::kStrict);
    State a = compiled.make_state("cache", Shape{kLayers, kChannels, kCapacity}),
          b = strict.make_state("cache", Shape{kLayers, kChannels, kCapacity});
    a.write(numbers(DType::kF16, Shape{kLayers, kChannels, kCapacity}, 100));
    b.write(numbers(DType::kF16, Shape{kLayers, kChannels, kCapacity}, 100));
    for (const std::int32_t position : {0, 3}) {
      const Result got = run(compiled, a, 10, position), wanted = run(strict, b, 10, position);
      EXPECT_EQ(got.y[0], 100);
      EXPECT_EQ(got.y, wanted.y) << position;
      EXPECT_EQ(got.state, wanted.state) << position;
    }
  }
}

// The static contract as the genuine exporter writes it: palettised weights, si8 embeddings, hardware constraints.
TEST(StaticContract, EveryFunctionIsCompiledAndPasses) {
  const std::filesystem::path bundle = std::filesystem::path(COREAI_FIXTURE_DIR) / "genuine" / "qwen3_ios_mixed_b3";
  CheckOptions options;
  options.specialization.use_cache = false;
  EXPECT_EQ(check_recorded_calls(bundle / "cases.json", options).failed, 0u);
  options.specialization.precision = Precision::kFaithful;
  const CheckReport report = check_recorded_calls(bundle / "cases.json", options);
  ASSERT_EQ(report.failed, 0u) << report.cases.at(0).problem;
  EXPECT_LT(report.cases.at(0).worst_share, 0.3);
  for (const std::string_view pass : compiler::pass_names()) {
    options.specialization.disabled_passes = {std::string(pass)};
    EXPECT_EQ(check_recorded_calls(bundle / "cases.json", options).failed, 0u) << pass;
  }
  SpecializationOptions faithful;
  faithful.use_cache = false;
  const AIModel model = AIModel::load(bundle / "qwen3_ios_mixed_b3.aimodel", faithful);
  for (const std::string& name : model.function_names())
    EXPECT_EQ(model.load_function(name).execution_kind(), "compiled") << name;
  // Every projection is a linear layer on packed weights, residuals and gates included.
  const std::string plan = model.load_function("extend_256_8").plan_text({}, false);
  EXPECT_EQ(plan.find("conv2d"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("lut_to_dense"), std::string::npos) << plan;
  EXPECT_NE(plan.find("linear gated"), std::string::npos) << plan;
  EXPECT_NE(plan.find("+ residual"), std::string::npos) << plan;
}

}  // namespace
}  // namespace coreai
