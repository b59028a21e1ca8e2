// Attention over plain values in plans: batches, other value widths, rows that depend on every key.
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

struct Sizes {
  std::int64_t batch, heads, queries, keys, dim, value_dim;  // queries may be kDynamic
  std::vector<std::int64_t> mask = {};                       // extents of a mask operand
  DType mask_dtype = DType::kI1;
};

// y = attention(q, k, v) with heads split and merged by transposes, as exporters write it; queries are rows of `x`.
std::unique_ptr<ir::Module> program(const Sizes& s, DType dtype) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder b(*module);
  ir::Context& context = b.context();
  const auto type = [&](std::vector<std::int64_t> dims) { return context.tensor_type(dtype, Shape(dims)); };
  const std::vector<std::int64_t> q{s.batch, s.heads, s.queries, s.dim}, k{s.batch, s.heads, s.keys, s.dim},
      v{s.batch, s.heads, s.keys, s.value_dim}, y{s.batch, s.heads, s.queries, s.value_dim};
  ir::GraphSpec composite;
  composite.name = "sdpa";
  composite.inputs = {{"query", type(q), ""}, {"key", type(k), ""}, {"value", type(v), ""}};
  composite.outputs = {{"output", type(y), ""}};
  const ir::TypeRef mask = context.tensor_type(s.mask_dtype, Shape(s.mask));
  if (!s.mask.empty()) composite.inputs.push_back({"attn_mask", mask, ""});
  composite.is_private = composite.no_inline = true;
  composite.composite = ir::CompositeDecl{"scaled_dot_product_attention",
                                          {"query", "key", "value"},
                                          {"output"},
                                          {{"is_causal", context.bool_attr(false)},
                                           {"version", context.integer_attr(1)},
                                           {"window_size", context.integer_attr(0)}}};
  if (!s.mask.empty()) composite.composite->input_names.push_back("attn_mask");
  const ir::Graph callee = b.begin_graph(composite);
  {
    const auto& x = callee.body().arguments;
    NDArray scale(dtype, Shape{});
    const double value = 1.0 / std::sqrt(static_cast<double>(s.dim));
    write_from_f64(scale, std::span(&value, 1));
    V scaled = b.op1(OpCode::kBroadcastingMul, {x[0], b.constant(scale)}, type(q));
    V turned = b.op1(OpCode::kTranspose, {x[1], b.constant_u32({0, 1, 3, 2})}, type({s.batch, s.heads, s.dim, s.keys}));
    V scores = b.op1(OpCode::kBroadcastingBatchMatmul, {scaled, turned}, type({s.batch, s.heads, s.queries, s.keys}));
    if (!s.mask.empty()) {
      V bias = x[3];
      if (s.mask_dtype == DType::kI1) {
        bias = b.op1(OpCode::kCast, {b.op1(OpCode::kNot, {bias}, mask)}, type(s.mask));
        NDArray far(dtype, Shape{});
        const double hidden = -1e4;
        write_from_f64(far, std::span(&hidden, 1));
        bias = b.op1(OpCode::kBroadcastingMul, {bias, b.constant(far)}, type(s.mask));
      }
      scores = b.op1(OpCode::kBroadcastingAdd, {scores, bias}, scores->type);
    }
    V weights = b.op1(OpCode::kSoftmax, {scores, b.scalar_i32(3)}, scores->type);
    b.end_graph({b.op1(OpCode::kBroadcastingBatchMatmul, {weights, x[2]}, type(y))});
  }
  ir::GraphSpec spec;
  spec.name = "main";
  spec.inputs = {{"q", type({s.batch, s.queries, s.heads, s.dim}), ""},
                 {"k", type({s.batch, s.keys, s.heads, s.dim}), ""},
                 {"v", type({s.batch, s.keys, s.heads, s.value_dim}), ""}};
  spec.outputs = {{"y", type({s.batch, s.queries, s.heads, s.value_dim}), ""}};
  if (!s.mask.empty()) spec.inputs.push_back({"mask", mask, ""});
  const auto arguments = b.begin_graph(spec).body().arguments;
  const auto turned = [&](V x, const std::vector<std::int64_t>& dims) {
    return b.op1(OpCode::kTranspose, {x, b.constant_u32({0, 2, 1, 3})}, type(dims));
  };
  std::vector<V> operands{turned(arguments[0], q), turned(arguments[1], k), turned(arguments[2], v)};
  if (!s.mask.empty()) operands.push_back(arguments[3]);
  V mixed = b.invoke(callee, operands)[0];
  b.end_graph({turned(mixed, {s.batch, s.queries, s.heads, s.value_dim})});
  return module;
}

