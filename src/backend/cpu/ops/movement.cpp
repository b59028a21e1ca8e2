// Operations that copy elements of at least a byte by a rule that is known when the call begins: each result is a
// strided copy of the input, or one of several.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cpu/move.h"
#include "backend/cpu/ops/op_arguments.h"
#include "backend/cpu/ops/slices.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

constexpr std::size_t kMostRank = 8;
using Strides = std::array<std::int64_t, kMostRank>;

Strides strides_of(const Shape& shape) {
  Strides strides{};
  std::int64_t stride = 1;
  for (std::size_t d = shape.rank(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  return strides;
}

// One copy and where it begins.
struct Piece {
  Move move;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t first = 0;  // of its items
};

class MovementKernel final : public OpKernel {
 public:
  explicit MovementKernel(const compiler::GenericStep& step)
      : code_(step.op->code), where_(step.op->info().text_name) {}

  Cut bind(std::span<const OpArray> in, std::span<const OpArray> out, int threads) override {
    pieces_.clear();
    items_total_ = most_elements_ = 0;
    plan(in, out);
    items_ = cut_items(items_total_, most_elements_, threads);
    return {items_.chunks(), 0};
  }

  void compute(int chunk, const Worker&) const override {
    std::size_t p = 0;
    for (std::int64_t i = items_.begin(chunk); i < items_.end(chunk); ++i) {
      while (p + 1 < pieces_.size() && i >= pieces_[p + 1].first) ++p;
      pieces_[p].move.run(pieces_[p].in, pieces_[p].out, i - pieces_[p].first);
    }
  }

 private:
  void add(Move move, const std::byte* in, std::byte* out) {
    move.finish();
    pieces_.push_back({move, in, out, items_total_});
    items_total_ += move.items();
    most_elements_ = std::max(most_elements_, move.item_elements());
  }

  void plan(std::span<const OpArray> in, std::span<const OpArray> out) {
    switch (code_) {
      case OpCode::kTranspose:
        return transpose(in, out[0]);
      case OpCode::kSlice:
        return slice(in, out[0]);
      case OpCode::kConcat:
        return concat(in, out[0]);
      case OpCode::kSplit:
        return split(in, out);
      case OpCode::kBroadcastTo:
      case OpCode::kBroadcastInDims:
        return broadcast(in, out[0]);
      case OpCode::kTile:
      case OpCode::kTileV1:
        return tile(in, out[0]);
      case OpCode::kReverse:
        return reverse(in, out[0]);
      default:
        return same(in[0], out[0]);
    }
  }

  void reverse(std::span<const OpArray> in, const OpArray& y) {
    const OpArray& x = in[0];
    check_result(y, x.shape, where_);
    std::array<bool, kMostRank> backwards{};
    const Ints axes = read_ints(in[1], where_);
    for (const std::int64_t a : axes.span()) {
      const std::size_t axis = wrapped_axis(a, x.shape.rank(), where_);
      if (std::exchange(backwards[axis], true)) shape_error(where_, "an axis occurs twice");
    }
    const Strides strides = strides_of(x.shape);
    Move move(element_bytes(x.dtype));
    std::int64_t origin = 0;
    for (std::size_t d = 0; d < x.shape.rank(); ++d) {
      if (backwards[d]) origin += (x.shape[d] - 1) * strides[d];
      move.add_axis(x.shape[d], backwards[d] ? -strides[d] : strides[d], strides[d]);
    }
    if (x.count() > 0) add(move, x.data + origin * element_bytes(x.dtype), y.data);
  }

  // Elements in their order under other extents, which the compiler worked out.
  void same(const OpArray& x, const OpArray& y) {
    if (x.count() != y.count()) {
      shape_error(where_, fmt::format("[{}] has not the elements of [{}]", x.shape.to_string(), y.shape.to_string()));
    }
    Move move(element_bytes(x.dtype));
    move.add_axis(x.count(), 1, 1);
    add(move, x.data, y.data);
  }

  void transpose(std::span<const OpArray> in, const OpArray& y) {
    const OpArray& x = in[0];
    const std::size_t rank = x.shape.rank();
    const Ints order = read_ints(in[1], where_);
    if (order.size() != rank) shape_error(where_, "the permutation has another length than the rank");
    const Strides from = strides_of(x.shape);
    std::array<bool, kMostRank> seen{};
    std::array<std::size_t, kMostRank> axes{};
    Shape wanted = x.shape;
    for (std::size_t d = 0; d < rank; ++d) {
      axes[d] = wrapped_axis(order[d], rank, where_);
      if (std::exchange(seen[axes[d]], true)) shape_error(where_, "an axis occurs twice");
      wanted[d] = x.shape[axes[d]];
    }
    check_result(y, wanted, where_);
    const Strides to = strides_of(wanted);
    Move move(element_bytes(x.dtype));
    for (std::size_t d = 0; d < rank; ++d) move.add_axis(wanted[d], from[axes[d]], to[d]);
    add(move, x.data, y.data);
  }

  void slice(std::span<const OpArray> in, const OpArray& y) {
    const OpArray& x = in[0];
    const auto ranges = slice_ranges(in, x.shape, where_);
    const Strides from = strides_of(x.shape);
    Shape wanted = x.shape;
    std::int64_t origin = 0;
    for (std::size_t d = 0; d < wanted.rank(); ++d) {
      wanted[d] = ranges[d].size;
      origin += ranges[d].begin * from[d];
    }
    check_result(y, wanted, where_);
    const Strides to = strides_of(wanted);
    Move move(element_bytes(x.dtype));
    for (std::size_t d = 0; d < wanted.rank(); ++d) move.add_axis(wanted[d], from[d] * ranges[d].step, to[d]);
    if (wanted.element_count() > 0) add(move, x.data + origin * element_bytes(x.dtype), y.data);
  }

  void concat(std::span<const OpArray> in, const OpArray& y) {
    // Exporters build shapes from scalars and vectors of one element alike.
    const auto shape_of = [](const OpArray& x) { return x.shape.rank() == 0 ? Shape{1} : x.shape; };
    const Shape first = shape_of(in[1]);
    const std::size_t rank = first.rank(), axis = wrapped_axis(read_int(in[0], where_), rank, where_);
    Shape wanted = first;
    wanted[axis] = 0;
    for (const OpArray& x : in.subspan(1)) {
      const Shape shape = shape_of(x);
      bool fits = shape.rank() == rank && x.dtype == y.dtype;
      for (std::size_t d = 0; fits && d < rank; ++d) fits = d == axis || shape[d] == first[d];
      if (!fits) shape_error(where_, fmt::format("[{}] cannot join [{}]", shape.to_string(), first.to_string()));
      wanted[axis] += shape[axis];
    }
    check_result(y, wanted, where_);
    const std::int64_t outer = extent_product(wanted, 0, axis), row = extent_product(wanted, axis, rank);
    std::byte* to = y.data;
    for (const OpArray& x : in.subspan(1)) {
      const std::int64_t piece = extent_product(shape_of(x), axis, rank);
      Move move(element_bytes(y.dtype));
      move.add_axis(outer, piece, row);
      move.add_axis(piece, 1, 1);
      add(move, x.data, to);
      to += piece * element_bytes(y.dtype);
    }
  }

  void split(std::span<const OpArray> in, std::span<const OpArray> out) {
    const OpArray& x = in[0];
    const std::size_t rank = x.shape.rank(), axis = wrapped_axis(read_int(in[2], where_), rank, where_);
    const std::int64_t extent = x.shape[axis];
    const bool equal = in[1].shape.rank() == 0;  // one size for all, the last may be smaller
    const std::int64_t size = equal ? read_int(in[1], where_) : 0;
    const Ints sizes = equal ? Ints{} : read_ints(in[1], where_);
    if (equal && size <= 0) shape_error(where_, fmt::format("a split size is {}, it must be positive", size));
    const std::int64_t inner = extent_product(x.shape, axis + 1, rank), outer = extent_product(x.shape, 0, axis);
    if (!equal && sizes.size() != out.size()) shape_error(where_, "the number of sections is not that of the results");
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t part = equal ? std::min(size, extent - begin) : sizes[i];
      if (part < (equal ? 1 : 0) || part > extent - begin)
        shape_error(where_, fmt::format("a section of {} where {} of {} are left", part, extent - begin, extent));
      Shape wanted = x.shape;
      wanted[axis] = part;
      check_result(out[i], wanted, where_);
      Move move(element_bytes(x.dtype));
      move.add_axis(outer, extent * inner, part * inner);
      move.add_axis(part * inner, 1, 1);
      add(move, x.data + begin * inner * element_bytes(x.dtype), out[i].data);
      begin += part;
    }
    if (begin != extent) shape_error(where_, fmt::format("the sections add up to {} of {}", begin, extent));
  }

  // The result's shape comes from the operands; here it must fit the input.
  void broadcast(std::span<const OpArray> in, const OpArray& y) {
    const OpArray& x = in[0];
    check_result(y, code_ == OpCode::kBroadcastTo ? listed_shape(in[1]) : replaced_shape(in), where_);
    const std::size_t rank = y.shape.rank(), missing = rank - x.shape.rank();
    if (rank < x.shape.rank()) shape_error(where_, "a broadcast keeps every axis");
    const Strides from = strides_of(x.shape), to = strides_of(y.shape);
    Move move(element_bytes(x.dtype));
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t extent = d < missing ? 1 : x.shape[d - missing];
      if (extent != 1 && extent != y.shape[d]) {
        shape_error(where_, fmt::format("[{}] does not broadcast to [{}]", x.shape.to_string(), y.shape.to_string()));
      }
      move.add_axis(y.shape[d], extent == 1 ? 0 : from[d - missing], to[d]);
    }
    add(move, x.data, y.data);
  }

  Shape listed_shape(const OpArray& operand) const {
    const Ints dims = read_ints(operand, where_);
    return Shape(dims.span());
  }
  Shape replaced_shape(std::span<const OpArray> in) const {
    Shape shape = in[0].shape;
    const Ints sizes = read_ints(in[1], where_), axes = read_ints(in[2], where_);
    if (sizes.size() != axes.size()) shape_error(where_, "there must be one size per axis");
    std::array<bool, kMostRank> seen{};
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::size_t axis = wrapped_axis(axes[i], shape.rank(), where_);
      if (std::exchange(seen[axis], true)) shape_error(where_, "an axis occurs twice");
      shape[axis] = sizes[i];
    }
    return shape;
  }

  void tile(std::span<const OpArray> in, const OpArray& y) {
    const OpArray& x = in[0];
    const Ints repeats = read_ints(in[1], where_);
    const std::size_t rank = x.shape.rank();
    if (repeats.size() > rank) shape_error(where_, "there are more repetitions than axes");
    const std::size_t whole = rank - repeats.size();
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t repeat = d < whole ? 1 : repeats[d - whole];
      const bool fits =
          repeat == 0 || x.shape[d] == 0
              ? repeat >= 0 && y.shape.rank() == rank && y.shape[d] == 0
              : repeat > 0 && y.shape.rank() == rank && y.shape[d] / repeat == x.shape[d] && y.shape[d] % repeat == 0;
      if (!fits) shape_error(where_, fmt::format("{} repetitions of [{}]", repeat, x.shape.to_string()));
    }
    const Strides from = strides_of(x.shape), to = strides_of(y.shape);
    Move move(element_bytes(x.dtype));
    for (std::size_t d = 0; d < rank; ++d) {
      move.add_axis(d < whole ? 1 : repeats[d - whole], 0, x.shape[d] * to[d]);
      move.add_axis(x.shape[d], from[d], to[d]);
    }
    add(move, x.data, y.data);
  }

  OpCode code_;
  std::string_view where_;
  std::vector<Piece> pieces_;
  std::int64_t items_total_ = 0, most_elements_ = 0;
  ItemCut items_;
};

