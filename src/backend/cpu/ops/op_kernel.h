// Operations of the file that have a kernel of their own: threaded, on contiguous arrays whose extents are known when a
// call begins. What has none goes to the evaluator (coreai/compiler/op_evaluator.h), whose results these must match:
// the same rules, sums in another order.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/cpu/isa.h"
#include "coreai/base/ndarray.h"
#include "coreai/base/thread_pool.h"
#include "coreai/compiler/plan.h"

namespace coreai::cpu {

// An operand or a result: row-major. Operands that are constants or shape arithmetic hold their values when a kernel is
// bound; the others are written by earlier steps of the same call.
struct OpArray {
  DType dtype = DType::kF32;
  Shape shape;
  std::byte* data = nullptr;
  std::int64_t count() const { return shape.element_count(); }
};

// Belongs to one call: bind() and compute() alternate.
class OpKernel {
 public:
  struct Cut {
    int chunks = 0;  // 0..ThreadPool::kMaxChunks, any order, in parallel
    std::size_t scratch_bytes = 0;
  };
  virtual ~OpKernel() = default;

  // Takes the arrays of a call. Throws ShapeError when extents do not fit.
  virtual Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) = 0;
  virtual void compute(int chunk, const Worker& worker) const = 0;
};

// One bound kernel as a program of its own: how a kernel is run alone.
struct OpProgram final : StepProgram {
  const OpKernel* kernel = nullptr;
  OpKernel::Cut cut;
  int step_count() const override { return 1; }
  StepInfo step_info(int) const override { return {cut.chunks, false}; }
  std::size_t scratch_bytes() const override { return cut.scratch_bytes; }
  void compute(int, int chunk, const Worker& worker) override { kernel->compute(chunk, worker); }
  void publish(int, int, const Worker&) override {}
};

// The kernels of steps that stand for no single operation.
std::unique_ptr<OpKernel> make_average_pool(const compiler::AveragePoolStep& step, Isa isa);
std::unique_ptr<OpKernel> make_gather_rows(const compiler::GatherRowsStep& step, Isa isa);
// Null when the operation, its element types or operands that must be known beforehand have no kernel here.
std::unique_ptr<OpKernel> make_op_kernel(const compiler::GenericStep& step, Isa isa);

// One maker per file of this folder; each returns null for what it does not take.
std::unique_ptr<OpKernel> make_matmul(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_conv(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_softmax(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_reduce(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_movement(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_slice_update(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_pad(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_gather(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_sort(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_cast(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_pool(const compiler::GenericStep& step, Isa isa);
std::unique_ptr<OpKernel> make_interpolate(const compiler::GenericStep& step, Isa isa);

}  // namespace coreai::cpu
