// Sums, means and extremes over any axes of f32, f16 and bf16, and the place of the greatest element along one.
#include <algorithm>
#include <array>
#include <limits>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/ops/op_arguments.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

constexpr std::size_t kMostRank = 8;
constexpr std::int64_t kColumns = 256;   // of one item, when the last axis stays
constexpr std::int64_t kWideRow = 4096;  // elements that are widened at a time
constexpr float kInfinite = std::numeric_limits<float>::infinity();

// Extents with neighbouring axes of one kind joined, the last one apart.
struct Axes {
  std::array<std::int64_t, kMostRank> extent{}, stride{};
  std::size_t count = 0;
  std::int64_t total = 1;

  void add(std::int64_t e, std::int64_t s) {
    total *= e;
    if (count > 0 && stride[count - 1] == e * s) {
      extent[count - 1] *= e, stride[count - 1] = s;
      return;
    }
    extent[count] = e, stride[count] = s, ++count;
  }
  std::int64_t offset(std::int64_t index) const {
    std::int64_t at = 0;
    for (std::size_t i = count; i-- > 0; index /= extent[i]) at += index % extent[i] * stride[i];
    return at;
  }
};

class ReduceKernel final : public OpKernel {
 public:
  ReduceKernel(const compiler::GenericStep& step, Isa isa)
      : code_(step.op->code),
        where_(step.op->info().text_name),
        rows_(row_kernels(isa)),
        kernels_(kernel_tables(isa).reduce) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = out[0];
    const Shape& shape = x_.shape;
    std::array<bool, kMostRank> reduced{};
    Shape wanted = shape;
    const Ints axes = read_ints(in[1], where_);
    for (const std::int64_t a : axes.span()) {
      const std::size_t axis = wrapped_axis(a, shape.rank(), where_);
      if (std::exchange(reduced[axis], true)) shape_error(where_, "an axis occurs twice");
      wanted[axis] = 1;
    }
    check_result(y_, wanted, where_);
    split_axes(shape, reduced);
    elements_ = folded_.total * run_;
    blocks_ = columns_mode_ ? (columns_ + kColumns - 1) / kColumns : 1;
    const std::int64_t width = columns_mode_ ? std::min(columns_, kColumns) : 1;
    items_ = cut_items(kept_.total * blocks_, std::max<std::int64_t>(elements_, 1) * width, threads);
    std::size_t floats = 0;
    if (columns_mode_) floats = kColumns * 3;  // f64 totals and f32 folds
    if (x_.dtype != DType::kF32)
      floats += static_cast<std::size_t>(columns_mode_ ? ReduceKernels::kBlockRows * kColumns : kWideRow);
    return {items_.chunks(), floats * sizeof(float)};
  }

  void compute(int chunk, const Worker& worker) const override {
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      if (columns_mode_) {
        fold_columns(i, worker.scratch);
      } else {
        fold_row(i, reinterpret_cast<float*>(worker.scratch));
      }
    }
  }

 private:
  // The last axis that is longer than one decides: folded along its run, or column beside column.
  void split_axes(const Shape& shape, const std::array<bool, kMostRank>& reduced) {
    kept_ = folded_ = {};
    std::size_t last = shape.rank();
    while (last > 0 && shape[last - 1] == 1) --last;
    columns_mode_ = last > 0 && !reduced[last - 1];
    run_ = columns_ = 1;
    std::int64_t stride = 1;
    std::size_t end = last;
    while (end > 0 && reduced[end - 1] != columns_mode_) {
      (columns_mode_ ? columns_ : run_) *= shape[end - 1];
      stride *= shape[--end];
    }
    // A fold of columns takes the axes before them as rows.
    for (std::size_t i = 0; i < end; ++i) {
      (reduced[i] ? folded_ : kept_).add(shape[i], stride * extent_product(shape, i + 1, end));
    }
  }

  bool is_sum() const { return code_ == OpCode::kReduceSum || code_ == OpCode::kReduceMean; }
  bool is_max() const { return code_ == OpCode::kReduceMax; }
  float finished(double total) const {
    return static_cast<float>(code_ == OpCode::kReduceMean ? total / static_cast<double>(elements_) : total);
  }
  static float greater(bool max, float held, float x) {
    if (held != held || x != x) return held != held ? held : x;
    return (max ? x > held : x < held) ? x : held;
  }

  void fold_row(std::int64_t item, float* wide) const {
    const std::int64_t base = kept_.offset(item);
    double total = 0;
    float extreme = is_max() ? -kInfinite : kInfinite;
    const auto fold = [&](const float* x, std::int64_t n) {
      if (is_sum()) {
        total += kernels_.sum(x, n);
      } else {
        extreme = greater(is_max(), extreme, is_max() ? kernels_.max(x, n) : kernels_.min(x, n));
      }
    };
    for (std::int64_t f = 0; f < folded_.total && run_ > 0; ++f) {
      const std::int64_t at = base + folded_.offset(f);
      if (x_.dtype == DType::kF32) {
        fold(reinterpret_cast<const float*>(x_.data) + at, run_);
        continue;
      }
      for (std::int64_t i = 0; i < run_; i += kWideRow) {
        const std::int64_t n = std::min(kWideRow, run_ - i);
        rows_.to_f32(x_.dtype, x_.data + (at + i) * 2, wide, n);
        fold(wide, n);
      }
    }
    const float result = is_sum() ? finished(total) : extreme;
    rows_.from_f32(y_.dtype, &result, y_.data + item * element_bytes(y_.dtype), 1);
  }

  void fold_columns(std::int64_t item, std::byte* scratch) const {
    auto* totals = reinterpret_cast<double*>(scratch);
    auto* folds = reinterpret_cast<float*>(totals + kColumns);
    float* wide = folds + kColumns;
    const std::int64_t first = item % blocks_ * kColumns, kept = item / blocks_;
    const std::int64_t columns = std::min(kColumns, columns_ - first), base = kept_.offset(kept) + first;
    std::fill_n(totals, columns, 0.0);
    std::fill_n(folds, columns, is_max() ? -kInfinite : kInfinite);
    // Rows along the innermost folded axis.
    const std::int64_t rows = folded_.count ? folded_.extent[folded_.count - 1] : 1;
    const std::int64_t stride = folded_.count ? folded_.stride[folded_.count - 1] : 0;
    for (std::int64_t f = 0; f < folded_.total; f += rows) {
      const std::int64_t at = base + folded_.offset(f);
      for (std::int64_t r = 0; r < rows; r += ReduceKernels::kBlockRows) {
        const std::int64_t n = std::min(ReduceKernels::kBlockRows, rows - r);
        fold_block(at + r * stride, stride, n, columns, totals, folds, wide);
      }
    }
    if (is_sum()) std::transform(totals, totals + columns, folds, [&](double t) { return finished(t); });
    rows_.from_f32(y_.dtype, folds, y_.data + (kept * columns_ + first) * element_bytes(y_.dtype), columns);
  }

  void fold_block(std::int64_t at, std::int64_t stride, std::int64_t rows, std::int64_t columns, double* totals,
                  float* folds, float* wide) const {
    const float* x = reinterpret_cast<const float*>(x_.data) + at;
    if (x_.dtype != DType::kF32) {
      for (std::int64_t r = 0; r < rows; ++r)
        rows_.to_f32(x_.dtype, x_.data + (at + r * stride) * 2, wide + r * kColumns, columns);
      x = wide, stride = kColumns;
    }
    if (is_sum()) return kernels_.sum_columns(x, stride, rows, columns, totals);
    (is_max() ? kernels_.max_columns : kernels_.min_columns)(x, stride, rows, columns, folds);
  }

  OpCode code_;
  std::string_view where_;
  const RowKernels& rows_;
  const ReduceKernels& kernels_;
  OpArray x_, y_;
  Axes kept_, folded_;
  bool columns_mode_ = false;
  std::int64_t run_ = 1, columns_ = 1, blocks_ = 1, elements_ = 1;
  ItemCut items_;
};

