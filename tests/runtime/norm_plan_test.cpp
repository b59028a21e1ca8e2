// Layer, group and instance norms in plans: one step each, equal to the body and to what is written out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "coreai/ir/builder.h"
#include "load_program.h"

namespace coreai {
namespace {

using ir::OpCode;
using testing::HasSubstr;
using testing::Not;
using V = ir::Value*;

struct Form {
  std::string name, composite;  // empty: written out in the function itself
  Shape shape;                  // kDynamic where it is not declared
  Shape extents;                // of the call
  std::int64_t groups = 0;
  DType dtype = DType::kF32;
};

Shape per_channel(const Form& form) {
  return Shape{form.groups ? form.shape[1] : form.shape[form.shape.rank() - 1]};
}

class Program {
 public:
  explicit Program(const Form& form) : form_(form) {
    ir::Context& context = module_->context();
    const ir::TypeRef x = tensor(form.shape), w = tensor(per_channel(form));
    std::optional<ir::Graph> callee;
    if (!form.composite.empty()) {
      ir::GraphSpec spec;
      spec.name = form.composite + "_body";
      spec.inputs = {{"input", x, ""}, {"weight", w, ""}, {"bias", w, ""}};
      spec.outputs = {{"output", x, ""}};
      spec.is_private = spec.no_inline = true;
      std::vector<std::pair<std::string, ir::AttrRef>> attributes = {{"eps", context.float_attr(1e-5)}};
      if (form.composite == "layer_norm")
        attributes.emplace_back("axes", context.array_attr({context.integer_attr(-1)}));
      if (form.composite == "group_norm") attributes.emplace_back("num_groups", context.integer_attr(form.groups));
      spec.composite = ir::CompositeDecl{form.composite, {"input", "weight", "bias"}, {"output"}, attributes};
      callee = builder_.begin_graph(spec);
      const auto& a = callee->body().arguments;
      builder_.end_graph({norm(a[0], a[1], a[2])});
    }
    ir::GraphSpec spec;
    spec.name = "main";
    spec.inputs = {{"x", x, ""}};
    spec.outputs = {{"y", x, ""}};
    const V input = builder_.begin_graph(spec).body().arguments[0];
    const V scale = builder_.constant(random(1)), shift = builder_.constant(random(2));
    builder_.end_graph({callee ? builder_.invoke(*callee, {input, scale, shift})[0] : norm(input, scale, shift)});
  }
  std::unique_ptr<ir::Module> take() { return std::move(module_); }

 private:
  ir::TypeRef tensor(const Shape& shape) { return module_->context().tensor_type(form_.dtype, shape); }
  V op(OpCode code, std::vector<V> operands, const Shape& shape) {
    return builder_.op1(code, std::move(operands), tensor(shape));
  }
  NDArray random(unsigned seed) const {
    std::mt19937 engine(seed);
    std::vector<double> values(static_cast<std::size_t>(per_channel(form_).element_count()));
    for (double& v : values) v = std::normal_distribution<double>(seed == 1 ? 1 : 0)(engine);
    NDArray out(form_.dtype, per_channel(form_));
    write_from_f64(out, values);
    return out;
  }
  V u32(const Shape& shape) { return builder_.constant_u32({shape.begin(), shape.end()}); }

  // (x - mean) * rsqrt(mean((x - mean)^2) + eps) over the last `axes` axes.
  V normalised(V x, const Shape& shape, std::size_t axes) {
    Shape reduced = shape;
    std::vector<std::int32_t> numbers;
    std::vector<std::int64_t> dims(shape.begin(), shape.end());
    for (std::size_t i = shape.rank() - axes; i < shape.rank(); ++i) {
      numbers.push_back(static_cast<std::int32_t>(i));
      dims[i] = 1;
    }
    reduced = Shape(dims);
    const V over = builder_.constant_i32(numbers);
    V centred = op(OpCode::kBroadcastingSub, {x, op(OpCode::kReduceMean, {x, over}, reduced)}, shape);
    V squares = op(OpCode::kBroadcastingMul, {centred, centred}, shape);
    V variance =
        op(OpCode::kBroadcastingAdd,
           {op(OpCode::kReduceMean, {squares, over}, reduced), builder_.splat(form_.dtype, Shape{}, 1e-5)}, reduced);
    return op(OpCode::kBroadcastingMul, {centred, op(OpCode::kRsqrt, {variance}, reduced)}, shape);
  }

