// One operation by its kernel and by the evaluator: every level, several thread counts, every chunk once.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/kernel_test_support.h"
#include "backend/cpu/ops/op_kernel.h"
#include "backend/cpu/reference/evaluator.h"
#include "coreai/base/error.h"
#include "coreai/ir/builder.h"

namespace coreai::cpu::testing {

struct Operand {
  NDArray array;
  bool known = false;  // before the call: a constant of the plan
};

// Known lists and numbers: axes, strides, sizes.
inline Operand ints(const std::vector<std::int64_t>& values) {
  NDArray array(DType::kSI32, {static_cast<std::int64_t>(values.size())});
  write_from_f64(array, std::vector<double>(values.begin(), values.end()));
  return {array, true};
}
inline Operand scalar(std::int64_t value) {
  NDArray array(DType::kSI32, Shape{});
  write_from_f64(array, std::vector<double>{static_cast<double>(value)});
  return {array, true};
}

class OpCheck {
 public:
  OpCheck() : builder_(module_) {}

  NDArray random(DType dtype, const Shape& shape, float low = -1.0f, float high = 1.0f) {
    NDArray out(dtype, shape);
    const auto values = random_.values(static_cast<std::size_t>(shape.element_count()), low, high);
    write_from_f64(out, std::vector<double>(values.begin(), values.end()));
    return out;
  }

  // The results by the kernel, equal in every bit for 1, 2 and 3 threads, within `tolerance` of the evaluator's (a
  // share of the largest value) at every level. Fails when there is no kernel.
  void expect_agrees(ir::OpCode code, const std::vector<Operand>& operands, DType dtype, double tolerance,
                     std::vector<std::pair<std::string, ir::AttrRef>> attributes = {}, std::size_t results = 1) {
    std::string shapes;
    std::vector<NDArray> inputs;
    for (const Operand& o : operands) {
      inputs.push_back(o.array);
      shapes += "[" + o.array.shape().to_string() + "] ";
    }
    SCOPED_TRACE(std::string(ir::op_info(code).text_name) + " " + shapes + std::string(dtype_name(dtype)));
    const ir::Op& op = make(code, inputs, dtype, std::move(attributes), results);
    const std::vector<NDArray> wanted = reference_evaluator().evaluate(op, inputs);
    for (const Isa isa : levels()) {
      const auto one = run(op, operands, wanted, isa, 1);
      ASSERT_EQ(one.size(), wanted.size()) << "no kernel";
      for (const int threads : {2, 3}) {
        const auto more = run(op, operands, wanted, isa, threads);
        for (std::size_t i = 0; i < one.size(); ++i) {
          EXPECT_TRUE(std::equal(one[i].bytes().begin(), one[i].bytes().end(), more[i].bytes().begin()))
              << threads << " threads, " << isa_name(isa);
        }
      }
      for (std::size_t i = 0; i < one.size(); ++i) expect_close(one[i], wanted[i], tolerance, isa);
    }
  }

  // There is a kernel, and binding it throws a ShapeError at every level.
  void expect_refused(ir::OpCode code, const std::vector<Operand>& operands, const NDArray& result) {
    std::vector<NDArray> inputs;
    for (const Operand& o : operands) inputs.push_back(o.array);
    const ir::Op& op = make(code, inputs, result.dtype(), {});
    for (const Isa isa : levels()) {
      EXPECT_THROW(EXPECT_TRUE(run(op, operands, {result}, isa, 1).empty()), ShapeError) << isa_name(isa);
    }
  }

  bool has_kernel(ir::OpCode code, const std::vector<Operand>& operands, DType dtype,
                  std::vector<std::pair<std::string, ir::AttrRef>> attributes = {}) {
    std::vector<NDArray> inputs;
    for (const Operand& o : operands) inputs.push_back(o.array);
    const ir::Op& op = make(code, inputs, dtype, std::move(attributes));
    return make_op_kernel(step_of(op, operands, {NDArray(dtype, Shape{})}), Isa::kPortable) != nullptr;
  }

  ir::Module& module() { return module_; }

