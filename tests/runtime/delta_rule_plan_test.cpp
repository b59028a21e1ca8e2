// The gated delta rule in plans: one step equal to its body, whatever the threads and the cut into calls; its state
// changes in place unless its old content is still needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "coreai/ir/builder.h"
#include "load_program.h"

namespace coreai {
namespace {

using ir::OpCode;
using testing::HasSubstr;
using V = ir::Value*;

// What the body does with its operands beside the rule.
enum class Prepares : std::uint8_t { kNormBefore, kNormInside, kScaledValue };

struct Form {
  std::string name;
  std::int64_t batch = 1, heads = 2, tokens = 3, key_dim = 16, value_dim = 16;
  bool normalise = true;
  DType dtype = DType::kF32;  // of operands and state
  std::int64_t layers = 1;
  bool old_content = false;  // the state before the call is an output too
  Prepares prepares = Prepares::kNormBefore;
  bool from_old = false;  // every layer's part is of the content before the call, read after the others' updates
};

// states[layer] and y = rule(q, k, v, g, beta, states[layer]) per layer; each takes the output of the one before as v.
class Program {
 public:
  explicit Program(const Form& form) : f_(form) {
    const Shape keys{f_.batch, f_.heads, f_.tokens, f_.key_dim}, values{f_.batch, f_.heads, f_.tokens, f_.value_dim};
    const Shape gates{f_.batch, f_.heads, f_.tokens}, state{f_.batch, f_.heads, f_.key_dim, f_.value_dim};
    const Shape rows{f_.batch, f_.tokens, f_.heads, f_.value_dim};
    const Shape all{f_.layers, f_.batch, f_.heads, f_.key_dim, f_.value_dim};
    ir::Context& context = module_->context();
    ir::GraphSpec spec;
    spec.name = "rule_body";
    spec.inputs = {{"query", of(keys), ""}, {"key", of(keys), ""},   {"value", of(values), ""},
                   {"g", of(gates), ""},    {"beta", of(gates), ""}, {"initial_state", of(state), ""}};
    spec.outputs = {{"rows", of(rows), ""}, {"state", of(state), ""}};
    spec.is_private = spec.no_inline = true;
    spec.composite = ir::CompositeDecl{"gated_delta_update",
                                       {"query", "key", "value", "g", "beta", "initial_state"},
                                       {"output_0", "output_1"},
                                       {{"version", context.integer_attr(1)}}};
    const ir::Graph rule = b_.begin_graph(spec);
    body(rule.body().arguments);
    ir::GraphSpec main;
    main.name = "main";
    main.inputs = {{"q", of(keys), ""},  {"k", of(keys), ""},     {"v", of(values), ""},
                   {"g", of(gates), ""}, {"beta", of(gates), ""}, {"s", context.handle_type(of(all)), "s"}};
    main.outputs = {{"s", context.token_type(), ""}, {"y", of(rows), ""}};
    if (f_.old_content) main.outputs.push_back({"old", of(all), ""});
    const auto in = b_.begin_graph(main).body().arguments;
    V token = b_.op1(OpCode::kCreateToken, {}, context.token_type());
    auto read = b_.op(OpCode::kReadHandle, {in[5], token}, {of(all), context.token_type()});
    const V before = read[0];
    V content = read[0], y = nullptr, value = in[2];
    for (std::int64_t layer = 0; layer < f_.layers; ++layer) {
      const V begin = i32({layer, 0, 0, 0, 0}), ones = i32({1, 1, 1, 1, 1});
      const V end = i32({layer + 1, f_.batch, f_.heads, f_.key_dim, f_.value_dim});
      Shape one = all;
      one[0] = 1;
      V part = op(OpCode::kSlice, {f_.from_old ? before : content, begin, end, ones}, one);
      part = op(OpCode::kReshape, {part, u32(state)}, state);
      const auto next = b_.invoke(rule, {in[0], in[1], value, in[3], in[4], part});
      y = next[0];
      value = op(OpCode::kTranspose, {y, b_.constant_u32({0, 2, 1, 3})}, values);
      V whole = op(OpCode::kReshape, {next[1], u32(one)}, one);
      content = f_.layers == 1 ? whole : op(OpCode::kSliceUpdate, {content, begin, end, ones, whole}, all);
    }
    V kept = b_.op1(OpCode::kWriteHandle, {in[5], content, read[1]}, context.token_type());
    std::vector<V> results = {kept, y};
    if (f_.old_content) results.push_back(before);
    b_.end_graph(results);
  }
  std::unique_ptr<ir::Module> take() { return std::move(module_); }

