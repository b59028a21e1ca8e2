// Composites that become a step or a part of one, each equal to its body: pixel_shuffle, batch_norm, log_softmax,
// linalg_vector_norm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
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

struct Form {
  std::string name, composite;
  Shape shape;    // of the composite's input; kDynamic where it is not declared
  Shape extents;  // of the call
  DType dtype = DType::kF32;
  std::vector<std::int64_t> axes = {-1};
  bool keep = true;
  bool declares_keep = false;          // though the body drops the axes
  std::int64_t factor = 2;             // of pixel_shuffle
  bool convolution = false;            // before a batch_norm: 1x3 taps on an input of 3 channels
  bool bias = false;                   // behind the convolution
  bool constant = false;               // the composite's operand is a constant, not the input
  std::string step = "";               // in the plan
  std::string no_step = " op coreai";  // not in the plan
};

class Program {
 public:
  explicit Program(const Form& form) : f_(form) {
    ir::Context& context = module_->context();
    Shape in = f_.shape;
    if (f_.convolution) in[1] = 3, in[3] += 2;
    input_shape_ = in;
    ir::GraphSpec spec;
    spec.name = "body";
    spec.inputs = {{"input", of(f_.shape), ""}};
    const bool norm = f_.composite == "batch_norm";
    const Shape channels{f_.shape[1]};
    ir::CompositeDecl decl{f_.composite, {"input"}, {"output"}, {{"version", context.integer_attr(1)}}};
    for (const char* name : {"gamma", "beta", "mean", "variance"}) {
      if (norm) spec.inputs.push_back({name, of(channels), ""}), decl.input_names.emplace_back(name);
    }
    spec.outputs = {{"output", of(result()), ""}};
    spec.is_private = spec.no_inline = true;
    const auto add = [&](const char* name, ir::AttrRef value) { decl.attributes.emplace_back(name, value); };
    std::vector<ir::AttrRef> axes;
    for (const std::int64_t axis : f_.axes) axes.push_back(context.integer_attr(axis));
    if (norm) add("eps", context.float_attr(1e-3));
    if (f_.composite == "log_softmax") add("axis", axes[0]);
    if (f_.composite == "pixel_shuffle") add("upscale_factor", context.integer_attr(f_.factor));
    if (f_.composite == "linalg_vector_norm") {
      add("axes", context.array_attr(axes));
      add("keep_dim", context.bool_attr(f_.keep || f_.declares_keep));
      add("ord", context.integer_attr(2));
    }
    spec.composite = decl;
    const ir::Graph callee = b_.begin_graph(spec);
    b_.end_graph({body(callee.body().arguments)});
    ir::GraphSpec main;
    main.name = "main";
    main.inputs = {{"x", of(in), ""}};
    main.outputs = {{"y", of(result()), ""}};
    V x = b_.begin_graph(main).body().arguments[0];
    if (f_.convolution) x = convolved(x);
    if (f_.constant) x = b_.constant(random(f_.shape, 7, false));
    std::vector<V> operands = {x};
    for (unsigned i = 1; norm && i < 5; ++i) operands.push_back(b_.constant(random(channels, i, i == 4 || i == 1)));
    b_.end_graph({b_.invoke(callee, operands)[0]});
  }
  std::unique_ptr<ir::Module> take() { return std::move(module_); }
  const Shape& input_shape() const { return input_shape_; }

  static NDArray random(DType dtype, const Shape& shape, unsigned seed, bool positive) {
    std::mt19937 engine(seed);
    std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
    for (double& v : values) v = std::normal_distribution<double>()(engine);
    for (double& v : values) v = positive ? 0.5 + std::fabs(v) : v;
    NDArray out(dtype, shape);
    write_from_f64(out, values);
    return out;
  }

 private:
  ir::TypeRef of(const Shape& shape) { return module_->context().tensor_type(f_.dtype, shape); }
  V op(OpCode code, std::vector<V> operands, const Shape& shape) {
    return b_.op1(code, std::move(operands), of(shape));
  }
  NDArray random(const Shape& shape, unsigned seed, bool positive) const {
    return random(f_.dtype, shape, seed, positive);
  }
  std::vector<std::int32_t> axes() const {
    std::vector<std::int32_t> out;
    for (const std::int64_t a : f_.axes)
      out.push_back(static_cast<std::int32_t>(a < 0 ? a + std::ssize(f_.shape.dims()) : a));
    return out;
  }

