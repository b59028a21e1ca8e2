// Composites that become a step on whole arrays, each equal to its body: avg_pool_2d, avg_pool_3d and the gathers of
// static exports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "coreai/base/error.h"
#include "coreai/ir/builder.h"
#include "load_program.h"

namespace coreai {
namespace {

using ir::OpCode;
using testing::HasSubstr;
using testing::Not;
using V = ir::Value*;

NDArray random(DType dtype, const Shape& shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
  for (double& v : values)
    v = static_cast<double>(engine() % 100) * (is_integer(dtype) ? 1 : 0.04) - (is_integer(dtype) ? 0 : 2);
  NDArray out(dtype, shape);
  write_from_f64(out, values);
  return out;
}
NDArray array(DType dtype, const Shape& shape, const std::vector<double>& values) {
  NDArray out(dtype, shape);
  write_from_f64(out, values);
  return out;
}

std::vector<std::vector<double>> run(const InferenceFunction& function, const std::vector<NDArray>& inputs) {
  Invocation call = function.make_invocation();
  for (std::size_t i = 0; i < inputs.size(); ++i) call.set_input(i, inputs[i]);
  call.run();
  std::vector<std::vector<double>> outputs;
  for (std::size_t i = 0; i < function.descriptor().outputs.size(); ++i) {
    outputs.emplace_back(static_cast<std::size_t>(call.output(i).element_count()));
    read_as_f64(call.output(i), outputs.back());
  }
  return outputs;
}

void expect_near(const std::vector<std::vector<double>>& got, const std::vector<std::vector<double>>& wanted,
                 double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t o = 0; o < got.size(); ++o) {
    ASSERT_EQ(got[o].size(), wanted[o].size());
    for (std::size_t i = 0; i < got[o].size(); ++i)
      ASSERT_NEAR(got[o][i], wanted[o][i], tolerance * std::max(1.0, std::fabs(wanted[o][i]))) << o << " " << i;
  }
}

// ---- pooling ----

struct Pool {
  std::string name;
  Shape shape;  // of the input; kDynamic where it is not declared
  Shape extents;
  std::vector<std::int32_t> window, stride, padding;
  std::int32_t divisor = 0;
  DType dtype = DType::kF32;
  bool up = false, counts_padding = true;
  std::string step = "average_pool";
};

// As exporters write it: what ceil_mode and count_include_pad say is not in the body.
std::unique_ptr<ir::Module> program(const Pool& f) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder b(*module);
  ir::Context& context = b.context();
  const std::size_t axes = f.window.size(), rank = axes + 2;
  const auto of = [&](const Shape& shape) { return context.tensor_type(f.dtype, shape); };
  const auto ints = [&](std::size_t n) {
    return context.tensor_type(DType::kSI32, Shape{static_cast<std::int64_t>(n)});
  };
  const auto uints = [&](std::size_t n) {
    return context.tensor_type(DType::kUI32, Shape{static_cast<std::int64_t>(n)});
  };
  Shape padded = f.shape, result = f.shape;
  double divisor = 1;
  for (std::size_t i = 0; i < axes; ++i) {
    padded[2 + i] = kDynamic;
    if (f.shape[2 + i] != kDynamic) result[2 + i] = (f.shape[2 + i] + 2 * f.padding[i] - f.window[i]) / f.stride[i] + 1;
    divisor *= f.window[i];
  }
  const ir::TypeRef flag = context.tensor_type(DType::kI1, Shape{}),
                    number = context.tensor_type(DType::kSI32, Shape{});
  ir::GraphSpec spec;
  spec.name = "body";
  spec.inputs = {{"input", of(f.shape), ""},      {"kernel_size", ints(axes), ""}, {"stride", ints(axes), ""},
                 {"padding", ints(axes), ""},     {"ceil_mode", flag, ""},         {"count_include_pad", flag, ""},
                 {"divisor_override", number, ""}};
  spec.outputs = {{"output", of(result), ""}};
  spec.is_private = spec.no_inline = true;
  spec.composite = ir::CompositeDecl{
      axes == 2 ? "avg_pool_2d" : "avg_pool_3d", {}, {"output"}, {{"version", context.integer_attr(1)}}};
  for (const ir::PortSpec& port : spec.inputs) spec.composite->input_names.push_back(port.name);
  const ir::Graph callee = b.begin_graph(spec);
  const auto in = callee.body().arguments;
  const V padding = b.op1(OpCode::kCast, {in[3]}, uints(axes));
  std::vector<V> parts = {b.scalar_i32(0), b.constant_u32({0, 0, 0, 0})};
  for (std::size_t i = 0; i < axes; ++i) {
    const auto at = static_cast<std::int32_t>(i);
    const V part =
        b.op1(OpCode::kSlice, {padding, b.constant_i32({at}), b.constant_i32({at + 1}), b.constant_i32({1})}, uints(1));
    parts.insert(parts.end(), {part, part});
  }
  V y = b.op1(OpCode::kPad, {in[0], b.op1(OpCode::kConcat, parts, uints(2 * rank)), b.splat(f.dtype, Shape{}, 0)},
              of(padded), {{"padding_mode", context.enum_attr(ir::AttrCode::kPaddingMode, 1)}});
  y = b.op1(axes == 2 ? OpCode::kSumPool2d : OpCode::kSumPool3d,
            {y, b.op1(OpCode::kCast, {in[1]}, uints(axes)), b.op1(OpCode::kCast, {in[2]}, uints(axes)),
             b.constant_u32(std::vector<std::uint32_t>(axes, 1))},
            of(result));
  b.end_graph({b.op1(OpCode::kBroadcastingDivide, {y, b.splat(f.dtype, Shape{}, f.divisor ? f.divisor : divisor)},
                     of(result))});
  ir::GraphSpec main;
  main.name = "main";
  main.inputs = {{"x", of(f.shape), ""}};
  main.outputs = {{"y", of(result), ""}};
  const V x = b.begin_graph(main).body().arguments[0];
  const auto constant = [&](DType dtype, double value) { return b.constant(array(dtype, Shape{}, {value})); };
  b.end_graph({b.invoke(
      callee, {x, b.constant_i32(f.window), b.constant_i32(f.stride), b.constant_i32(f.padding),
               constant(DType::kI1, f.up), constant(DType::kI1, f.counts_padding), b.scalar_i32(f.divisor)})[0]});
  return module;
}

