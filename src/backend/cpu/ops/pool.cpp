// Maximum, sum and average over windows of the last two or three axes: rows of a window are folded side by side, then
// their columns. The padding of an average is left out of the sums.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/ops/conv_shape.h"
#include "backend/cpu/ops/op_arguments.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

constexpr std::int64_t kBlock = ReduceKernels::kBlockRows;

class PoolKernel final : public OpKernel {
 public:
  PoolKernel(const compiler::GenericStep& step, Isa isa)
      : where_(step.op->info().text_name),
        rows_(row_kernels(isa)),
        kernels_(kernel_tables(isa).reduce),
        is_max_(step.op->code == OpCode::kMaxPool2d || step.op->code == OpCode::kMaxPool3d) {}
  PoolKernel(const compiler::AveragePoolStep& step, Isa isa)
      : where_("average_pool"), rows_(row_kernels(isa)), kernels_(kernel_tables(isa).reduce), average_(&step) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = out[0];
    const Shape& x = x_.shape;
    if (x.rank() != 4 && x.rank() != 5) shape_error(where_, "pooling takes rank 4 or 5");
    const std::size_t axes = x.rank() - 2;
    if (average_) {
      window_ = average_->window, stride_ = average_->stride, padding_ = average_->padding, dilation_ = {1, 1, 1};
    } else {
      window_ = triple(in[1], axes), stride_ = triple(in[2], axes), dilation_ = triple(in[3], axes);
    }
    in_ = axes == 2 ? Triple{1, x[2], x[3]} : Triple{x[2], x[3], x[4]};
    const bool up = is_max_ && read_int(in[4], where_) != 0;
    Shape wanted = x;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t reach = dilation_[i] * (window_[i] - 1) + 1;
      const std::int64_t extent = in_[i] + 2 * padding_[i];
      if (reach > extent) shape_error(where_, "the window is larger than the input");
      const std::int64_t free = extent - reach;
      out_[i] = (up ? (free + stride_[i] - 1) / stride_[i] : free / stride_[i]) + 1;
      if (i >= 3 - axes) wanted[2 + i - (3 - axes)] = out_[i];
    }
    check_result(y_, wanted, where_);
    const std::int64_t work = window_[0] * window_[1] * in_[2] + window_[2] * out_[2];
    items_ = cut_items(x[0] * x[1] * out_[0] * out_[1], work, threads);
    // Totals of a line, its folds, a line of results and widened rows.
    line_ = (in_[2] + 15) / 16 * 16;
    const std::int64_t wide = x_.dtype == DType::kF32 ? 0 : std::min(window_[1], kBlock) * in_[2];
    return {items_.chunks(), static_cast<std::size_t>(3 * line_ + (out_[2] + 15) / 16 * 16 + wide) * sizeof(float)};
  }

  void compute(int chunk, const Worker& worker) const override {
    auto* totals = reinterpret_cast<double*>(worker.scratch);
    auto* folds = reinterpret_cast<float*>(totals + line_);
    float* row = folds + line_;
    float* wide = row + (out_[2] + 15) / 16 * 16;
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      const std::int64_t h = i % out_[1], d = i / out_[1] % out_[0], plane = i / out_[1] / out_[0];
      std::fill_n(totals, in_[2], 0.0);
      std::fill_n(folds, in_[2], -kInfinite);
      fold_rows(plane, d * stride_[0] - padding_[0], h * stride_[1] - padding_[1], totals, folds, wide);
      float* to = y_.dtype == DType::kF32 ? reinterpret_cast<float*>(y_.data) + i * out_[2] : row;
      if (is_max_) {
        fold_columns(folds, to, [](float a, float b) { return a >= b || a != a ? a : b; }, -kInfinite, 1.0f);
      } else {
        fold_columns(totals, to, [](double a, double b) { return a + b; }, 0.0, average_ ? average_->divisor : 1.0);
      }
      if (to == row) rows_.from_f32(y_.dtype, row, y_.data + i * out_[2] * element_bytes(y_.dtype), out_[2]);
    }
  }

 private:
  static constexpr float kInfinite = std::numeric_limits<float>::infinity();

  Triple triple(const OpArray& array, std::size_t axes) const {
    const Ints values = read_ints(array, where_);
    if (values.size() != axes) shape_error(where_, fmt::format("{} values for {} axes", values.size(), axes));
    Triple result{1, 1, 1};
    for (std::size_t i = 0; i < axes; ++i) {
      if (values[i] < 1 || values[i] > (std::int64_t{1} << 31))
        shape_error(where_, fmt::format("a window, stride or dilation of {}", values[i]));
      result[3 - axes + i] = values[i];
    }
    return result;
  }

  // Rows of the window that begins at (d, h); those outside the input are left out.
  void fold_rows(std::int64_t plane, std::int64_t d, std::int64_t h, double* totals, float* folds, float* wide) const {
    const std::int64_t stride = dilation_[1] * in_[2], width = element_bytes(x_.dtype);
    const std::int64_t first = h < 0 ? (dilation_[1] - 1 - h) / dilation_[1] : 0;
    const std::int64_t rows = std::min(window_[1], h < in_[1] ? (in_[1] - 1 - h) / dilation_[1] + 1 : 0);
    for (std::int64_t k = 0; k < window_[0]; ++k) {
      const std::int64_t z = d + k * dilation_[0];
      if (z < 0) continue;
      if (z >= in_[0]) break;
      for (std::int64_t r = first; r < rows; r += kBlock) {
        const std::int64_t n = std::min(kBlock, rows - r);
        const std::int64_t at = ((plane * in_[0] + z) * in_[1] + h + r * dilation_[1]) * in_[2];
        const float* x = reinterpret_cast<const float*>(x_.data) + at;
        std::int64_t step = stride;
        if (x_.dtype != DType::kF32) {
          for (std::int64_t i = 0; i < n; ++i)
            rows_.to_f32(x_.dtype, x_.data + (at + i * stride) * width, wide + i * in_[2], in_[2]);
          x = wide, step = in_[2];
        }
        if (is_max_) {
          kernels_.max_columns(x, step, n, in_[2], folds);
        } else {
          kernels_.sum_columns(x, step, n, in_[2], totals);
        }
      }
    }
  }

  template <typename T, typename F>
  void fold_columns(const T* line, float* to, F f, T init, T divisor) const {
    for (std::int64_t i = 0; i < out_[2]; ++i) {
      T value = init;
      for (std::int64_t w = 0; w < window_[2]; ++w) {
        const std::int64_t at = i * stride_[2] - padding_[2] + w * dilation_[2];
        if (at < 0) continue;
        if (at >= in_[2]) break;
        value = f(value, line[at]);
      }
      to[i] = static_cast<float>(value / divisor);
    }
  }

  std::string_view where_;
  const RowKernels& rows_;
  const ReduceKernels& kernels_;
  bool is_max_ = false;
  const compiler::AveragePoolStep* average_ = nullptr;
  OpArray x_, y_;
  Triple in_{}, out_{}, window_{}, stride_{}, dilation_{}, padding_{};
  std::int64_t line_ = 0;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_pool(const compiler::GenericStep& step, Isa isa) {
  const OpCode code = step.op->code;
  const bool max = code == OpCode::kMaxPool2d || code == OpCode::kMaxPool3d;
  if (!max && code != OpCode::kSumPool2d && code != OpCode::kSumPool3d) return nullptr;
  const DType type = step.outputs[0].dtype;
  if (!is_wide_float(type) || step.inputs[0].dtype != type || !known_operands(step, 1, max ? 5 : 4)) return nullptr;
  return std::make_unique<PoolKernel>(step, isa);
}

std::unique_ptr<OpKernel> make_average_pool(const compiler::AveragePoolStep& step, Isa isa) {
  return std::make_unique<PoolKernel>(step, isa);
}

}  // namespace coreai::cpu
