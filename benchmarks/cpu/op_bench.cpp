// Kernels of operations beside the reference evaluator on shapes that models have. Each answer is checked against the
// evaluator first. Prints one line of JSON per case; exits 1 if a result is wrong.
//
//   op_bench [--threads N] [--case PART_OF_A_NAME] [--no-reference]
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/ops/op_kernel.h"
#include "backend/cpu/reference/evaluator.h"
#include "coreai/ir/builder.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

struct Case {
  std::string name;
  OpCode code;
  std::vector<NDArray> data;   // operands that a call brings
  std::vector<NDArray> known;  // constants behind them, but for `known_first`
  double operations = 0;       // floating-point operations; 0: bytes count
  bool constant_weight = false;
  bool known_first = false;
};

NDArray random_array(DType dtype, const Shape& shape) {
  NDArray array(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(array.element_count()));
  std::uint64_t state = 1;
  for (double& v : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = static_cast<double>(state >> 40) * 0x1p-23 - 1.0;
  }
  write_from_f64(array, values);
  return array;
}

NDArray list(std::vector<std::int64_t> values) {
  NDArray array(DType::kSI32, {static_cast<std::int64_t>(values.size())});
  write_from_f64(array, std::vector<double>(values.begin(), values.end()));
  return array;
}
NDArray number(std::int64_t value) {
  return list({value}).reshaped(Shape{});
}

Case conv(std::string name, DType dtype, const Shape& x, const Shape& w, std::int64_t stride, std::int64_t groups = 1) {
  Case c{std::move(name), OpCode::kConv2d, {random_array(dtype, x), random_array(dtype, w)}, {}};
  c.known = {list({stride, stride}), list({1, 1}), number(groups)};
  const double pixels =
      static_cast<double>(((x[2] - w[2]) / stride + 1) * ((x[3] - w[3]) / stride + 1)) * static_cast<double>(x[0]);
  c.operations = 2 * pixels * static_cast<double>(w.element_count());
  c.constant_weight = true;
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back(conv("conv 3x3 320x64x64", DType::kF32, {1, 320, 66, 66}, {320, 320, 3, 3}, 1));
  all.push_back(conv("conv 3x3 320x64x64 f16", DType::kF16, {1, 320, 66, 66}, {320, 320, 3, 3}, 1));
  all.push_back(conv("conv 3x3 1280x8x8", DType::kF32, {1, 1280, 10, 10}, {1280, 1280, 3, 3}, 1));
  all.push_back(conv("conv 1x1 320x64x64", DType::kF32, {1, 320, 64, 64}, {320, 320, 1, 1}, 1));
  all.push_back(conv("conv 3x3/2 320x32x32", DType::kF32, {1, 320, 65, 65}, {320, 320, 3, 3}, 2));
  all.push_back(conv("patches 16x16 224", DType::kF32, {1, 3, 224, 224}, {768, 3, 16, 16}, 16));
  all.push_back(conv("depthwise 3x3 384x56x56", DType::kF32, {1, 384, 58, 58}, {384, 1, 3, 3}, 1, 384));
  Case transposed{"transposed 2x2/2 256x36x36",
                  OpCode::kConvTranspose2d,
                  {random_array(DType::kF32, {1, 256, 36, 36}), random_array(DType::kF32, {256, 128, 2, 2})},
                  {list({2, 2}), list({0, 0}), list({1, 1}), list({0, 0}), number(1)},
                  2.0 * 36 * 36 * 256 * 128 * 4};
  transposed.constant_weight = true;
  all.push_back(transposed);
  const DType f32 = DType::kF32;
  all.push_back({"softmax 12x197x197", OpCode::kSoftmax, {random_array(f32, {12, 197, 197})}, {number(-1)}});
  all.push_back({"softmax 8x4096x77", OpCode::kSoftmax, {random_array(f32, {8, 4096, 77})}, {number(-1)}});
  all.push_back({"mean 1x4096x320 of tokens", OpCode::kReduceMean, {random_array(f32, {1, 4096, 320})}, {list({1})}});
  all.push_back({"mean 32x40960 of groups", OpCode::kReduceMean, {random_array(f32, {32, 40960})}, {list({1})}});
  all.push_back({"transpose 4096x320", OpCode::kTranspose, {random_array(f32, {1, 4096, 320})}, {list({0, 2, 1})}});
  all.push_back(
      {"transpose heads 197x12x64", OpCode::kTranspose, {random_array(f32, {8, 197, 12, 64})}, {list({0, 2, 1, 3})}});
  Case concat{"concat 320+320x64x64",
              OpCode::kConcat,
              {random_array(f32, {1, 320, 64, 64}), random_array(f32, {1, 320, 64, 64})},
              {number(1)}};
  concat.known_first = true;
  all.push_back(concat);
  all.push_back({"pad 320x64x64 by 1",
                 OpCode::kPad,
                 {random_array(f32, {1, 320, 64, 64})},
                 {list({0, 0, 0, 0, 1, 1, 1, 1}), random_array(f32, Shape{})}});
  return all;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const ir::Op& make_op(ir::Module& module, const Case& c, const std::vector<NDArray>& inputs) {
  ir::Builder builder(module);
  ir::GraphSpec spec;
  spec.name = "main";
  for (const NDArray& x : inputs) {
    spec.inputs.push_back(
        {"x" + std::to_string(spec.inputs.size()), module.context().tensor_type(x.dtype(), x.shape()), ""});
  }
  const DType dtype = c.data[0].dtype();
  const ir::TypeRef type = module.context().tensor_type(dtype, Shape{kDynamic});
  spec.outputs.push_back({"y", type, ""});
  const ir::Graph graph = builder.begin_graph(spec);
  const auto& arguments = graph.body().arguments;
  ir::Value* result = builder.op1(c.code, {arguments.begin(), arguments.end()}, type);
  builder.end_graph({result});
  return *result->op;
}

double worst_difference(const NDArray& a, const NDArray& b) {
  std::vector<double> x(static_cast<std::size_t>(a.element_count())), y(x.size());
  read_as_f64(a, x);
  read_as_f64(b, y);
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::fabs(y[i]));
    worst = std::max(worst, std::fabs(x[i] - y[i]));
  }
  return worst / std::max(largest, 1e-30);
}