class AveragePool : public testing::TestWithParam<Pool> {};

TEST_P(AveragePool, IsAStepEqualToTheBody) {
  const Pool& form = GetParam();
  const auto load = [&](std::vector<std::string> disabled = {}, int threads = 2,
                        Precision precision = Precision::kFaithful) {
    return test::load_program(program(form), std::move(disabled), threads, precision);
  };
  const std::vector<NDArray> inputs = {random(form.dtype, form.extents, 3)};
  const InferenceFunction fused = load();
  ASSERT_EQ(fused.execution_kind(), "compiled");
  const std::string plan = fused.plan_text(
      std::vector<std::int64_t>(static_cast<std::size_t>(std::ranges::count(form.shape, kDynamic)), 9), false);
  EXPECT_THAT(plan, HasSubstr(form.step));
  EXPECT_EQ(form.step == "average_pool", plan.find(" op coreai") == std::string::npos) << plan;
  const auto got = run(fused, inputs);
  const double tolerance = form.dtype == DType::kF32 ? 2e-6 : 8e-3;
  expect_near(got, run(load({"resolve"}), inputs), tolerance);
  expect_near(got, run(load({}, 1, Precision::kStrict), inputs), tolerance);
  for (const int threads : {1, 3}) EXPECT_EQ(got, run(load({}, threads), inputs)) << threads;
}