  Shape reduced() const {
    Shape out = f_.shape;
    for (const std::int32_t a : axes()) out[static_cast<std::size_t>(a)] = 1;
    return out;
  }
  Shape result() const {
    const auto scaled = [&](std::int64_t n) { return n == kDynamic ? n : n * f_.factor; };
    if (f_.composite == "pixel_shuffle") {
      return Shape{f_.shape[0], f_.shape[1] / (f_.factor * f_.factor), scaled(f_.shape[2]), scaled(f_.shape[3])};
    }
    if (f_.composite != "linalg_vector_norm") return f_.shape;
    if (f_.keep) return reduced();
    const std::vector<std::int32_t> gone = axes();
    std::vector<std::int64_t> dims;
    for (std::size_t i = 0; i < f_.shape.rank(); ++i) {
      if (std::ranges::find(gone, static_cast<std::int32_t>(i)) == gone.end()) dims.push_back(f_.shape[i]);
    }
    return Shape(dims);
  }

  V body(const std::vector<V>& in) {
    if (f_.composite == "pixel_shuffle") return pixel_shuffle(in[0]);
    if (f_.composite == "batch_norm") return batch_norm(in);
    const V over = b_.constant_i32(axes());
    if (f_.composite == "log_softmax") {
      V most = op(OpCode::kReduceMax, {in[0], over}, reduced());
      V shifted = op(OpCode::kBroadcastingSub, {in[0], most}, f_.shape);
      V sum = op(OpCode::kReduceSum, {op(OpCode::kExp, {shifted}, f_.shape), over}, reduced());
      return op(OpCode::kBroadcastingSub, {shifted, op(OpCode::kLog, {sum}, reduced())}, f_.shape);
    }
    V squares = op(OpCode::kBroadcastingMul, {in[0], in[0]}, f_.shape);
    V root = op(OpCode::kSqrt, {op(OpCode::kReduceSum, {squares, over}, reduced())}, reduced());
    return f_.keep ? root : op(OpCode::kShrinkDims, {root, over}, result());
  }

  // As exporters write it: extents from the input's own.
  V pixel_shuffle(V x) {
    const std::int64_t r = f_.factor, c = f_.shape[1] / (r * r);
    const Shape& s = f_.shape;
    ir::Context& context = module_->context();
    const auto ints = [&](std::int64_t n) { return context.tensor_type(DType::kSI32, Shape{n}); };
    V extents = b_.op1(OpCode::kGetShape, {x}, context.tensor_type(DType::kUI32, Shape{4}));
    extents = b_.op1(OpCode::kCast, {extents}, ints(4));
    const auto part = [&](std::int32_t from, std::int32_t to) {
      return b_.op1(OpCode::kSlice, {extents, b_.constant_i32({from}), b_.constant_i32({to}), b_.constant_i32({1})},
                    ints(to - from));
    };
    const auto r32 = static_cast<std::int32_t>(r), c32 = static_cast<std::int32_t>(c);
    V plane = part(2, 4), batch = part(0, 1);
    V split = b_.op1(OpCode::kConcat, {b_.scalar_i32(0), batch, b_.constant_i32({c32, r32, r32}), plane}, ints(6));
    V y = op(OpCode::kReshape, {x, split}, Shape{s[0], c, r, r, s[2], s[3]});
    y = op(OpCode::kTranspose, {y, b_.constant_u32({0, 1, 4, 2, 5, 3})}, Shape{s[0], c, s[2], r, s[3], r});
    V wide = b_.op1(OpCode::kBroadcastingMul, {plane, b_.scalar_i32(r32)}, ints(2));
    V joined = b_.op1(OpCode::kConcat, {b_.scalar_i32(0), batch, b_.constant_i32({c32}), wide}, ints(4));
    return op(OpCode::kReshape, {y, joined}, result());
  }

