// gather_nd, gather_along_axis and rows of a table. Every index is checked before it is used: one outside [-extent,
// extent) is a ShapeError.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/ops/op_arguments.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

constexpr std::size_t kMostRank = 8;

bool is_index_type(DType d) {
  return d == DType::kSI32 || d == DType::kUI32 || d == DType::kSI64;
}

std::int64_t index_at(const OpArray& indices, std::int64_t i) {
  const std::byte* data = indices.data + i * element_bytes(indices.dtype);
  if (indices.dtype == DType::kSI64) {
    std::int64_t value;
    std::memcpy(&value, data, sizeof value);
    return value;
  }
  std::uint32_t value;
  std::memcpy(&value, data, sizeof value);
  return indices.dtype == DType::kUI32 ? static_cast<std::int64_t>(value) : static_cast<std::int32_t>(value);
}

std::int64_t wrapped_index(std::int64_t index, std::int64_t extent, std::string_view where) {
  if (index < -extent || index >= extent)
    shape_error(where, fmt::format("index {} is outside a dimension of {}", index, extent));
  return index < 0 ? index + extent : index;
}

class GatherNdKernel final : public OpKernel {
 public:
  explicit GatherNdKernel(const compiler::GenericStep& step) : where_(step.op->info().text_name) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], indices_ = in[1], y_ = out[0];
    const Shape &x = x_.shape, &at = indices_.shape;
    if (at.rank() == 0) shape_error(where_, "indices need at least one axis");
    if (at[at.rank() - 1] > static_cast<std::int64_t>(x.rank()))
      shape_error(where_, "the indices are deeper than the tensor");
    depth_ = static_cast<std::size_t>(at[at.rank() - 1]);
    block_ = extent_product(x, depth_, x.rank());
    const std::int64_t count = extent_product(at, 0, at.rank() - 1);
    bool fits = y_.shape.rank() == at.rank() - 1 + x.rank() - depth_;
    for (std::size_t d = 0; fits && d < y_.shape.rank(); ++d)
      fits = y_.shape[d] == (d + 1 < at.rank() ? at[d] : x[d + 1 - at.rank() + depth_]);
    if (!fits) {
      shape_error(where_,
                  fmt::format("[{}] at [{}] gives no [{}]", x.to_string(), at.to_string(), y_.shape.to_string()));
    }
    items_ = cut_items(count, block_ + 8, threads);  // finding a block costs as much as moving a few elements
    return {items_.chunks(), 0};
  }

  void compute(int chunk, const Worker&) const override {
    const std::int64_t width = element_bytes(x_.dtype), bytes = block_ * width;
    const auto depth = static_cast<std::int64_t>(depth_);
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < depth_; ++d) {
        const std::int64_t index = index_at(indices_, i * depth + static_cast<std::int64_t>(d));
        at = at * x_.shape[d] + wrapped_index(index, x_.shape[d], where_);
      }
      if (bytes > 0) std::memcpy(y_.data + i * bytes, x_.data + at * bytes, static_cast<std::size_t>(bytes));
    }
  }

 private:
  std::string_view where_;
  OpArray x_, indices_, y_;
  std::size_t depth_ = 0;
  std::int64_t block_ = 1;
  ItemCut items_;
};

class GatherRowsKernel final : public OpKernel {
 public:
  GatherRowsKernel(const compiler::GatherRowsStep& step, Isa isa) : scale_(step.scale), rows_(row_kernels(isa)) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    table_ = in[0], ids_ = in[1], y_ = out[0];
    const Shape &table = table_.shape, &ids = ids_.shape;
    std::vector<std::int64_t> wanted(ids.begin(), ids.end());
    wanted.insert(wanted.end(), table.begin() + 1, table.end());
    check_result(y_, Shape(wanted), kWhere);
    width_ = extent_product(table, 1, table.rank());
    items_ = cut_items(ids.element_count(), width_ + 8, threads);
    return {items_.chunks(), static_cast<std::size_t>(scale_ ? width_ : 0) * sizeof(float)};
  }

  void compute(int chunk, const Worker& worker) const override {
    const std::int64_t from_bytes = width_ * element_bytes(table_.dtype), to_bytes = width_ * element_bytes(y_.dtype);
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      const std::int64_t row = wrapped_index(integer_at(ids_, i, kWhere), table_.shape[0], kWhere);
      const std::byte* from = table_.data + row * from_bytes;
      std::byte* to = y_.data + i * to_bytes;
      if (scale_) {
        scaled(from, reinterpret_cast<float*>(worker.scratch), to);
      } else if (to_bytes > 0) {
        std::memcpy(to, from, static_cast<std::size_t>(to_bytes));
      }
    }
  }

 private:
  static constexpr std::string_view kWhere = "gather_rows";

  void scaled(const std::byte* from, float* wide, std::byte* to) const {
    if (table_.dtype == DType::kSI8) {
      const auto* data = reinterpret_cast<const std::int8_t*>(from);
      for (std::int64_t i = 0; i < width_; ++i) wide[i] = *scale_ * static_cast<float>(data[i]);
    } else {
      const auto* data = reinterpret_cast<const std::uint8_t*>(from);
      for (std::int64_t i = 0; i < width_; ++i) wide[i] = *scale_ * static_cast<float>(data[i]);
    }
    rows_.from_f32(y_.dtype, wide, to, width_);
  }

  std::optional<float> scale_;
  const RowKernels& rows_;
  OpArray table_, ids_, y_;
  std::int64_t width_ = 0;
  ItemCut items_;
};