INSTANTIATE_TEST_SUITE_P(
    Forms, AveragePool,
    testing::Values(
        Pool{"plain", {2, 3, 8, 9}, {2, 3, 8, 9}, {2, 3}, {2, 3}, {0, 0}},
        Pool{"padded", {1, 5, 9, 33}, {1, 5, 9, 33}, {3, 3}, {1, 1}, {1, 1}},
        Pool{"padded_more", {1, 2, 5, 4}, {1, 2, 5, 4}, {5, 4}, {2, 3}, {2, 1}},
        Pool{"overlapping", {1, 2, 40, 50}, {1, 2, 40, 50}, {20, 7}, {3, 2}, {10, 3}},
        Pool{"divisor", {1, 2, 6, 6}, {1, 2, 6, 6}, {2, 2}, {2, 2}, {1, 1}, 3},
        Pool{"dynamic", {kDynamic, 3, kDynamic, kDynamic}, {2, 3, 7, 10}, {3, 2}, {2, 2}, {1, 0}},
        Pool{"f16", {1, 4, 12, 12}, {1, 4, 12, 12}, {3, 3}, {2, 2}, {1, 1}, 0, DType::kF16},
        Pool{"bf16", {1, 4, 8, 8}, {1, 4, 8, 8}, {2, 2}, {2, 2}, {0, 0}, 0, DType::kBF16},
        Pool{"volume", {1, 2, 5, 6, 7}, {1, 2, 5, 6, 7}, {2, 3, 3}, {1, 2, 2}, {1, 1, 0}},
        Pool{"volume_dynamic", {1, 2, kDynamic, 6, 7}, {1, 2, 4, 6, 7}, {4, 2, 2}, {2, 2, 2}, {2, 0, 1}},
        Pool{"unpadded_not_counted", {1, 2, 6, 6}, {1, 2, 6, 6}, {2, 2}, {2, 2}, {0, 0}, 0, DType::kF32, false, false},
        Pool{"rounded_up_by_the_body",
             {1, 2, 7, 7},
             {1, 2, 7, 7},
             {2, 2},
             {2, 2},
             {0, 0},
             0,
             DType::kF32,
             true,
             true,
             "sum_pool"},
        Pool{"not_counted_by_the_body",
             {1, 2, 6, 6},
             {1, 2, 6, 6},
             {3, 3},
             {2, 2},
             {1, 1},
             0,
             DType::kF32,
             false,
             false,
             "sum_pool"}),
    [](const auto& form) { return form.param.name; });

TEST(AveragePools, AWindowLargerThanTheInputIsAShapeError) {
  const Pool form{"", {1, 1, kDynamic, kDynamic}, {1, 1, 2, 2}, {4, 4}, {1, 1}, {0, 0}};
  const InferenceFunction function = test::load_program(program(form), {}, 2, Precision::kFaithful);
  EXPECT_THROW(run(function, {random(DType::kF32, form.extents, 1)}), ShapeError);
  EXPECT_EQ(run(function, {random(DType::kF32, Shape{1, 1, 4, 5}, 1)})[0].size(), 2u);
}

// ---- gathers ----

// cos, sin = rows of two tables [6, 5] at positions.
std::unique_ptr<ir::Module> angles(std::int64_t positions, DType ids, bool tables_are_inputs) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder b(*module);
  ir::Context& context = b.context();
  const auto of = [&](DType dtype, const Shape& shape) { return context.tensor_type(dtype, shape); };
  const ir::TypeRef table = of(DType::kF16, Shape{6, 5}), rows = of(DType::kF16, Shape{1, positions, 5});
  const ir::TypeRef at = of(ids, Shape{1, positions});
  ir::GraphSpec spec;
  spec.name = "gather";
  spec.inputs = {{"pos_ids", at, ""}, {"cos_cache", table, ""}, {"sin_cache", table, ""}};
  spec.outputs = {{"gathered_cos", rows, ""}, {"gathered_sin", rows, ""}};
  spec.is_private = spec.no_inline = true;
  spec.composite = ir::CompositeDecl{"rope_cached_cos_sin_gather",
                                     {"pos_ids", "cos_cache", "sin_cache"},
                                     {"gathered_cos", "gathered_sin"},
                                     {{"version", context.integer_attr(1)}}};
  const ir::Graph callee = b.begin_graph(spec);
  const auto in = callee.body().arguments;
  V index = ids == DType::kSI32 ? in[0] : b.op1(OpCode::kCast, {in[0]}, of(DType::kSI32, Shape{1, positions}));
  index = b.op1(OpCode::kExpandDims, {index, b.constant_i32({2})}, of(DType::kSI32, Shape{1, positions, 1}));
  b.end_graph({b.op1(OpCode::kGatherNd, {in[1], index}, rows), b.op1(OpCode::kGatherNd, {in[2], index}, rows)});
  ir::GraphSpec main;
  main.name = "main";
  main.inputs = {{"at", at, ""}};
  if (tables_are_inputs) main.inputs.insert(main.inputs.end(), {{"c", table, ""}, {"s", table, ""}});
  main.outputs = {{"cos", rows, ""}, {"sin", rows, ""}};
  const auto arguments = b.begin_graph(main).body().arguments;
  std::vector<V> operands = {arguments[0]};
  for (unsigned i = 1; i < 3; ++i) {
    operands.push_back(tables_are_inputs ? arguments[i] : b.constant(random(DType::kF16, Shape{6, 5}, i)));
  }
  b.end_graph(b.invoke(callee, operands));
  return module;
}