  V batch_norm(const std::vector<V>& in) {
    std::vector<std::int64_t> ones(f_.shape.rank(), 1);
    ones[1] = f_.shape[1];
    const Shape shaped(ones), channels{f_.shape[1]};
    const auto spread = [&](V v) {
      return op(OpCode::kReshape, {v, b_.constant_u32({shaped.begin(), shaped.end()})}, shaped);
    };
    V variance = op(OpCode::kBroadcastingAdd, {in[4], b_.splat(f_.dtype, Shape{}, 1e-3)}, channels);
    V y = op(OpCode::kBroadcastingSub, {in[0], spread(in[3])}, f_.shape);
    y = op(OpCode::kBroadcastingDivide, {y, op(OpCode::kSqrt, {spread(variance)}, shaped)}, f_.shape);
    y = op(OpCode::kBroadcastingMul, {y, spread(in[1])}, f_.shape);
    return op(OpCode::kBroadcastingAdd, {y, spread(in[2])}, f_.shape);
  }

  V convolved(V x) {
    const V weight = b_.constant(random(Shape{f_.shape[1], 3, 1, 3}, 11, false)), ones = b_.constant_u32({1, 1});
    x = op(OpCode::kConv2d, {x, weight, ones, ones, b_.constant(one())}, f_.shape);
    if (!f_.bias) return x;
    const V bias = b_.constant(random(Shape{f_.shape[1], 1, 1}, 12, false));
    return op(OpCode::kBroadcastingAdd, {x, bias}, f_.shape);
  }
  static NDArray one() {
    NDArray out(DType::kUI32, Shape{});
    write_from_f64(out, std::vector<double>{1});
    return out;
  }

  Form f_;
  Shape input_shape_;
  std::unique_ptr<ir::Module> module_ = std::make_unique<ir::Module>();
  ir::Builder b_{*module_};
};

InferenceFunction load(const Form& form, std::vector<std::string> disabled = {}, int threads = 2,
                       Precision precision = Precision::kFaithful) {
  return test::load_program(Program(form).take(), std::move(disabled), threads, precision);
}

std::vector<double> run(const InferenceFunction& function, const Form& form) {
  Shape extents = form.extents;
  if (form.convolution) extents[1] = 3, extents[3] += 2;
  Invocation call = function.make_invocation();
  call.set_input(0, Program::random(form.dtype, extents, 7, false));
  call.run();
  std::vector<double> y(static_cast<std::size_t>(call.output(0).element_count()));
  read_as_f64(call.output(0), y);
  return y;
}

class CompositePlan : public testing::TestWithParam<Form> {};

TEST_P(CompositePlan, IsAStepEqualToTheBody) {
  const Form& form = GetParam();
  const InferenceFunction fused = load(form);
  ASSERT_EQ(fused.execution_kind(), "compiled");
  const std::string plan =
      fused.plan_text(std::vector<std::int64_t>(std::ranges::count(form.shape, kDynamic), 3), false);
  EXPECT_THAT(plan, HasSubstr(form.step));
  EXPECT_THAT(plan, Not(HasSubstr(form.no_step)));
  const std::vector<double> got = run(fused, form), body = run(load(form, {"resolve", "fusion"}), form),
                            strict = run(load(form, {}, 1, Precision::kStrict), form);
  const double tolerance = form.dtype == DType::kF32 ? 4e-6 : 1e-2;
  ASSERT_EQ(got.size(), body.size());
  ASSERT_EQ(got.size(), strict.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], body[i], tolerance * std::max(1.0, std::fabs(body[i]))) << i;
    ASSERT_NEAR(got[i], strict[i], 2 * tolerance * std::max(1.0, std::fabs(strict[i]))) << i;
  }
  for (const int threads : {1, 3}) EXPECT_EQ(got, run(load(form, {}, threads), form)) << threads;
}

Form pixel_shuffle(std::string name, Shape shape, Shape extents, std::int64_t factor, DType dtype = DType::kF32) {
  Form f{std::move(name), "pixel_shuffle", std::move(shape), std::move(extents), dtype};
  f.factor = factor;
  f.step = "copy";
  return f;
}
Form rows(std::string name, std::string composite, Shape shape, Shape extents, std::vector<std::int64_t> axes,
          DType dtype = DType::kF32, bool keep = true) {
  Form f{std::move(name), std::move(composite), std::move(shape), std::move(extents), dtype};
  f.axes = std::move(axes);
  f.keep = keep;
  f.step = f.composite == "log_softmax" ? "log_softmax" : "vector_norm";
  return f;
}
Form batch_norm(std::string name, Shape shape, Shape extents, DType dtype, bool convolution, bool bias) {
  Form f{std::move(name), "batch_norm", std::move(shape), std::move(extents), dtype};
  f.convolution = convolution, f.bias = bias;
  f.step = "elementwise";
  f.no_step = "elementwise 2";  // what was a scale and a shift is one instruction
  return f;
}