std::vector<double> run(const InferenceFunction& function, const NamedArrays& inputs, std::int64_t last_rows = -1) {
  Invocation call = function.make_invocation();
  for (std::size_t i = 0; i < inputs.size(); ++i) call.set_input(i, inputs[i].second);
  call.set_last_rows(0, last_rows);
  call.run();
  std::vector<double> out(static_cast<std::size_t>(call.output(0).element_count()));
  read_as_f64(call.output(0), out);
  return out;
}

// Whether a call takes the step and does not run op by op.
bool runs_attention(const InferenceFunction& function, const NamedArrays& inputs) {
  Invocation call = function.make_invocation();
  for (std::size_t i = 0; i < inputs.size(); ++i) call.set_input(i, inputs[i].second);
  const std::vector<StepProfile> steps = call.profile();
  return std::ranges::any_of(steps, [](const StepProfile& step) { return step.kernel == "attention"; });
}

InferenceFunction load(const Sizes& sizes, DType dtype, Precision precision, int threads = 2,
                       std::vector<std::string> disabled = {}, std::string kernels = {}) {
  SpecializationOptions options;
  options.disabled_passes = std::move(disabled);
  options.kernels = std::move(kernels);
  options.precision = precision;
  options.threads = threads;
  options.use_cache = false;
  return AIModel::from_module(program(sizes, dtype), options).load_function();
}

NamedArrays inputs_of(const Sizes& s, std::int64_t queries, DType dtype) {
  std::mt19937 random(9);
  NamedArrays out;
  for (const auto& [name, shape] :
       {std::pair{"q", Shape{s.batch, queries, s.heads, s.dim}}, std::pair{"k", Shape{s.batch, s.keys, s.heads, s.dim}},
        std::pair{"v", Shape{s.batch, s.keys, s.heads, s.value_dim}}}) {
    NDArray array(dtype, shape);
    std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
    for (double& value : values) value = std::uniform_real_distribution<double>(-2, 2)(random);
    write_from_f64(array, values);
    out.emplace_back(name, array);
  }
  if (s.mask.empty()) return out;
  NDArray mask(s.mask_dtype, Shape(s.mask));
  std::vector<double> values(static_cast<std::size_t>(mask.element_count()));
  for (double& value : values) {
    value = std::uniform_real_distribution<double>(-3, 3)(random);
    if (s.mask_dtype == DType::kI1) value = value > -1 ? 1 : 0;
  }
  write_from_f64(mask, values);
  out.emplace_back("mask", mask);
  return out;
}

TEST(AttentionPlan, PlainValuesAgreeWithTheBody) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const Sizes& s : {Sizes{1, 4, 33, 300, 16, 16}, Sizes{2, 3, 10, 20, 40, 24}, Sizes{1, 1, 1, 1, 8, 8},
                           Sizes{3, 2, 100, 7, 5, 9}}) {
      SCOPED_TRACE(std::to_string(s.batch) + " " + std::to_string(s.queries) + std::string(dtype_name(dtype)));
      const InferenceFunction faithful = load(s, dtype, Precision::kFaithful);
      EXPECT_EQ(faithful.execution_kind(), "compiled");
      const std::string plan = faithful.plan_text({}, false);
      EXPECT_NE(plan.find("attention"), std::string::npos) << plan;
      EXPECT_EQ(plan.find("softmax"), std::string::npos) << plan;
      const NamedArrays inputs = inputs_of(s, s.queries, dtype);
      const auto got = run(faithful, inputs), wanted = run(load(s, dtype, Precision::kStrict), inputs);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], wanted[i], dtype == DType::kF32 ? 2e-6 : 4e-3) << i;
      EXPECT_EQ(run(load(s, dtype, Precision::kFaithful, 3), inputs), got);
    }
  }
}

