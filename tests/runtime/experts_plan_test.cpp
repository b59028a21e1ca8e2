// The composite gather_mm in plans: one step, equal to its body; indices outside are refused either way.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "coreai/base/error.h"
#include "coreai/ir/builder.h"
#include "coreai/runtime/ai_model.h"

namespace coreai {
namespace {

using ir::OpCode;
using V = ir::Value*;

constexpr std::int64_t kRows = 9, kChoices = 2, kExperts = 4, kIn = 32, kOut = 64;

enum class Stack { kPlain, kTransposed, kQuantised };

struct Form {
  std::string name;
  DType dtype = DType::kF32;
  DType index_dtype = DType::kSI32;
  Stack stack = Stack::kPlain;
  std::int64_t out = kOut;
};

// y = silu(gate) * up, down of it: two kinds of gather_mm as exporters call them, their bodies included.
class Program {
 public:
  explicit Program(const Form& form) : form_(form) {
    const ir::Graph up = declare("up", true, kIn, form.out), down = declare("down", false, form.out, kIn);
    ir::GraphSpec spec;
    spec.name = "mix";
    spec.inputs = {{"x", tensor(Shape{kRows, 1, 1, kIn}), ""},
                   {"index", builder_.context().tensor_type(form.index_dtype, Shape{kRows, kChoices}), ""}};
    spec.outputs = {{"y", tensor(Shape{1, kRows, kChoices, 1, kIn}), ""}};
    const auto& arguments = builder_.begin_graph(spec).body().arguments;
    const V x = arguments[0], index = arguments[1];
    V gate = builder_.invoke(up, {x, stack(kIn, form.out, 1), index})[0];
    V other = builder_.invoke(up, {x, stack(kIn, form.out, 2), index})[0];
    gate = builder_.op1(OpCode::kSilu, {gate}, gate->type);
    V hidden = builder_.op1(OpCode::kBroadcastingMul, {gate, other}, gate->type);
    builder_.end_graph({builder_.invoke(down, {hidden, stack(form.out, kIn, 3), index})[0]});
  }
  std::unique_ptr<ir::Module> take() { return std::move(module_); }

 private:
  ir::TypeRef tensor(const Shape& shape) { return builder_.context().tensor_type(form_.dtype, shape); }
  V op(OpCode code, std::vector<V> operands, const Shape& shape) {
    return builder_.op1(code, std::move(operands), tensor(shape));
  }
  V u32(const Shape& shape) { return builder_.constant_u32({shape.begin(), shape.end()}); }

  NDArray random(DType dtype, const Shape& shape, unsigned seed, double low, double high) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> values(low, high);
    NDArray out(dtype, shape);
    std::vector<double> wide(static_cast<std::size_t>(shape.element_count()));
    for (double& v : wide) v = is_float(dtype) ? values(random) : std::round(values(random));
    write_from_f64(out, wide);
    return out;
  }

  // Matrices [1, experts, in, out].
  V stack(std::int64_t in, std::int64_t out, unsigned seed) {
    const Shape shape{1, kExperts, in, out}, turned{1, kExperts, out, in};
    if (form_.stack == Stack::kPlain) return builder_.constant(random(form_.dtype, shape, seed, -0.3, 0.3));
    V rows = nullptr;
    if (form_.stack == Stack::kTransposed) {
      rows = builder_.constant(random(form_.dtype, turned, seed, -0.3, 0.3));
    } else {
      const Shape scales{1, kExperts, out, in / 32};
      rows = op(OpCode::kBlockwiseShiftScale,
                {builder_.constant(random(DType::kSI4, turned, seed, -8, 7)),
                 builder_.constant(random(form_.dtype, scales, seed + 9, 0.01, 0.05)),
                 builder_.constant(random(DType::kSI4, scales, seed, -2, 2)), builder_.splat(form_.dtype, scales, 0)},
                turned);
    }
    return op(OpCode::kTranspose, {rows, builder_.constant_u32({0, 1, 3, 2})}, shape);
  }