INSTANTIATE_TEST_SUITE_P(
    Forms, CompositePlan,
    testing::Values(pixel_shuffle("pixel_shuffle", {2, 8, 3, 5}, {2, 8, 3, 5}, 2),
                    pixel_shuffle("pixel_shuffle_dynamic", {kDynamic, 18, kDynamic, kDynamic}, {2, 18, 4, 3}, 3),
                    pixel_shuffle("pixel_shuffle_f16", {1, 16, 2, 2}, {1, 16, 2, 2}, 4, DType::kF16),
                    rows("log_softmax", "log_softmax", {2, 3, 37}, {2, 3, 37}, {-1}),
                    rows("log_softmax_middle", "log_softmax", {2, 19, 5}, {2, 19, 5}, {1}),
                    rows("log_softmax_f16", "log_softmax", {4, 20}, {4, 20}, {1}, DType::kF16),
                    rows("log_softmax_rows", "log_softmax", {kDynamic, 16}, {7, 16}, {-1}),
                    rows("norm", "linalg_vector_norm", {3, 24}, {3, 24}, {-1}),
                    rows("norm_outer", "linalg_vector_norm", {4, 3, 8}, {4, 3, 8}, {0, 1}),
                    rows("norm_dropped", "linalg_vector_norm", {2, 5, 33}, {2, 5, 33}, {1}, DType::kF32, false),
                    rows("norm_bf16", "linalg_vector_norm", {2, 40}, {2, 40}, {-1}, DType::kBF16),
                    batch_norm("batch_norm", {2, 5, 3, 4}, {2, 5, 3, 4}, DType::kF32, false, false),
                    batch_norm("batch_norm_dynamic", {1, 6, kDynamic}, {1, 6, 9}, DType::kF32, false, false),
                    batch_norm("batch_norm_f16", {1, 6, 4, 4}, {1, 6, 4, 4}, DType::kF16, false, false),
                    batch_norm("batch_norm_convolution", {2, 7, 4, 6}, {2, 7, 4, 6}, DType::kF32, true, false),
                    batch_norm("batch_norm_convolution_bias", {1, 7, 4, 6}, {1, 7, 4, 6}, DType::kF32, true, true)),
    [](const auto& form) { return form.param.name; });

TEST(Composites, OfConstantsAreComputedAsWell) {
  for (Form form : {pixel_shuffle("shuffle", {1, 8, 3, 5}, {1, 8, 3, 5}, 2),
                    rows("norm", "linalg_vector_norm", {3, 24}, {3, 24}, {-1}),
                    rows("log_softmax", "log_softmax", {2, 37}, {2, 37}, {-1}),
                    batch_norm("batch_norm", {2, 5, 3, 4}, {2, 5, 3, 4}, DType::kF32, false, false)}) {
    form.constant = true;
    SCOPED_TRACE(form.name);
    const auto got = run(load(form), form), wanted = run(load(form, {}, 1, Precision::kStrict), form);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i], 8e-6 * std::max(1.0, std::fabs(wanted[i])));
  }
}

// The last rows of a result are the last of all rows, and only they are computed.
TEST(Composites, LastRowsAreTheLastRows) {
  for (Form form : {rows("log_softmax", "log_softmax", {1, kDynamic, 300}, {1, 23, 300}, {-1}),
                    rows("log_softmax_f16", "log_softmax", {kDynamic, 40}, {23, 40}, {-1}, DType::kF16),
                    rows("norm", "linalg_vector_norm", {1, kDynamic, 40}, {1, 23, 40}, {-1})}) {
    SCOPED_TRACE(form.name);
    const InferenceFunction function = load(form);
    EXPECT_THAT(function.plan_text(std::vector<std::int64_t>{23}, true), HasSubstr("\"last_rows\": true"));
    const std::vector<double> all = run(function, form);
    for (const std::int64_t wanted : {0, 1, 9, 23}) {
      Invocation call = function.make_invocation();
      call.set_input(0, Program::random(form.dtype, form.extents, 7, false));
      call.set_last_rows(0, wanted);
      call.run();
      std::vector<double> some(static_cast<std::size_t>(call.output(0).element_count()));
      read_as_f64(call.output(0), some);
      ASSERT_EQ(some.size(), all.size() / 23 * static_cast<std::size_t>(wanted));
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.end() - std::ssize(some)));
    }
  }
}