// A mask operand, of truth values or added, broadcast over batch, heads, queries or keys: one step, as the composite or
// recognised in its body, and the body itself.
TEST(AttentionPlan, MasksAgreeWithTheBody) {
  const Sizes base{2, 3, 19, 300, 16, 16};
  for (const std::vector<std::int64_t>& mask :
       {std::vector<std::int64_t>{2, 3, 19, 300}, {2, 1, 19, 300}, {1, 3, 1, 300}, {19, 300}, {2, 1, 19, 1}, {300}}) {
    for (const DType mask_dtype : {DType::kI1, DType::kF32, DType::kF16}) {
      const DType dtype = mask_dtype == DType::kF16 ? DType::kF16 : DType::kF32;
      Sizes s = base;
      s.mask = mask;
      s.mask_dtype = mask_dtype;
      SCOPED_TRACE(Shape(mask).to_string() + " " + std::string(dtype_name(mask_dtype)));
      const NamedArrays inputs = inputs_of(s, s.queries, dtype);
      const auto wanted = run(load(s, dtype, Precision::kStrict), inputs);
      const auto expect_near = [&](const std::vector<double>& got) {
        ASSERT_EQ(got.size(), wanted.size());
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], wanted[i], dtype == DType::kF32 ? 4e-6 : 6e-3) << i;
      };
      const InferenceFunction fused = load(s, dtype, Precision::kFaithful);
      const std::string plan = fused.plan_text({}, false);
      EXPECT_NE(plan.find("attention"), std::string::npos) << plan;
      const auto got = run(fused, inputs);
      expect_near(got);
      EXPECT_EQ(run(load(s, dtype, Precision::kFaithful, 1), inputs), got);
      EXPECT_EQ(run(load(s, dtype, Precision::kFaithful, 3, {}, "portable"), inputs), got);
      const InferenceFunction written = load(s, dtype, Precision::kFaithful, 2, {"resolve"});
      EXPECT_EQ(written.plan_text({}, false).find("softmax"), std::string::npos);
      expect_near(run(written, inputs));
      const InferenceFunction body = load(s, dtype, Precision::kFaithful, 2, {"resolve", "recognize"});
      EXPECT_NE(body.plan_text({}, false).find("softmax"), std::string::npos);
      expect_near(run(body, inputs));
    }
  }
}

// A mask whose extents only a call gives may have one element for all of an axis.
TEST(AttentionPlan, MasksOfUnknownExtentsBroadcastWhenACallIsMade) {
  const Sizes base{2, 3, 19, 300, 16, 16};
  using Extents = std::vector<std::int64_t>;
  for (const std::vector<Extents>& masks : {std::vector<Extents>{{19, 300}, {1, 300}, {19, 1}, {1, 1}},
                                            std::vector<Extents>{{2, 3, 19, 300}, {1, 3, 1, 300}, {2, 1, 19, 1}}}) {
    Sizes s = base;
    s.mask = Extents(masks[0].size(), kDynamic);
    s.mask_dtype = DType::kF32;
    const InferenceFunction fused = load(s, DType::kF32, Precision::kFaithful);
    EXPECT_EQ(fused.execution_kind(), "compiled");
    for (const Extents& mask : masks) {
      SCOPED_TRACE(Shape(mask).to_string());
      Sizes given = s;
      given.mask = mask;
      const NamedArrays inputs = inputs_of(given, s.queries, DType::kF32);
      EXPECT_TRUE(runs_attention(fused, inputs));
      const auto got = run(fused, inputs), wanted = run(load(given, DType::kF32, Precision::kStrict), inputs);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 4e-6) << i;
      EXPECT_EQ(run(load(s, DType::kF32, Precision::kFaithful, 1), inputs), got);
    }
    Sizes other = s;
    other.mask = masks[0];
    --other.mask[other.mask.size() - 2];
    EXPECT_THROW(run(fused, inputs_of(other, s.queries, DType::kF32)), ShapeError);
  }
}