class ArgmaxKernel final : public OpKernel {
 public:
  ArgmaxKernel(const compiler::GenericStep& step, Isa isa)
      : where_(step.op->info().text_name), rows_(row_kernels(isa)) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = out[0];
    const std::size_t axis = wrapped_axis(read_int(in[1], where_), x_.shape.rank(), where_);
    n_ = x_.shape[axis];
    if (n_ == 0) shape_error(where_, "there is no greatest element along an empty dimension");
    Shape wanted = x_.shape;
    wanted[axis] = 1;
    check_result(y_, wanted, where_);
    inner_ = extent_product(x_.shape, axis + 1, x_.shape.rank());
    items_ = cut_items(extent_product(x_.shape, 0, axis) * inner_, n_ * (inner_ == 1 ? 1 : 4), threads);
    return {items_.chunks(), static_cast<std::size_t>(n_) * sizeof(float)};
  }

  void compute(int chunk, const Worker& worker) const override {
    auto* row = reinterpret_cast<float*>(worker.scratch);
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      const std::int64_t at = i / inner_ * n_ * inner_ + i % inner_;
      const float* values = reinterpret_cast<const float*>(x_.data) + at;
      if (x_.dtype != DType::kF32 || inner_ != 1) {
        collect(at, row);
        values = row;
      }
      const std::int64_t best = rows_.argmax(values, n_);
      if (y_.dtype == DType::kSI64) {
        reinterpret_cast<std::int64_t*>(y_.data)[i] = best;
      } else {
        reinterpret_cast<std::uint32_t*>(y_.data)[i] = static_cast<std::uint32_t>(best);
      }
    }
  }

 private:
  void collect(std::int64_t at, float* row) const {
    const std::int64_t width = element_bytes(x_.dtype);
    if (inner_ == 1) return rows_.to_f32(x_.dtype, x_.data + at * width, row, n_);
    for (std::int64_t k = 0; k < n_; ++k) rows_.to_f32(x_.dtype, x_.data + (at + k * inner_) * width, row + k, 1);
  }

  std::string_view where_;
  const RowKernels& rows_;
  OpArray x_, y_;
  std::int64_t n_ = 1, inner_ = 1;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_reduce(const compiler::GenericStep& step, Isa isa) {
  const OpCode code = step.op->code;
  const bool argmax = code == OpCode::kArgmax;
  if (!argmax && code != OpCode::kReduceSum && code != OpCode::kReduceMean && code != OpCode::kReduceMax &&
      code != OpCode::kReduceMin) {
    return nullptr;
  }
  if (!known_operands(step, 1, 2) || operand_rank(step, 0) > kMostRank) return nullptr;
  const DType type = step.inputs[0].dtype, result = step.outputs[0].dtype;
  if (!is_wide_float(type)) return nullptr;
  if (argmax) {
    if (result != DType::kUI32 && result != DType::kSI32 && result != DType::kSI64) return nullptr;
    return std::make_unique<ArgmaxKernel>(step, isa);
  }
  return result == type ? std::make_unique<ReduceKernel>(step, isa) : nullptr;
}

}  // namespace coreai::cpu