 private:
  ir::TypeRef of(const Shape& shape) { return module_->context().tensor_type(f_.dtype, shape); }
  V op(OpCode code, std::vector<V> operands, const Shape& shape) {
    return b_.op1(code, std::move(operands), of(shape));
  }
  V op32(OpCode code, std::vector<V> operands, const Shape& shape) {
    return b_.op1(code, std::move(operands), module_->context().tensor_type(DType::kF32, shape));
  }
  V u32(const Shape& shape) { return b_.constant_u32({shape.begin(), shape.end()}); }
  V i32(const std::vector<std::int64_t>& values) { return b_.constant_i32({values.begin(), values.end()}); }
  V wide(V x, const Shape& shape) { return f_.dtype == DType::kF32 ? x : op32(OpCode::kCast, {x}, shape); }

  V normalised(V x, const Shape& shape) {
    if (!f_.normalise) return x;
    Shape sums = shape;
    sums[3] = 1;
    V squares = op(OpCode::kBroadcastingMul, {x, x}, shape);
    V sum = op(OpCode::kReduceSum, {squares, b_.constant_i32({3})}, sums);
    sum = op(OpCode::kBroadcastingAdd, {sum, b_.splat(f_.dtype, Shape{}, 1e-3)}, sums);
    return op(OpCode::kBroadcastingMul, {x, op(OpCode::kRsqrt, {sum}, sums)}, shape);
  }

  // Token t of x as [batch, heads, ..last].
  V token_of(V x, std::int64_t t, std::int64_t width, const Shape& last) {
    std::vector<std::int64_t> begin = {0, 0, t}, end = {f_.batch, f_.heads, t + 1}, ones = {1, 1, 1};
    std::vector<std::int64_t> part = {f_.batch, f_.heads, 1};
    if (width > 0) begin.push_back(0), end.push_back(width), ones.push_back(1), part.push_back(width);
    V taken = op32(OpCode::kSlice, {x, i32(begin), i32(end), i32(ones)}, Shape(part));
    return op32(OpCode::kReshape, {taken, u32(last)}, last);
  }

  // The recurrence written out token by token, in f32.
  void body(const std::vector<V>& in) {
    const std::int64_t n = f_.batch, h = f_.heads, d = f_.key_dim, e = f_.value_dim;
    const Shape keys{n, h, f_.tokens, d}, values{n, h, f_.tokens, e}, gates{n, h, f_.tokens}, state{n, h, d, e};
    const bool inside = f_.prepares == Prepares::kNormInside;
    V q = wide(inside ? in[0] : normalised(in[0], keys), keys),
      k = wide(inside ? in[1] : normalised(in[1], keys), keys);
    V v = wide(in[2], values);
    if (f_.prepares == Prepares::kScaledValue)
      v = op32(OpCode::kBroadcastingMul, {v, b_.splat(DType::kF32, Shape{}, 2)}, values);
    q = op32(OpCode::kBroadcastingMul, {q, b_.splat(DType::kF32, Shape{}, 0.25)}, keys);
    V beta = wide(in[4], gates), decay = op32(OpCode::kExp, {wide(in[3], gates)}, gates);
    V s = wide(in[5], state);
    std::vector<V> rows = {b_.scalar_i32(2)};
    for (std::int64_t t = 0; t < f_.tokens; ++t) {
      const Shape column{n, h, d, 1}, row{n, h, 1, e}, scalar{n, h, 1, 1};
      const V axis = b_.constant_i32({2});
      V kt = token_of(k, t, d, column), qt = token_of(q, t, d, column);
      if (inside) {
        for (V* x : {&kt, &qt}) {
          V sum = op32(OpCode::kReduceSum, {op32(OpCode::kBroadcastingMul, {*x, *x}, column), axis}, scalar);
          sum = op32(OpCode::kBroadcastingAdd, {sum, b_.splat(DType::kF32, Shape{}, 1e-3)}, scalar);
          *x = op32(OpCode::kBroadcastingMul, {*x, op32(OpCode::kRsqrt, {sum}, scalar)}, column);
        }
      }
      s = op32(OpCode::kBroadcastingMul, {s, token_of(decay, t, 0, scalar)}, state);
      V seen = op32(OpCode::kReduceSum, {op32(OpCode::kBroadcastingMul, {s, kt}, state), axis}, row);
      V delta = op32(OpCode::kBroadcastingSub, {token_of(v, t, e, row), seen}, row);
      delta = op32(OpCode::kBroadcastingMul, {delta, token_of(beta, t, 0, scalar)}, row);
      s = op32(OpCode::kBroadcastingAdd, {s, op32(OpCode::kBroadcastingMul, {kt, delta}, state)}, state);
      rows.push_back(op32(OpCode::kReduceSum, {op32(OpCode::kBroadcastingMul, {s, qt}, state), axis}, row));
    }
    V y = op32(OpCode::kConcat, rows, values);
    const Shape by_token{n, f_.tokens, h, e};
    y = op32(OpCode::kTranspose, {y, b_.constant_u32({0, 2, 1, 3})}, by_token);
    if (f_.dtype != DType::kF32) y = op(OpCode::kCast, {y}, by_token), s = op(OpCode::kCast, {s}, state);
    b_.end_graph({y, s});
  }