// As many batches as a call has: one step, each batch the same bits as by itself.
TEST(AttentionPlan, BatchesOfUnknownNumberAreOneStep) {
  for (const std::int64_t queries : {std::int64_t{21}, std::int64_t{1}, kDynamic}) {
    for (const bool masked : {false, true}) {
      Sizes s{kDynamic, 3, queries, 70, 16, 24};
      if (masked) s.mask = {kDynamic, 1, queries, 70};
      const InferenceFunction fused = load(s, DType::kF32, Precision::kFaithful);
      const std::string plan = fused.plan_text(std::vector<std::int64_t>(masked && queries == kDynamic ? 6
                                                                         : masked                      ? 4
                                                                         : queries == kDynamic         ? 4
                                                                                                       : 3,
                                                                         2),
                                               false);
      EXPECT_EQ(plan.find("softmax"), std::string::npos) << plan;
      for (const std::int64_t batch : {1, 2, 5}) {
        SCOPED_TRACE(std::to_string(queries) + " " + std::to_string(batch) + (masked ? " masked" : ""));
        const std::int64_t rows = queries == kDynamic ? 13 : queries;
        Sizes given = s;
        given.batch = batch, given.queries = rows;
        if (masked) given.mask = {batch, 1, rows, 70};
        const NamedArrays inputs = inputs_of(given, rows, DType::kF32);
        EXPECT_TRUE(runs_attention(fused, inputs));
        const auto got = run(fused, inputs), wanted = run(load(given, DType::kF32, Precision::kStrict), inputs);
        ASSERT_EQ(got.size(), wanted.size());
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 4e-6) << i;
        for (const int threads : {1, 3})
          EXPECT_EQ(run(load(s, DType::kF32, Precision::kFaithful, threads), inputs), got);
        EXPECT_EQ(run(load(given, DType::kF32, Precision::kFaithful), inputs), got);
        NamedArrays first;
        for (const auto& [name, array] : inputs) {
          Shape shape = array.shape();
          shape[0] = 1;
          NDArray part(array.dtype(), shape);
          std::ranges::copy(array.bytes().first(part.byte_size()), part.mutable_bytes().begin());
          first.emplace_back(name, part);
        }
        const auto alone = run(fused, first);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), got.begin()));
      }
    }
  }
}

// One query, so that keys are split between threads; a row that sees nothing is zero.
TEST(AttentionPlan, ARowThatSeesNothingIsZero) {
  for (const std::int64_t queries : {1, 5}) {
    Sizes s{1, 2, queries, 700, 16, 16};
    s.mask = {queries, 700};
    s.mask_dtype = DType::kF32;
    NamedArrays inputs = inputs_of(s, queries, DType::kF32);
    std::vector<double> hidden(static_cast<std::size_t>(queries * 700), -std::numeric_limits<double>::infinity());
    for (std::size_t i = 700; i < hidden.size(); i += 3) hidden[i] = 0.5;
    write_from_f64(inputs.back().second, hidden);
    const auto got = run(load(s, DType::kF32, Precision::kFaithful), inputs);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], 0.0);
    for (const double value : got) EXPECT_TRUE(std::isfinite(value));
  }
}

// The last rows of the result still see the keys of every row.
TEST(AttentionPlan, LastRowsAreTheLastRows) {
  const Sizes s{1, 2, kDynamic, 50, 16, 16};
  const InferenceFunction function = load(s, DType::kF32, Precision::kFaithful);
  const NamedArrays inputs = inputs_of(s, 21, DType::kF32);
  const auto all = run(function, inputs);
  for (const std::int64_t rows : {1, 5, 21}) {
    const auto some = run(function, inputs, rows);
    ASSERT_EQ(some.size(), all.size() / 21 * static_cast<std::size_t>(rows));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.end() - static_cast<std::ptrdiff_t>(some.size())));
  }
}

}  // namespace
}  // namespace coreai
