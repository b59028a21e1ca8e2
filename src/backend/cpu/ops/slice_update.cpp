// A copy of a tensor with a part replaced, row by row.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/ops/slices.h"

namespace coreai::cpu {
namespace {

constexpr std::size_t kMostRank = 8;

class SliceUpdateKernel final : public OpKernel {
 public:
  explicit SliceUpdateKernel(const compiler::GenericStep& step) : where_(step.op->info().text_name) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], update_ = in[4], y_ = out[0];
    const Shape& shape = x_.shape;
    ranges_ = slice_ranges(in, shape, where_);
    rank_ = shape.rank();
    Shape wanted = shape;
    for (std::size_t d = 0; d < rank_; ++d) wanted[d] = ranges_[d].size;
    if (!(update_.shape == wanted)) {
      shape_error(where_,
                  fmt::format("the slice is [{}], the update [{}]", wanted.to_string(), update_.shape.to_string()));
    }
    check_result(y_, shape, where_);
    row_ = rank_ > 0 ? shape[rank_ - 1] : 1;
    items_ = cut_items(row_ > 0 ? shape.element_count() / row_ : 0, row_, threads);
    return {items_.chunks(), 0};
  }

  void compute(int chunk, const Worker&) const override {
    const std::int64_t width = element_bytes(x_.dtype);
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      std::byte* to = y_.data + i * row_ * width;
      const std::int64_t update_row = row_of_update(i);
      const SliceRange& range = rank_ > 0 ? ranges_[rank_ - 1] : kWhole;
      if (update_row < 0 || range.size < row_)
        std::memcpy(to, x_.data + i * row_ * width, static_cast<std::size_t>(row_ * width));
      if (update_row < 0) continue;
      const std::byte* from = update_.data + update_row * range.size * width;
      if (range.step == 1) {
        std::memcpy(to + range.begin * width, from, static_cast<std::size_t>(range.size * width));
        continue;
      }
      for (std::int64_t k = 0; k < range.size; ++k) {
        std::memcpy(to + (range.begin + k * range.step) * width, from + k * width, static_cast<std::size_t>(width));
      }
    }
  }

 private:
  static constexpr SliceRange kWhole{0, 1, 1};

  // The row of the update that replaces (a part of) row `index`, -1 for none.
  std::int64_t row_of_update(std::int64_t index) const {
    std::int64_t row = 0, stride = 1;
    for (std::size_t d = rank_ > 0 ? rank_ - 1 : 0; d-- > 0; index /= x_.shape[d]) {
      const SliceRange& range = ranges_[d];
      const std::int64_t distance = index % x_.shape[d] - range.begin;
      if (distance % range.step != 0) return -1;
      const std::int64_t at = distance / range.step;
      if (at < 0 || at >= range.size) return -1;
      row += at * stride;
      stride *= range.size;
    }
    if (rank_ > 0 && ranges_[rank_ - 1].size == 0) return -1;
    return row;
  }

  std::string_view where_;
  OpArray x_, update_, y_;
  std::array<SliceRange, Ints::kMost> ranges_{};
  std::size_t rank_ = 0;
  std::int64_t row_ = 1;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_slice_update(const compiler::GenericStep& step, Isa) {
  if (step.op->code != ir::OpCode::kSliceUpdate || !known_operands(step, 1, 4) || step.inputs.size() < 5)
    return nullptr;
  const DType type = step.outputs[0].dtype;
  if (is_subbyte(type) || step.inputs[0].dtype != type || step.inputs[4].dtype != type ||
      operand_rank(step, 0) > kMostRank) {
    return nullptr;
  }
  return std::make_unique<SliceUpdateKernel>(step);
}

}  // namespace coreai::cpu