  V norm(V x, V scale, V shift) {
    const Shape& s = form_.shape;
    V y = nullptr;
    if (form_.groups == 0) {
      y = normalised(x, s, 1);
    } else {
      std::int64_t inner = 1;
      for (std::size_t i = 2; i < s.rank(); ++i) inner *= s[i];
      const Shape split{s[0], form_.groups, s[1] / form_.groups, inner};
      std::vector<std::int64_t> ones(s.rank() - 1, 1);
      ones[0] = s[1];
      y = normalised(op(OpCode::kReshape, {x, u32(split)}, split), split, 2);
      y = op(OpCode::kReshape, {y, u32(s)}, s);
      scale = op(OpCode::kReshape, {scale, u32(Shape(ones))}, Shape(ones));
      shift = op(OpCode::kReshape, {shift, u32(Shape(ones))}, Shape(ones));
    }
    return op(OpCode::kBroadcastingAdd, {op(OpCode::kBroadcastingMul, {y, scale}, s), shift}, s);
  }

  Form form_;
  std::unique_ptr<ir::Module> module_ = std::make_unique<ir::Module>();
  ir::Builder builder_{*module_};
};

InferenceFunction load(const Form& form, std::vector<std::string> disabled = {}, int threads = 2,
                       Precision precision = Precision::kFaithful) {
  return test::load_program(Program(form).take(), std::move(disabled), threads, precision);
}

std::vector<double> input_of(const Form& form) {
  std::mt19937 engine(7);
  std::vector<double> values(static_cast<std::size_t>(form.extents.element_count()));
  for (double& v : values) v = std::normal_distribution<double>(3.0, 2.0)(engine);
  NDArray x(form.dtype, form.extents);
  write_from_f64(x, values);
  read_as_f64(x, values);
  return values;
}

std::vector<double> run(const InferenceFunction& function, const Form& form) {
  NDArray x(form.dtype, form.extents);
  write_from_f64(x, input_of(form));
  Invocation call = function.make_invocation();
  call.set_input(0, x);
  call.run();
  std::vector<double> y(static_cast<std::size_t>(x.element_count()));
  read_as_f64(call.output(0), y);
  return y;
}

class NormPlan : public testing::TestWithParam<Form> {};

TEST_P(NormPlan, OneStepEqualToTheBody) {
  const Form& form = GetParam();
  const InferenceFunction fused = load(form);
  ASSERT_EQ(fused.execution_kind(), "compiled");
  const std::string plan =
      fused.plan_text(std::vector<std::int64_t>(std::ranges::count(form.shape, kDynamic), 5), false);
  EXPECT_THAT(plan, HasSubstr(form.groups ? "group_norm" : "layer_norm"));
  EXPECT_THAT(plan, Not(HasSubstr("reduce_mean")));
  const std::vector<double> got = run(fused, form), body = run(load(form, {"resolve", "recognize"}), form),
                            strict = run(load(form, {}, 1, Precision::kStrict), form);
  const double tolerance = form.dtype == DType::kF32 ? 2e-6 : 1e-2;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], body[i], tolerance * std::max(1.0, std::fabs(body[i]))) << i;
    ASSERT_NEAR(got[i], strict[i], 2 * tolerance * std::max(1.0, std::fabs(strict[i]))) << i;
  }
  EXPECT_EQ(got, run(load(form, {}, 1), form));
}

INSTANTIATE_TEST_SUITE_P(Forms, NormPlan,
                         testing::Values(Form{"layer", "layer_norm", {2, 5, 24}, {2, 5, 24}},
                                         Form{"layer_dynamic", "layer_norm", {1, kDynamic, 40}, {1, 7, 40}},
                                         Form{"layer_f16", "layer_norm", {3, 33}, {3, 33}, 0, DType::kF16},
                                         Form{"layer_written_out", "", {1, kDynamic, 19}, {1, 6, 19}},
                                         Form{"group", "group_norm", {2, 12, 3, 7}, {2, 12, 3, 7}, 4},
                                         Form{"group_of_one_element", "group_norm", {3, 8, 1}, {3, 8, 1}, 2},
                                         Form{"group_wide", "group_norm", {1, 32, 40, 40}, {1, 32, 40, 40}, 8},
                                         Form{"group_f16", "group_norm", {1, 6, 5, 5}, {1, 6, 5, 5}, 2, DType::kF16},
                                         Form{"instance", "instance_norm", {2, 5, 4, 6}, {2, 5, 4, 6}, 5}),
                         [](const auto& form) { return form.param.name; });

}  // namespace
}  // namespace coreai