TEST(GatherSteps, OfAnglesAreEqualToTheBody) {
  for (const bool inputs_too : {false, true}) {
    for (const DType ids : {DType::kUI16, DType::kSI32}) {
      for (const std::int64_t positions : {std::int64_t{4}, kDynamic}) {
        SCOPED_TRACE(std::string(dtype_name(ids)) + std::to_string(positions) + (inputs_too ? " inputs" : ""));
        std::vector<NDArray> inputs = {array(ids, Shape{1, 4}, {5, 0, 3, 3})};
        if (ids == DType::kSI32) inputs[0] = array(ids, Shape{1, 4}, {5, -6, 3, -1});
        for (unsigned i = 1; inputs_too && i < 3; ++i) inputs.push_back(random(DType::kF16, Shape{6, 5}, i));
        const auto load = [&](std::vector<std::string> disabled, Precision precision) {
          return test::load_program(angles(positions, ids, inputs_too), std::move(disabled), 2, precision);
        };
        const InferenceFunction fused = load({}, Precision::kFaithful);
        const std::vector<std::int64_t> extents(positions == kDynamic ? 1 : 0, 4);
        const std::string plan = fused.plan_text(extents, false);
        EXPECT_THAT(plan, HasSubstr("gather_rows"));
        EXPECT_THAT(plan, Not(HasSubstr(" op coreai")));
        const auto got = run(fused, inputs);
        EXPECT_EQ(got, run(load({"resolve"}, Precision::kFaithful), inputs));
        EXPECT_EQ(got, run(load({}, Precision::kStrict), inputs));
      }
    }
  }
}

// y = table[ids] scale, as [1, q, 1, width]; scales are [q, 1, width].
std::unique_ptr<ir::Module> embeddings(const NDArray& scales, DType table_type, std::int64_t last_extent) {
  auto module = std::make_unique<ir::Module>();
  ir::Builder b(*module);
  ir::Context& context = b.context();
  const auto of = [&](DType dtype, const Shape& shape) { return context.tensor_type(dtype, shape); };
  const std::int64_t q = scales.shape()[0], width = scales.shape()[2];
  const ir::TypeRef table = of(table_type, Shape{7, 1, width}), ids = of(DType::kSI32, Shape{1, q});
  const ir::TypeRef rows = of(scales.dtype(), Shape{1, q, 1, width}), four = of(DType::kUI32, Shape{4});
  ir::GraphSpec spec;
  spec.name = "gather";
  spec.inputs = {{"embedding_table", table, ""},
                 {"input_ids", ids, ""},
                 {"scale", of(scales.dtype(), scales.shape()), ""},
                 {"final_shape", four, ""}};
  spec.outputs = {{"output", rows, ""}};
  spec.is_private = spec.no_inline = true;
  spec.composite = ir::CompositeDecl{"fused_interleaved_embedding_gather_dequant_reshape",
                                     {"embedding_table", "input_ids", "scale", "final_shape"},
                                     {"output"},
                                     {{"version", context.integer_attr(1)}}};
  const ir::Graph callee = b.begin_graph(spec);
  const auto in = callee.body().arguments;
  const V index = b.op1(OpCode::kExpandDims, {in[1], b.constant_i32({2})}, of(DType::kSI32, Shape{1, q, 1}));
  const V taken = b.op1(OpCode::kGatherNd, {in[0], index}, of(table_type, Shape{1, q, 1, width}));
  const V ones = b.constant_i32({1, 1, 1});
  V scale = b.op1(OpCode::kSlice, {in[2], b.constant_i32({0, 0, 0}), ones, ones}, of(scales.dtype(), Shape{1, 1, 1}));
  scale = b.op1(OpCode::kReshape, {scale, b.constant_u32({})}, of(scales.dtype(), Shape{}));
  b.end_graph({b.op1(OpCode::kBlockwiseShiftScale,
                     {taken, scale, b.splat(table_type, Shape{}, 0), b.splat(scales.dtype(), Shape{}, 0)}, rows)});
  ir::GraphSpec main;
  main.name = "main";
  main.inputs = {{"ids", ids, ""}, {"table", table, ""}};
  main.outputs = {{"y", rows, ""}};
  const auto arguments = b.begin_graph(main).body().arguments;
  const V shape = b.constant_u32({1, static_cast<std::uint32_t>(q), 1, static_cast<std::uint32_t>(last_extent)});
  b.end_graph({b.invoke(callee, {arguments[1], arguments[0], b.constant(scales), shape})[0]});
  return module;
}

