// Padding of the five modes, row by row of the result.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/ops/op_arguments.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

constexpr std::size_t kMostRank = 8;

enum class PadMode : std::uint64_t { kCircular, kConstant, kReflect, kReplicate, kSymmetric };

class PadKernel final : public OpKernel {
 public:
  PadKernel(const compiler::GenericStep& step, PadMode mode) : where_(step.op->info().text_name), mode_(mode) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], y_ = out[0], value_ = in[2].data;
    const Ints padding = read_ints(in[1], where_);
    const std::size_t rank = x_.shape.rank();
    if (padding.size() != 2 * rank) shape_error(where_, "the padding needs two elements per axis");
    if (in[2].dtype != x_.dtype || in[2].count() != 1)
      shape_error(where_, "the padding value must be one element of the input's type");
    Shape wanted = x_.shape;
    before_ = {};
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t first = padding[2 * d], last = padding[2 * d + 1];
      if (first < 0 || last < 0 || first > kMost || last > kMost)
        shape_error(where_, fmt::format("a padding of {} and {}", first, last));
      wanted[d] += first + last;
      before_[d] = first;
    }
    check_result(y_, wanted, where_);
    rank_ = rank;
    check_reach();
    row_ = rank > 0 ? wanted[rank - 1] : 1;
    const std::int64_t rows = row_ > 0 ? wanted.element_count() / row_ : 0;
    items_ = cut_items(rows, row_, threads);
    return {items_.chunks(), 0};
  }

  void compute(int chunk, const Worker&) const override {
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      with_element(x_.dtype, [&]<typename T>(std::type_identity<T>) { row<T>(i); });
    }
  }

 private:
  static constexpr std::int64_t kMost = std::int64_t{1} << 40;

  // Every element of the result has a source, or the constant.
  void check_reach() const {
    if (mode_ == PadMode::kConstant) return;
    for (std::size_t d = 0; d < rank_; ++d) {
      const std::int64_t extent = x_.shape[d], after = y_.shape[d] - extent - before_[d];
      const std::int64_t reach = std::max(before_[d], after);
      if (reach == 0) continue;
      if (extent == 0) shape_error(where_, "an empty dimension has no elements to pad with");
      const std::int64_t most = mode_ == PadMode::kReplicate ? kMost : mode_ == PadMode::kReflect ? extent - 1 : extent;
      if (reach > most) shape_error(where_, "the padding is larger than the dimension allows");
    }
  }

  // Index in the input, -1 for the constant.
  std::int64_t source(std::int64_t at, std::size_t axis) const {
    const std::int64_t extent = x_.shape[axis];
    at -= before_[axis];
    if (at >= 0 && at < extent) return at;
    switch (mode_) {
      case PadMode::kConstant:
        return -1;
      case PadMode::kReplicate:
        return std::clamp<std::int64_t>(at, 0, extent - 1);
      case PadMode::kCircular:
        return at < 0 ? at + extent : at - extent;
      case PadMode::kReflect:
        return at < 0 ? -at : 2 * (extent - 1) - at;
      case PadMode::kSymmetric:
        return at < 0 ? -at - 1 : 2 * extent - 1 - at;
    }
    return -1;
  }

  template <typename T>
  void row(std::int64_t index) const {
    T* to = reinterpret_cast<T*>(y_.data) + index * row_;
    T constant{};
    std::memcpy(&constant, value_, sizeof(T));
    if (rank_ == 0) {
      std::memcpy(to, x_.data, sizeof(T));
      return;
    }
    std::int64_t from = 0, stride = 1;
    for (std::size_t d = rank_ - 1; d-- > 0; index /= y_.shape[d]) {
      stride *= x_.shape[d + 1];
      const std::int64_t at = source(index % y_.shape[d], d);
      if (at < 0) {
        std::fill_n(to, row_, constant);
        return;
      }
      from += at * stride;
    }
    const std::int64_t extent = x_.shape[rank_ - 1], before = before_[rank_ - 1];
    const std::byte* data = x_.data + from * static_cast<std::int64_t>(sizeof(T));
    const auto edge = [&](std::int64_t i) {
      const std::int64_t at = source(i, rank_ - 1);
      if (at < 0) return constant;
      T value;
      std::memcpy(&value, data + at * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      return value;
    };
    for (std::int64_t i = 0; i < before; ++i) to[i] = edge(i);
    if (extent > 0) std::memcpy(to + before, data, static_cast<std::size_t>(extent) * sizeof(T));
    for (std::int64_t i = before + extent; i < row_; ++i) to[i] = edge(i);
  }

  std::string_view where_;
  PadMode mode_;
  OpArray x_, y_;
  const std::byte* value_ = nullptr;
  std::size_t rank_ = 0;
  std::array<std::int64_t, kMostRank> before_{};
  std::int64_t row_ = 1;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_pad(const compiler::GenericStep& step, Isa) {
  if (step.op->code != ir::OpCode::kPad || !known_operands(step, 1, 2) || step.inputs.size() < 3) return nullptr;
  const DType type = step.outputs[0].dtype;
  const ir::AttrRef attribute = step.op->attribute("padding_mode");
  const std::uint64_t mode = attribute ? attribute->as_enum() : static_cast<std::uint64_t>(PadMode::kConstant);
  if (mode > static_cast<std::uint64_t>(PadMode::kSymmetric) || is_subbyte(type) || dtype_bits(type) > 64 ||
      step.inputs[0].dtype != type || operand_rank(step, 0) > kMostRank) {
    return nullptr;
  }
  return std::make_unique<PadKernel>(step, static_cast<PadMode>(mode));
}

}  // namespace coreai::cpu