class GatherAlongAxisKernel final : public OpKernel {
 public:
  explicit GatherAlongAxisKernel(const compiler::GenericStep& step) : where_(step.op->info().text_name) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    x_ = in[0], indices_ = in[1], y_ = out[0];
    const Shape &x = x_.shape, &at = indices_.shape;
    const std::size_t rank = x.rank();
    axis_ = wrapped_axis(read_int(in[2], where_), rank, where_);
    if (at.rank() != rank) shape_error(where_, "indices and tensor differ in rank");
    for (std::size_t d = 0; d < rank; ++d) {
      if (d != axis_ && at[d] > x[d]) shape_error(where_, "the indices reach beyond the tensor beside the axis");
    }
    check_result(y_, at, where_);
    std::int64_t stride = 1;
    for (std::size_t d = rank; d-- > 0; stride *= x[d]) strides_[d] = stride;
    row_ = at[rank - 1];
    items_ = cut_items(row_ > 0 ? at.element_count() / row_ : 0, row_, threads);
    return {items_.chunks(), 0};
  }

  void compute(int chunk, const Worker&) const override {
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      with_element(x_.dtype, [&]<typename T>(std::type_identity<T>) { row<T>(i); });
    }
  }

 private:
  template <typename T>
  void row(std::int64_t index) const {
    const std::size_t last = indices_.shape.rank() - 1;
    T* to = reinterpret_cast<T*>(y_.data) + index * row_;
    const std::int64_t first = index * row_, extent = x_.shape[axis_];
    std::int64_t base = 0;
    for (std::size_t d = last; d-- > 0; index /= indices_.shape[d]) {
      if (d != axis_) base += index % indices_.shape[d] * strides_[d];
    }
    const std::int64_t step = axis_ == last ? 0 : 1;
    for (std::int64_t i = 0; i < row_; ++i) {
      const std::int64_t at = wrapped_index(index_at(indices_, first + i), extent, where_);
      const std::int64_t from = base + i * step + at * strides_[axis_];
      std::memcpy(to + i, x_.data + from * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    }
  }

  std::string_view where_;
  OpArray x_, indices_, y_;
  std::size_t axis_ = 0;
  std::array<std::int64_t, kMostRank> strides_{};
  std::int64_t row_ = 1;
  ItemCut items_;
};

}  // namespace

std::unique_ptr<OpKernel> make_gather_rows(const compiler::GatherRowsStep& step, Isa isa) {
  return std::make_unique<GatherRowsKernel>(step, isa);
}

std::unique_ptr<OpKernel> make_gather(const compiler::GenericStep& step, Isa) {
  const OpCode code = step.op->code;
  if ((code != OpCode::kGatherNd && code != OpCode::kGatherAlongAxis) || step.inputs.size() < 2) return nullptr;
  const DType type = step.outputs[0].dtype;
  if (step.inputs[0].dtype != type || is_subbyte(type) || !is_index_type(step.inputs[1].dtype)) return nullptr;
  if (operand_rank(step, 0) > kMostRank || operand_rank(step, 1) > kMostRank) return nullptr;
  if (code == OpCode::kGatherNd) return std::make_unique<GatherNdKernel>(step);
  if (!known_operands(step, 2, 3) || dtype_bits(type) > 64 || operand_rank(step, 0) == 0) return nullptr;
  return std::make_unique<GatherAlongAxisKernel>(step);
}

}  // namespace coreai::cpu