  Form f_;
  std::unique_ptr<ir::Module> module_ = std::make_unique<ir::Module>();
  ir::Builder b_{*module_};
};

InferenceFunction load(const Form& form, std::vector<std::string> disabled = {}, int threads = 2,
                       Precision precision = Precision::kFaithful) {
  return test::load_program(Program(form).take(), std::move(disabled), threads, precision);
}

struct Result {
  std::vector<double> y, state, old;
};

NDArray random(DType dtype, const Shape& shape, unsigned seed, double mean = 0) {
  std::mt19937 engine(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.element_count()));
  for (double& v : values) v = std::normal_distribution<double>(mean, 0.5)(engine);
  NDArray out(dtype, shape);
  write_from_f64(out, values);
  return out;
}

std::vector<double> elements(const NDArray& a) {
  std::vector<double> values(static_cast<std::size_t>(a.element_count()));
  read_as_f64(a, values);
  return values;
}

// Tokens [first, first + form.tokens) of a sequence.
Result run(const InferenceFunction& function, const Form& form, State& state, std::int64_t first = 0) {
  constexpr std::int64_t kSequence = 20;
  Invocation call = function.make_invocation();
  for (std::size_t i = 0; i < 5; ++i) {
    const std::int64_t width = i < 2 ? form.key_dim : i == 2 ? form.value_dim : 1;
    const NDArray all =
        random(form.dtype, Shape{form.batch, form.heads, kSequence, width}, static_cast<unsigned>(i) + 1,
               i < 3    ? 0
               : i == 3 ? -0.7
                        : 0.5);
    const std::vector<double> values = elements(all);
    std::vector<double> taken;
    for (std::int64_t h = 0; h < form.batch * form.heads; ++h) {
      const auto at = values.begin() + (h * kSequence + first) * width;
      taken.insert(taken.end(), at, at + form.tokens * width);
    }
    const Shape shape =
        i < 3 ? Shape{form.batch, form.heads, form.tokens, width} : Shape{form.batch, form.heads, form.tokens};
    NDArray x(form.dtype, shape);
    write_from_f64(x, taken);
    call.set_input(i, x);
  }
  call.set_state(0, state);
  call.run();
  Result out{elements(call.output(0)), elements(state.read()), {}};
  if (form.old_content) out.old = elements(call.output(1));
  return out;
}

Result run_twice(const InferenceFunction& function, const Form& form) {
  State state = function.make_state("s", Shape{form.layers, form.batch, form.heads, form.key_dim, form.value_dim});
  run(function, form, state);
  return run(function, form, state, form.tokens);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], tolerance * std::max(1.0, std::fabs(wanted[i]))) << i;
}

class DeltaRulePlan : public testing::TestWithParam<Form> {};