 private:
  const ir::Op& make(ir::OpCode code, const std::vector<NDArray>& inputs, DType dtype,
                     std::vector<std::pair<std::string, ir::AttrRef>> attributes, std::size_t results = 1) {
    ir::GraphSpec spec;
    spec.name = "g" + std::to_string(++graphs_);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      spec.inputs.push_back(
          {"x" + std::to_string(i), module_.context().tensor_type(inputs[i].dtype(), inputs[i].shape()), ""});
    }
    const ir::TypeRef type = module_.context().tensor_type(dtype, Shape{kDynamic});
    spec.outputs.push_back({"y", type, ""});
    const ir::Graph graph = builder_.begin_graph(spec);
    const auto& arguments = graph.body().arguments;
    const std::vector<ir::Value*> made = builder_.op(code, {arguments.begin(), arguments.end()},
                                                     std::vector<ir::TypeRef>(results, type), std::move(attributes));
    builder_.end_graph({made[0]});
    return *made[0]->op;
  }

  static compiler::GenericStep step_of(const ir::Op& op, const std::vector<Operand>& operands,
                                       const std::vector<NDArray>& results) {
    compiler::GenericStep step;
    step.op = &op;
    for (const Operand& o : operands) {
      compiler::GenericOperand operand;
      operand.dtype = o.array.dtype();
      operand.shape.resize(o.array.shape().rank());
      if (o.known) {
        operand.constant = o.array;
      } else {
        operand.buffer = 0;
      }
      step.inputs.push_back(std::move(operand));
    }
    for (const NDArray& r : results) {
      compiler::GenericOperand operand;
      operand.dtype = r.dtype();
      operand.buffer = 0;
      operand.shape.resize(r.shape().rank());
      step.outputs.push_back(std::move(operand));
    }
    return step;
  }

  static std::vector<NDArray> run(const ir::Op& op, const std::vector<Operand>& operands,
                                  const std::vector<NDArray>& wanted, Isa isa, int threads) {
    const auto kernel = make_op_kernel(step_of(op, operands, wanted), isa);
    if (!kernel) return {};
    std::vector<NDArray> results;
    std::vector<OpArray> in, out;
    for (const Operand& o : operands)
      in.push_back({o.array.dtype(), o.array.shape(), const_cast<std::byte*>(o.array.bytes().data())});
    for (const NDArray& w : wanted) {
      results.emplace_back(w.dtype(), w.shape());
      // Whatever was in the memory before must not matter.
      for (std::byte& b : results.back().mutable_bytes()) b = std::byte{0x7f};
      out.push_back({w.dtype(), w.shape(), results.back().mutable_bytes().data()});
    }
    OpProgram program;
    program.kernel = kernel.get();
    for (int repeat = 0; repeat < 2; ++repeat) {  // binding again must leave nothing behind
      program.cut = kernel->bind(in, out, threads);
      pool(threads).run(program);
    }
    return results;
  }

  static ThreadPool& pool(int threads) {
    static ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
    return pools[threads - 1];
  }

  static void expect_close(const NDArray& got, const NDArray& wanted, double tolerance, Isa isa) {
    std::vector<double> a(static_cast<std::size_t>(got.element_count())), b(a.size());
    read_as_f64(got, a);
    read_as_f64(wanted, b);
    double largest = 0, worst = 0;
    for (const double v : b) largest = std::isfinite(v) ? std::max(largest, std::fabs(v)) : largest;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
      if (a[i] == b[i]) continue;
      const double distance = std::fabs(a[i] - b[i]);
      worst = std::isfinite(distance) ? std::max(worst, distance) : INFINITY;
    }
    EXPECT_LE(worst, tolerance * largest) << isa_name(isa);
  }

  ir::Module module_;
  ir::Builder builder_;
  Random random_{7};
  int graphs_ = 0;
};

// Rounding of one f32 operation or sum, and of one result in a narrower type, as a share of the largest value.
inline double rounding(DType dtype) {
  if (dtype == DType::kF16) return 1e-3;
  if (dtype == DType::kBF16) return 8e-3;
  return 2e-6;
}

}  // namespace coreai::cpu::testing