  ir::Graph declare(const std::string& name, bool shared, std::int64_t in, std::int64_t out) {
    ir::Context& context = builder_.context();
    const std::int64_t products = kRows * kChoices;
    const Shape wide{1, kRows, kChoices, 1, in}, each{1, products, in, out}, result{1, kRows, kChoices, 1, out};
    ir::GraphSpec spec;
    spec.name = "gather_mm_" + name;
    spec.inputs = {{"lhs", tensor(shared ? Shape{kRows, 1, 1, in} : wide), ""},
                   {"rhs", tensor(Shape{1, kExperts, in, out}), ""},
                   {"rhs_indices", context.tensor_type(form_.index_dtype, Shape{kRows, kChoices}), ""}};
    spec.outputs = {{"output", tensor(result), ""}};
    spec.is_private = spec.no_inline = true;
    spec.composite =
        ir::CompositeDecl{"gather_mm",
                          {"lhs", "rhs", "rhs_indices"},
                          {"output"},
                          {{"num_batch_axes", context.integer_attr(1)}, {"version", context.integer_attr(1)}}};
    const ir::Graph graph = builder_.begin_graph(spec);
    const auto& x = graph.body().arguments;
    const auto integers = [&](OpCode code, std::vector<V> operands, const Shape& shape) {
      return builder_.op1(code, std::move(operands), context.tensor_type(DType::kSI32, shape));
    };
    V index = x[2];
    if (form_.index_dtype != DType::kSI32) index = integers(OpCode::kCast, {index}, Shape{kRows, kChoices});
    index = integers(OpCode::kReshape, {index, u32(Shape{1, products, 1, 1})}, Shape{1, products, 1, 1});
    index = integers(OpCode::kBroadcastTo, {index, u32(each)}, each);
    V matrices = op(OpCode::kGatherAlongAxis, {x[1], index, builder_.scalar_i32(1)}, each);
    matrices = op(OpCode::kReshape, {matrices, u32(Shape{products, in, out})}, Shape{products, in, out});
    V rows = x[0];
    if (shared) {
      rows = op(OpCode::kExpandDims, {rows, builder_.constant_i32({0})}, Shape{1, kRows, 1, 1, in});
      rows = op(OpCode::kBroadcastTo, {rows, u32(wide)}, wide);
    }
    rows = op(OpCode::kReshape, {rows, u32(Shape{products, 1, in})}, Shape{products, 1, in});
    V y = op(OpCode::kBatchMatmul, {rows, matrices}, Shape{products, 1, out});
    builder_.end_graph({op(OpCode::kReshape, {y, u32(result)}, result)});
    return graph;
  }

