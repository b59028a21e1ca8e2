// Softmax along any axis, in f32 with one rounding of a narrower result.
#include <algorithm>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/ops/op_arguments.h"

namespace coreai::cpu {
namespace {

constexpr std::int64_t kColumns = 64;  // of one item, when the axis is not the last

class SoftmaxKernel final : public OpKernel {
 public:
  SoftmaxKernel(const compiler::GenericStep& step, Isa isa)
      : where_(step.op->info().text_name), rows_(row_kernels(isa)), kernels_(kernel_tables(isa).reduce) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = out[0];
    const Shape& shape = x_.shape;
    const std::size_t axis = wrapped_axis(read_int(in[1], where_), shape.rank(), where_);
    check_result(y_, shape, where_);
    n_ = shape[axis];
    inner_ = extent_product(shape, axis + 1, shape.rank());
    const std::int64_t outer = extent_product(shape, 0, axis);
    blocks_ = inner_ == 1 ? 1 : (inner_ + kColumns - 1) / kColumns;
    const std::int64_t width = inner_ == 1 ? 1 : std::min(inner_, kColumns);
    constexpr std::int64_t kOperations = 4;  // an exponential is worth a few moves
    items_ = cut_items(n_ == 0 ? 0 : outer * blocks_, n_ * width * kOperations, threads);
    const bool narrow = x_.dtype != DType::kF32;
    return {items_.chunks(), narrow ? static_cast<std::size_t>(n_ * width) * sizeof(float) : 0};
  }

  void compute(int chunk, const Worker& worker) const override {
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      const std::int64_t block = i % blocks_ * kColumns;
      const std::int64_t at = i / blocks_ * n_ * inner_ + block;
      const std::int64_t columns = std::min(kColumns, inner_ - block);
      if (x_.dtype == DType::kF32) {
        run(reinterpret_cast<const float*>(x_.data) + at, reinterpret_cast<float*>(y_.data) + at, inner_, columns);
        continue;
      }
      auto* wide = reinterpret_cast<float*>(worker.scratch);
      const std::int64_t rows = inner_ == 1 ? 1 : n_, width = inner_ == 1 ? n_ : columns;
      for (std::int64_t r = 0; r < rows; ++r)
        rows_.to_f32(x_.dtype, x_.data + (at + r * inner_) * 2, wide + r * width, width);
      run(wide, wide, columns, columns);
      for (std::int64_t r = 0; r < rows; ++r)
        rows_.from_f32(y_.dtype, wide + r * width, y_.data + (at + r * inner_) * 2, width);
    }
  }

 private:
  void run(const float* x, float* y, std::int64_t stride, std::int64_t columns) const {
    if (inner_ == 1) return kernels_.softmax(x, y, n_);
    kernels_.softmax_columns(x, y, stride, n_, columns);
  }

  std::string_view where_;
  const RowKernels& rows_;
  const ReduceKernels& kernels_;
  OpArray x_, y_;
  std::int64_t n_ = 0, inner_ = 1, blocks_ = 1;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_softmax(const compiler::GenericStep& step, Isa isa) {
  if (step.op->code != ir::OpCode::kSoftmax || !known_operands(step, 1, 2)) return nullptr;
  const DType type = step.outputs[0].dtype;
  if (!is_wide_float(type) || step.inputs[0].dtype != type) return nullptr;
  return std::make_unique<SoftmaxKernel>(step, isa);
}

}  // namespace coreai::cpu
