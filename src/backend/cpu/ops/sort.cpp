// sort and argsort along any axis. Equal elements keep their order in both directions, NaN comes last.
#include <algorithm>
#include <cstring>

#include "backend/cpu/ops/op_arguments.h"
#include "backend/cpu/row_kernels.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

bool is_sorted_type(DType d) {
  return is_wide_float(d) || d == DType::kSI32;
}

class SortKernel final : public OpKernel {
 public:
  SortKernel(const compiler::GenericStep& step, Isa isa)
      : where_(step.op->info().text_name), rows_(row_kernels(isa)), indices_(step.op->code == OpCode::kArgsort) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = out[0];
    const Shape& x = x_.shape;
    const std::size_t axis = wrapped_axis(read_int(in[1], where_), x.rank(), where_);
    descending_ = read_int(in[2], where_) != 0;
    check_result(y_, x, where_);
    n_ = x[axis];
    inner_ = extent_product(x, axis + 1, x.rank());
    items_ = cut_items(n_ > 0 ? x.element_count() / n_ : 0, n_ * kWork, threads);
    // The elements of a row, widened, then its keys.
    return {items_.chunks(), row_bytes() + static_cast<std::size_t>(n_) * sizeof(Key)};
  }

  void compute(int chunk, const Worker& worker) const override {
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) sort_row(i, worker.scratch);
  }

 private:
  static constexpr std::int64_t kWork = 16;  // per element, about log2 of its row's length and a miss

  struct Key {
    float value;
    std::int32_t number;  // of an integer element: its value
    std::uint32_t index;
  };

  std::size_t row_bytes() const { return (static_cast<std::size_t>(n_) * sizeof(float) + 63) / 64 * 64; }

  void sort_row(std::int64_t row, std::byte* scratch) const {
    const std::int64_t width = element_bytes(x_.dtype);
    const std::int64_t base = row / inner_ * n_ * inner_ + row % inner_;
    auto* keys = reinterpret_cast<Key*>(scratch + row_bytes());
    const auto from = [&](std::int64_t k) { return x_.data + (base + k * inner_) * width; };
    for (std::int64_t k = 0; k < n_; ++k) {
      Key key{0, 0, static_cast<std::uint32_t>(k)};
      if (x_.dtype == DType::kSI32) {
        std::memcpy(&key.number, from(k), sizeof key.number);
      } else if (x_.dtype == DType::kF32) {
        std::memcpy(&key.value, from(k), sizeof key.value);
      } else {
        rows_.to_f32(x_.dtype, from(k), &key.value, 1);
      }
      keys[k] = key;
    }
    // Indices break ties, so that no two keys are equal and the order is stable.
    std::sort(keys, keys + n_, [this](const Key& a, const Key& b) {
      const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
      if (a_nan != b_nan) return b_nan;
      if (!a_nan && a.value != b.value) return descending_ ? a.value > b.value : a.value < b.value;
      if (a.number != b.number) return descending_ ? a.number > b.number : a.number < b.number;
      return a.index < b.index;
    });
    const std::int64_t out_width = element_bytes(y_.dtype);
    for (std::int64_t k = 0; k < n_; ++k) {
      std::byte* to = y_.data + (base + k * inner_) * out_width;
      const void* element = indices_ ? static_cast<const void*>(&keys[k].index) : from(keys[k].index);
      std::memcpy(to, element, static_cast<std::size_t>(out_width));
    }
  }

  std::string_view where_;
  const RowKernels& rows_;
  bool indices_ = false, descending_ = false;
  OpArray x_, y_;
  std::int64_t n_ = 0, inner_ = 1;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_sort(const compiler::GenericStep& step, Isa isa) {
  const OpCode code = step.op->code;
  if ((code != OpCode::kSort && code != OpCode::kArgsort) || !known_operands(step, 1, 3)) return nullptr;
  const DType in = step.inputs[0].dtype, out = step.outputs[0].dtype;
  const bool fits = code == OpCode::kSort ? out == in : out == DType::kSI32 || out == DType::kUI32;
  return is_sorted_type(in) && fits ? std::make_unique<SortKernel>(step, isa) : nullptr;
}

}  // namespace coreai::cpu