  Form form_;
  std::unique_ptr<ir::Module> module_ = std::make_unique<ir::Module>();
  ir::Builder builder_{*module_};
};

InferenceFunction load(const Form& form, Precision precision, std::set<std::string> disabled = {}, int threads = 2) {
  SpecializationOptions options;
  options.precision = precision;
  options.threads = threads;
  options.use_cache = false;
  options.disabled_passes.assign(disabled.begin(), disabled.end());
  return AIModel::from_module(Program(form).take(), options).load_function("mix");
}

std::vector<double> run(const InferenceFunction& function, const Form& form, const std::vector<double>& indices) {
  NDArray x(form.dtype, Shape{kRows, 1, 1, kIn}), index(form.index_dtype, Shape{kRows, kChoices});
  std::mt19937 random(5);
  std::vector<double> values(static_cast<std::size_t>(x.element_count()));
  for (double& v : values) v = std::normal_distribution<double>()(random);
  write_from_f64(x, values);
  write_from_f64(index, indices);
  Invocation call = function.make_invocation();
  call.set_input(0, x);
  call.set_input(1, index);
  call.run();
  std::vector<double> out(static_cast<std::size_t>(call.output(0).element_count()));
  read_as_f64(call.output(0), out);
  return out;
}

std::vector<double> some_indices() {
  std::vector<double> indices;
  for (int i = 0; i < kRows * kChoices; ++i) indices.push_back(i * i % 3);  // nobody names the last expert
  return indices;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return worst / largest;
}

class ExpertsPlan : public testing::TestWithParam<Form> {};

TEST_P(ExpertsPlan, IsTwoStepsThatAgreeWithTheBody) {
  const Form& form = GetParam();
  const auto strict = run(load(form, Precision::kStrict), form, some_indices());
  const double tolerance = form.dtype == DType::kF32 && form.stack != Stack::kQuantised ? 1e-6
                           : form.dtype == DType::kBF16                                 ? 3e-2
                                                                                        : 4e-3;
  const InferenceFunction fused = load(form, Precision::kFaithful);
  ASSERT_EQ(fused.execution_kind(), "compiled");
  const std::string plan = fused.plan_text({}, false);
  EXPECT_NE(plan.find("experts gated"), std::string::npos) << plan;
  EXPECT_NE(plan.find("one of 4 each"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("gather_along_axis"), std::string::npos) << plan;
  EXPECT_LE(distance(run(fused, form, some_indices()), strict), tolerance);
  for (const auto& off : std::vector<std::set<std::string>>{
           {"fusion"}, {"linear"}, {"resolve"}, {"views"}, {"elementwise"}, {"memory"}, {"fold"}}) {
    const InferenceFunction other = load(form, Precision::kFaithful, off);
    EXPECT_EQ(other.execution_kind(), "compiled") << *off.begin();
    EXPECT_LE(distance(run(other, form, some_indices()), strict), tolerance) << *off.begin();
    const bool by_body = off.contains("linear") || off.contains("resolve");
    EXPECT_EQ(other.plan_text({}, false).find("one of 4 each") == std::string::npos, by_body) << *off.begin();
  }
}

TEST_P(ExpertsPlan, ThreadsChangeNoBit) {
  const Form& form = GetParam();
  const auto one = run(load(form, Precision::kFaithful, {}, 1), form, some_indices());
  EXPECT_EQ(one, run(load(form, Precision::kFaithful, {}, 3), form, some_indices()));
}

TEST_P(ExpertsPlan, AnIndexOutsideIsRefusedAndTheFunctionStaysUsable) {
  const Form& form = GetParam();
  for (const auto& disabled : std::vector<std::set<std::string>>{{}, {"resolve"}}) {
    const InferenceFunction function = load(form, Precision::kFaithful, disabled);
    auto indices = some_indices();
    indices[5] = 4;
    EXPECT_THROW(run(function, form, indices), Error);
    const auto wanted = run(load(form, Precision::kFaithful, disabled), form, some_indices());
    EXPECT_EQ(run(function, form, some_indices()), wanted);
    if (!disabled.empty()) continue;
    try {
      run(function, form, indices);
    } catch (const InvalidArgumentError& e) {
      const std::string what = e.what();
      const std::size_t named = what.find("@mix");
      EXPECT_NE(named, std::string::npos) << what;
      EXPECT_EQ(what.find("mix", named + 2), std::string::npos) << "named twice: " << what;
      EXPECT_NE(what.find("expert 4 of 4"), std::string::npos) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ExpertsPlan,
                         testing::Values(Form{"f32"}, Form{"f32_ui16", DType::kF32, DType::kUI16},
                                         Form{"f32_rows", DType::kF32, DType::kSI32, Stack::kTransposed},
                                         Form{"f32_odd", DType::kF32, DType::kSI32, Stack::kPlain, 40},
                                         Form{"f16", DType::kF16, DType::kUI16},
                                         Form{"bf16_rows", DType::kBF16, DType::kUI16, Stack::kTransposed},
                                         Form{"f32_4bit", DType::kF32, DType::kSI32, Stack::kQuantised},
                                         Form{"f16_4bit", DType::kF16, DType::kUI16, Stack::kQuantised}),
                         [](const auto& form) { return form.param.name; });

// A negative index counts from the end, as in the body.
TEST(ExpertsPlan, ANegativeIndexCountsFromTheEnd) {
  const Form form{"f32"};
  auto negative = some_indices(), positive = negative;
  negative[0] = -4, positive[0] = 0;
  negative[7] = -1, positive[7] = 3;
  const InferenceFunction fused = load(form, Precision::kFaithful);
  EXPECT_EQ(run(fused, form, negative), run(fused, form, positive));
  EXPECT_LE(distance(run(fused, form, negative), run(load(form, Precision::kStrict), form, negative)), 1e-6);
}

}  // namespace
}  // namespace coreai
