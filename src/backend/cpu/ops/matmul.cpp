// batch_matmul with numpy broadcasting of the batch axes, for f32, f16 and bf16 (sums in f32, rounded once).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "backend/cpu/gemm.h"
#include "backend/cpu/ops/op_arguments.h"
#include "backend/cpu/row_kernels.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

// Panels of a row-major matrix [k, n].
class MatrixPanels final : public PanelSource {
 public:
  MatrixPanels(const RowKernels& kernels, DType dtype, const std::byte* data, std::int64_t n)
      : kernels_(kernels), dtype_(dtype), data_(data), n_(n) {}

  void pack(std::int64_t k_begin, std::int64_t depth, std::int64_t n_begin, std::int64_t n, std::int64_t panel,
            float* panels) const override {
    const std::int64_t width = dtype_bits(dtype_) / 8;
    for (std::int64_t j = 0; j < n; j += panel, panels += depth * panel) {
      const std::int64_t count = std::min(panel, n - j);
      const std::byte* from = data_ + (k_begin * n_ + n_begin + j) * width;
      for (std::int64_t k = 0; k < depth; ++k, from += n_ * width) {
        float* row = panels + k * panel;
        if (dtype_ == DType::kF32) {
          std::copy_n(reinterpret_cast<const float*>(from), count, row);
        } else {
          kernels_.to_f32(dtype_, from, row, count);
        }
        std::fill(row + count, row + panel, 0.0f);
      }
    }
  }

 private:
  const RowKernels& kernels_;
  DType dtype_;
  const std::byte* data_;
  std::int64_t n_;
};