TEST(GatherSteps, OfEmbeddingsAreEqualToTheBody) {
  for (const DType table : {DType::kSI8, DType::kUI8}) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      SCOPED_TRACE(std::string(dtype_name(table)) + " " + std::string(dtype_name(dtype)));
      const NDArray scales = array(dtype, Shape{3, 1, 37}, std::vector<double>(111, 0.0048));
      const std::vector<NDArray> inputs = {array(DType::kSI32, Shape{1, 3}, {6, -7, 2}),
                                           random(table, Shape{7, 1, 37}, 3)};
      const auto load = [&](std::vector<std::string> disabled, Precision precision) {
        return test::load_program(embeddings(scales, table, 37), std::move(disabled), 2, precision);
      };
      const InferenceFunction fused = load({}, Precision::kFaithful);
      const std::string plan = fused.plan_text({}, false);
      EXPECT_THAT(plan, HasSubstr("gather_rows"));
      EXPECT_THAT(plan, Not(HasSubstr(" op coreai")));
      const auto got = run(fused, inputs);
      EXPECT_EQ(got, run(load({"resolve"}, Precision::kFaithful), inputs));
      EXPECT_EQ(got, run(load({}, Precision::kStrict), inputs));
    }
  }
}

TEST(GatherSteps, OtherScalesAndExtentsAreTheBodys) {
  std::vector<double> differing(6, 0.5);
  differing[4] = 0.25;
  const NDArray scales = array(DType::kF16, Shape{2, 1, 3}, differing),
                same = array(DType::kF16, Shape{2, 1, 3}, std::vector<double>(6, 0.5));
  const std::vector<NDArray> inputs = {array(DType::kSI32, Shape{1, 2}, {1, 2}),
                                       random(DType::kSI8, Shape{7, 1, 3}, 3)};
  for (const auto& [scale, last] : {std::pair{scales, 3}, std::pair{same, 4}}) {
    const InferenceFunction function =
        test::load_program(embeddings(scale, DType::kSI8, last), {}, 2, Precision::kFaithful);
    EXPECT_THAT(function.plan_text({}, false), Not(HasSubstr("gather_rows")));
    EXPECT_EQ(run(function, inputs),
              run(test::load_program(embeddings(scale, DType::kSI8, last), {}, 2, Precision::kStrict), inputs));
  }
}

TEST(GatherSteps, AnIdOutsideTheTableIsAShapeError) {
  const NDArray scales = array(DType::kF16, Shape{1, 1, 3}, {0.5, 0.5, 0.5});
  const NDArray table = random(DType::kSI8, Shape{7, 1, 3}, 3);
  const InferenceFunction function =
      test::load_program(embeddings(scales, DType::kSI8, 3), {}, 2, Precision::kFaithful);
  for (const double id : {7.0, -8.0, 2147483647.0})
    EXPECT_THROW(run(function, {array(DType::kSI32, Shape{1, 1}, {id}), table}), ShapeError);
  EXPECT_EQ(run(function, {array(DType::kSI32, Shape{1, 1}, {-7}), table})[0].size(), 3u);
}

}  // namespace
}  // namespace coreai