bool run(const Case& c, ThreadPool& pool, bool reference) {
  std::vector<NDArray> inputs = c.data;
  inputs.insert(c.known_first ? inputs.begin() : inputs.end(), c.known.begin(), c.known.end());
  ir::Module module;
  const ir::Op& op = make_op(module, c, inputs);
  compiler::GenericStep step;
  step.op = &op;
  std::vector<OpArray> in;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    compiler::GenericOperand operand;
    operand.dtype = inputs[i].dtype();
    operand.shape.resize(inputs[i].shape().rank());
    const bool known = c.known_first ? i < c.known.size() : i >= c.data.size();
    if (known || (i == 1 && c.constant_weight)) {
      operand.constant = inputs[i];
    } else {
      operand.buffer = 0;
    }
    if (!known) bytes += inputs[i].byte_size();
    step.inputs.push_back(std::move(operand));
    in.push_back({inputs[i].dtype(), inputs[i].shape(), inputs[i].mutable_bytes().data()});
  }
  double began = now();
  const NDArray wanted = reference_evaluator().evaluate(op, inputs)[0];
  const double reference_seconds = now() - began;
  NDArray result(wanted.dtype(), wanted.shape());
  bytes += result.byte_size();
  step.outputs.push_back({});
  step.outputs[0].dtype = result.dtype();
  step.outputs[0].shape.resize(result.shape().rank());
  const auto kernel = make_op_kernel(step, detect_isa());
  if (!kernel) return false;
  const OpArray out{result.dtype(), result.shape(), result.mutable_bytes().data()};
  OpProgram program;
  program.kernel = kernel.get();
  double best = 1e9, total = 0;
  for (int i = 0; i < 200 && (i < 3 || total < 1.0); ++i) {
    began = now();
    program.cut = kernel->bind(in, {&out, 1}, pool.threads());
    pool.run(program);
    const double seconds = now() - began;
    total += seconds;
    best = std::min(best, seconds);
  }
  const double error = worst_difference(result, wanted);
  std::string line = fmt::format(R"({{"case":"{}","threads":{},"ms":{:.3f},"gb_per_s":{:.1f})", c.name, pool.threads(),
                                 best * 1e3, static_cast<double>(bytes) / best * 1e-9);
  if (c.operations > 0) line += fmt::format(R"(,"gflops":{:.1f})", c.operations / best * 1e-9);
  if (reference) line += fmt::format(R"(,"reference_ms":{:.1f})", reference_seconds * 1e3);
  fmt::print("{},\"error\":{:.1e}}}\n", line, error);
  std::fflush(stdout);
  return error < (result.dtype() == DType::kF32 ? 2e-5 : 2e-3);
}

}  // namespace

int bench(int argc, char** argv) {
  int threads = 2;
  bool reference = true, right = true;
  std::string wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--threads" && i + 1 < argc) threads = std::atoi(argv[++i]);
    if (argument == "--case" && i + 1 < argc) wanted = argv[++i];
    if (argument == "--no-reference") reference = false;
  }
  ThreadPool pool(threads);
  for (const Case& c : cases()) {
    if (c.name.find(wanted) == std::string::npos) continue;
    if (run(c, pool, reference)) continue;
    right = false;
    fmt::print(stderr, "{}: wrong or without a kernel\n", c.name);
  }
  return right ? 0 : 1;
}

}  // namespace coreai::cpu

int main(int argc, char** argv) {
  return coreai::cpu::bench(argc, argv);
}