// More axes than a copy takes.
TEST(Composites, OfManyAxesRunByTheirBody) {
  for (const std::size_t rank : {14u, 15u, 20u}) {
    const auto module_of = [&] {
      auto module = std::make_unique<ir::Module>();
      ir::Builder b(*module);
      ir::Context& context = b.context();
      std::vector<std::int64_t> in(rank - 3, 1), split = in, turned = in, out = in;
      in.insert(in.end(), {8, 3, 5}), split.insert(split.end(), {2, 2, 2, 3, 5});
      turned.insert(turned.end(), {2, 3, 2, 5, 2}), out.insert(out.end(), {2, 6, 10});
      const auto of = [&](const std::vector<std::int64_t>& dims) {
        return context.tensor_type(DType::kF32, Shape(dims));
      };
      const auto list = [&](const std::vector<std::int64_t>& values) {
        return b.constant_u32({values.begin(), values.end()});
      };
      std::vector<std::int64_t> order(rank - 3);
      std::iota(order.begin(), order.end(), 0);
      for (const std::int64_t place : {0, 3, 1, 4, 2}) order.push_back(std::ssize(in) - 3 + place);
      ir::GraphSpec spec;
      spec.name = "body";
      spec.inputs = {{"input", of(in), ""}};
      spec.outputs = {{"output", of(out), ""}};
      spec.is_private = spec.no_inline = true;
      spec.composite =
          ir::CompositeDecl{"pixel_shuffle",
                            {"input"},
                            {"output"},
                            {{"version", context.integer_attr(1)}, {"upscale_factor", context.integer_attr(2)}}};
      const ir::Graph callee = b.begin_graph(spec);
      V y = b.op1(OpCode::kReshape, {callee.body().arguments[0], list(split)}, of(split));
      y = b.op1(OpCode::kTranspose, {y, list(order)}, of(turned));
      b.end_graph({b.op1(OpCode::kReshape, {y, list(out)}, of(out))});
      spec.name = "main";
      spec.composite.reset();
      spec.is_private = spec.no_inline = false;
      const V x = b.begin_graph(spec).body().arguments[0];
      b.end_graph({b.invoke(callee, {x})[0]});
      return module;
    };
    std::vector<std::vector<double>> results;
    for (const Precision precision : {Precision::kFaithful, Precision::kStrict}) {
      const InferenceFunction function = test::load_program(module_of(), {}, 2, precision);
      std::vector<std::int64_t> dims(rank - 3, 1);
      dims.insert(dims.end(), {8, 3, 5});
      Invocation call = function.make_invocation();
      call.set_input(0, Program::random(DType::kF32, Shape(dims), 7, false));
      call.run();
      results.emplace_back(static_cast<std::size_t>(call.output(0).element_count()));
      read_as_f64(call.output(0), results.back());
    }
    EXPECT_EQ(results[0], results[1]) << rank;
  }
}

TEST(Composites, WithoutChannelsAreNoFault) {
  for (const bool convolution : {false, true}) {
    const Form form = batch_norm("batch_norm", {1, 0, 4, 6}, {1, 0, 4, 6}, DType::kF32, convolution, convolution);
    try {
      EXPECT_TRUE(run(load(form), form).empty());
    } catch (const Error&) {
    }
  }
}

// A body whose result has other extents than the composite gives: the body counts.
TEST(Composites, OtherDeclaredExtentsAreTheBodys) {
  Form form = rows("norm", "linalg_vector_norm", {2, 5, 33}, {2, 5, 33}, {1}, DType::kF32, false);
  form.declares_keep = true;
  const InferenceFunction function = load(form);
  EXPECT_THAT(function.plan_text({}, false), Not(HasSubstr("vector_norm")));
  EXPECT_EQ(run(function, form).size(), run(load(form, {}, 1, Precision::kStrict), form).size());
}

}  // namespace
}  // namespace coreai