// Operands that must be known; the first and the last + 1.
std::pair<std::size_t, std::size_t> known_range(const compiler::GenericStep& step) {
  switch (step.op->code) {
    case OpCode::kSlice:
      return {1, 4};
    case OpCode::kConcat:
      return {0, 1};
    case OpCode::kSplit:
    case OpCode::kBroadcastInDims:
      return {1, 3};
    case OpCode::kTranspose:
    case OpCode::kReverse:
    case OpCode::kBroadcastTo:
    case OpCode::kTile:
    case OpCode::kTileV1:
      return {1, 2};
    default:
      return {0, 0};
  }
}

}  // namespace

std::unique_ptr<OpKernel> make_movement(const compiler::GenericStep& step, Isa) {
  switch (step.op->code) {
    case OpCode::kTranspose:
    case OpCode::kReverse:
    case OpCode::kSlice:
    case OpCode::kConcat:
    case OpCode::kSplit:
    case OpCode::kBroadcastTo:
    case OpCode::kBroadcastInDims:
    case OpCode::kTile:
    case OpCode::kTileV1:
    case OpCode::kReshape:
    case OpCode::kReshapeV1:
    case OpCode::kExpandDims:
    case OpCode::kShrinkDims:
      break;
    default:
      return nullptr;
  }
  const auto [begin, end] = known_range(step);
  if (!known_operands(step, begin, end) || step.inputs.size() < (step.op->code == OpCode::kConcat ? 2 : 1))
    return nullptr;
  const DType type = step.outputs[0].dtype;
  const std::size_t data = step.op->code == OpCode::kConcat ? 1 : 0;
  if (is_subbyte(type) || step.inputs[data].dtype != type || operand_rank(step, data) > kMostRank ||
      step.outputs[0].shape.size() > kMostRank) {
    return nullptr;
  }
  return std::make_unique<MovementKernel>(step);
}

}  // namespace coreai::cpu