TEST_P(DeltaRulePlan, OneStepEqualToTheBody) {
  const Form& form = GetParam();
  const InferenceFunction fused = load(form);
  ASSERT_EQ(fused.execution_kind(), "compiled");
  const std::string plan = fused.plan_text({}, false);
  EXPECT_THAT(plan, HasSubstr("gated_delta"));
  EXPECT_THAT(plan, HasSubstr(form.old_content ? "state copied" : "state in place"));
  EXPECT_EQ(plan.find("store") != std::string::npos, form.old_content);
  const Result got = run_twice(fused, form), body = run_twice(load(form, {"resolve"}), form),
               strict = run_twice(load(form, {}, 1, Precision::kStrict), form);
  const double tolerance = form.dtype == DType::kF32 ? 4e-6 : 1e-2;
  expect_near(got.y, body.y, tolerance);
  expect_near(got.state, body.state, tolerance);
  expect_near(got.y, strict.y, 2 * tolerance);
  expect_near(got.state, strict.state, 2 * tolerance);
  expect_near(got.old, strict.old, 2 * tolerance);
  for (const int threads : {1, 3}) {
    const Result again = run_twice(load(form, {}, threads), form);
    EXPECT_EQ(again.y, got.y) << threads;
    EXPECT_EQ(again.state, got.state) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, DeltaRulePlan,
                         testing::Values(Form{"plain", 1, 2, 3, 16, 16}, Form{"odd_extents", 2, 3, 4, 20, 41},
                                         Form{"narrow", 1, 1, 2, 3, 1}, Form{"wide", 1, 2, 3, 64, 96, false},
                                         Form{"f16", 1, 4, 3, 32, 32, true, DType::kF16},
                                         Form{"bf16", 1, 2, 3, 16, 40, false, DType::kBF16},
                                         Form{"layers", 1, 2, 3, 16, 16, true, DType::kF32, 3},
                                         Form{"layers_f16", 2, 2, 1, 16, 24, true, DType::kF16, 2},
                                         Form{"old_content", 1, 2, 3, 16, 16, true, DType::kF32, 1, true}),
                         [](const auto& form) { return form.param.name; });

// Bodies that prepare their operands in a way that the step does not know run as they are.
TEST(DeltaRule, OtherBodiesAreNotTaken) {
  for (const Prepares prepares : {Prepares::kNormInside, Prepares::kScaledValue}) {
    Form form{"other", 1, 2, 3, 16, 24};
    form.prepares = prepares;
    const InferenceFunction function = load(form);
    EXPECT_THAT(function.plan_text({}, false), testing::Not(HasSubstr("gated_delta")));
    const Result got = run_twice(function, form), strict = run_twice(load(form, {}, 1, Precision::kStrict), form);
    expect_near(got.y, strict.y, 8e-6);
    expect_near(got.state, strict.state, 8e-6);
  }
}

// Layers that read their parts of the content before the call, when parts of it have been replaced.
TEST(DeltaRule, OtherSlicesOfAStateMayBeReadLater) {
  for (const bool old_content : {false, true}) {
    Form form{"late", 1, 2, 3, 16, 40, true, DType::kF32, 3, old_content};
    form.from_old = true;
    const Result got = run_twice(load(form), form), strict = run_twice(load(form, {}, 1, Precision::kStrict), form);
    expect_near(got.y, strict.y, 8e-6);
    expect_near(got.state, strict.state, 8e-6);
    expect_near(got.old, strict.old, 8e-6);
    EXPECT_EQ(got.state, run_twice(load(form, {}, 3), form).state);
  }
}

// Heads that several chunks share, and chunks of several heads: the same bits.
TEST(DeltaRule, ThreadsCutHeadsAndJoinThem) {
  for (const Form& form : {Form{"few", 1, 1, 9, 16, 300}, Form{"many", 1, 40, 2, 8, 70}}) {
    const Result one = run_twice(load(form, {}, 1), form);
    for (const int threads : {2, 3, 5}) {
      const Result got = run_twice(load(form, {}, threads), form);
      EXPECT_EQ(got.y, one.y) << form.name << threads;
      EXPECT_EQ(got.state, one.state) << form.name << threads;
    }
  }
}

TEST(DeltaRule, TokenByTokenIsTheWhole) {
  Form whole{"whole", 1, 3, 5, 24, 40}, one = whole;
  one.tokens = 1;
  const InferenceFunction all = load(whole), each = load(one);
  State a = all.make_state("s", Shape{1, 1, 3, 24, 40}), b = each.make_state("s", Shape{1, 1, 3, 24, 40});
  const Result wanted = run(all, whole, a);
  std::vector<double> rows, state;
  for (std::int64_t t = 0; t < 5; ++t) {
    const Result got = run(each, one, b, t);
    rows.insert(rows.end(), got.y.begin(), got.y.end());
    state = got.state;
  }
  EXPECT_EQ(rows, wanted.y);
  EXPECT_EQ(state, wanted.state);
}

// The exporter's own body, a loop over tokens, has one step too; tests/fixtures/genuine replays it with its values.
TEST(DeltaRule, TheExportersLoopIsRecognised) {
  SpecializationOptions options;
  options.use_cache = false;
  const std::filesystem::path asset =
      std::filesystem::path(COREAI_FIXTURE_DIR) / "genuine/gated_delta_f16_b3/gated_delta_f16_b3.aimodel";
  const InferenceFunction function = AIModel::load(asset, options).load_function();
  EXPECT_EQ(function.execution_kind(), "compiled");
  const std::string plan = function.plan_text(std::vector<std::int64_t>{5}, false);
  EXPECT_THAT(plan, HasSubstr("gated_delta"));
  EXPECT_THAT(plan, HasSubstr("state in place"));
}

}  // namespace
}  // namespace coreai