class MatmulKernel final : public OpKernel {
 public:
  explicit MatmulKernel(Isa isa) : rows_(row_kernels(isa)), gemm_(gemm_kernels(isa)) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = in[1], out_ = out[0];
    const Shape &x = x_.shape, &y = y_.shape, &z = out_.shape;
    const std::size_t rank = z.rank();
    if (x.rank() < 2 || y.rank() < 2 || rank != std::max(x.rank(), y.rank()) || x[x.rank() - 1] != y[y.rank() - 2] ||
        rank - 2 > kMaxBatchAxes) {
      throw ShapeError(fmt::format("[{}] and [{}] have no product [{}]", x.to_string(), y.to_string(), z.to_string()),
                       "batch_matmul");
    }
    const std::int64_t m = x[x.rank() - 2], k = x[x.rank() - 1], n = y[y.rank() - 1];
    matrices_ = 1;
    for (std::size_t i = 0; i + 2 < rank; ++i) matrices_ *= z[i];
    bind_batch(x, y, z);
    // A right matrix that all share: the batch is more rows of one product.
    const bool one = std::all_of(y_strides_.begin(), y_strides_.begin() + batch_axes_, [](auto s) { return s == 0; });
    const bool dense = x.element_count() == matrices_ * m * k;
    merged_ = one && dense && matrices_ > 1;
    cut_ = cut_gemm(merged_ ? m * matrices_ : m, k, n, matrices_ > 1 && !merged_ ? 1 : threads);
    if (merged_) matrices_ = 1;
    const std::int64_t each = cut_.chunks(), most = ThreadPool::kMaxChunks;
    items_ = matrices_ * each;
    items_per_chunk_ = std::max<std::int64_t>((items_ + most - 1) / most, 1);
    // Small matrices: several a chunk, so that one is worth taking.
    const std::int64_t work = std::max<std::int64_t>(2 * m * k * n / std::max<std::int64_t>(each, 1), 1);
    items_per_chunk_ = std::max(items_per_chunk_, std::min(kLeastWork / work, items_ / (4 * threads)));
    const std::size_t rows = static_cast<std::size_t>(cut_.rows_per_chunk);
    a_floats_ = x_.dtype == DType::kF32 ? 0 : rows * static_cast<std::size_t>(k);
    c_floats_ = out_.dtype == DType::kF32 ? 0 : rows * static_cast<std::size_t>(cut_.columns_per_chunk);
    const auto line = [](std::size_t floats) { return (floats * sizeof(float) + 63) / 64 * 64; };
    a_floats_ = line(a_floats_) / sizeof(float), c_floats_ = line(c_floats_) / sizeof(float);
    const std::size_t scratch = line(cut_.scratch_bytes() / sizeof(float)) + (a_floats_ + c_floats_) * sizeof(float);
    return {static_cast<int>((items_ + items_per_chunk_ - 1) / items_per_chunk_), scratch};
  }

  void compute(int chunk, const Worker& worker) const override {
    const std::int64_t begin = chunk * items_per_chunk_, end = std::min(begin + items_per_chunk_, items_);
    for (std::int64_t item = begin; item < end; ++item) {
      multiply(item / cut_.chunks(), item % cut_.chunks(), worker.scratch);
    }
  }

 private:
  static constexpr std::size_t kMaxBatchAxes = 6;
  static constexpr std::int64_t kLeastWork = 1 << 18;  // floating-point operations of a chunk, about 10 us

  void bind_batch(const Shape& x, const Shape& y, const Shape& z) {
    batch_axes_ = static_cast<std::ptrdiff_t>(z.rank() - 2);
    for (const auto& [shape, strides] : {std::pair{&x, &x_strides_}, std::pair{&y, &y_strides_}}) {
      std::int64_t stride = 1;
      for (std::size_t i = z.rank() - 2; i-- > 0;) {
        const std::size_t missing = z.rank() - shape->rank();
        const std::int64_t extent = i < missing ? 1 : (*shape)[i - missing];
        if (extent != 1 && extent != z[i]) throw ShapeError("batch axes do not broadcast", "batch_matmul");
        (*strides)[i] = extent == 1 ? 0 : stride;
        stride *= extent;
      }
    }
    for (std::size_t i = 0; i + 2 < z.rank(); ++i) batch_[i] = z[i];
  }

  void multiply(std::int64_t matrix, std::int64_t part, std::byte* scratch) const {
    std::int64_t x_at = 0, y_at = 0, rest = matrix;
    for (std::ptrdiff_t i = batch_axes_; !merged_ && i-- > 0;) {
      const auto axis = static_cast<std::size_t>(i);
      x_at += rest % batch_[axis] * x_strides_[axis];
      y_at += rest % batch_[axis] * y_strides_[axis];
      rest /= batch_[axis];
    }
    const std::int64_t m = cut_.m, k = cut_.k, n = cut_.n;
    const std::int64_t width = dtype_bits(x_.dtype) / 8;
    const MatrixPanels panels(rows_, y_.dtype, y_.data + y_at * k * n * width, n);
    auto* a_copy = reinterpret_cast<float*>(scratch);
    float* c_copy = a_copy + a_floats_;
    auto* rest_of_scratch = reinterpret_cast<std::byte*>(c_copy + c_floats_);
    const std::byte* a = x_.data + x_at * m * k * width;
    std::byte* c = out_.data + matrix * m * n * (dtype_bits(out_.dtype) / 8);
    if (x_.dtype == DType::kF32) {
      return gemm_chunk(gemm_, cut_, part, reinterpret_cast<const float*>(a), k, panels, reinterpret_cast<float*>(c), n,
                        rest_of_scratch);
    }
    // Rows of A are widened and sums rounded once at the end.
    const std::int64_t row = part % cut_.row_chunks * cut_.rows_per_chunk;
    const std::int64_t column = part / cut_.row_chunks * cut_.columns_per_chunk;
    const std::int64_t rows = std::min(cut_.rows_per_chunk, m - row);
    const std::int64_t columns = std::min(cut_.columns_per_chunk, n - column);
    rows_.to_f32(x_.dtype, a + row * k * width, a_copy, rows * k);
    gemm_chunk(gemm_, cut_, part, a_copy - row * k, k, panels, c_copy - row * columns - column, columns,
               rest_of_scratch);
    for (std::int64_t r = 0; r < rows; ++r) {
      rows_.from_f32(out_.dtype, c_copy + r * columns, c + ((row + r) * n + column) * width, columns);
    }
  }

  const RowKernels& rows_;
  const GemmKernels& gemm_;
  OpArray x_, y_, out_;
  GemmCut cut_;
  bool merged_ = false;
  std::int64_t matrices_ = 1, items_ = 0, items_per_chunk_ = 1;
  std::size_t a_floats_ = 0, c_floats_ = 0;
  std::ptrdiff_t batch_axes_ = 0;
  std::array<std::int64_t, kMaxBatchAxes> batch_{}, x_strides_{}, y_strides_{};
};

}  // namespace

std::unique_ptr<OpKernel> make_matmul(const compiler::GenericStep& step, Isa isa) {
  if (step.op->code != OpCode::kBatchMatmul && step.op->code != OpCode::kBroadcastingBatchMatmul) return nullptr;
  const DType type = step.outputs[0].dtype;
  if (!is_wide_float(type) || step.inputs[0].dtype != type || step.inputs[1].dtype != type) return nullptr;
  return std::make_unique<MatmulKernel>(isa);
}

}  // namespace coreai::cpu
