// Indexing. An index outside [-extent, extent) is an error; a negative one wraps once.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/region.h"

namespace coreai::cpu::reference {
namespace {

std::int64_t wrapped_index(const Call& call, std::int64_t index, std::int64_t extent) {
  if (index < -extent || index >= extent) {
    call.shape_error(fmt::format("index {} is outside a dimension of {}", index, extent));
  }
  return index < 0 ? index + extent : index;
}

// Indices [..., depth] into the leading axes of `shape`: the element offset of each indexed block.
struct NdIndices {
  Shape outer;             // index shape without its last axis
  std::int64_t block = 1;  // elements of one indexed block
  std::size_t depth = 0;
  std::vector<std::int64_t> offsets;
};

NdIndices nd_indices(const Call& call, const NDArray& indices, const Shape& shape) {
  if (!is_integer(indices.dtype())) call.unsupported("indices must be integers");
  const std::size_t rank = indices.shape().rank();
  if (rank == 0) call.shape_error("indices need at least one axis");
  NdIndices result;
  result.depth = static_cast<std::size_t>(indices.shape()[rank - 1]);
  if (result.depth > shape.rank()) call.shape_error("the indices are deeper than the tensor");
  result.outer = Shape(std::vector<std::int64_t>(indices.shape().begin(), indices.shape().end() - 1));
  result.block = extent_product(shape, result.depth, shape.rank());
  const std::vector<std::int64_t> strides = shape.row_major_strides();
  const Elements<std::int64_t> values(indices);
  const std::int64_t count = result.outer.element_count();
  result.offsets.reserve(static_cast<std::size_t>(count));
  std::size_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < result.depth; ++d) offset += wrapped_index(call, values[at++], shape[d]) * strides[d];
    result.offsets.push_back(offset);
  }
  return result;
}

Shape joined(const Shape& outer, const Shape& shape, std::size_t from) {
  std::vector<std::int64_t> dims(outer.begin(), outer.end());
  dims.insert(dims.end(), shape.begin() + from, shape.end());
  return Shape(dims);
}

}  // namespace

Results gather_nd_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const NdIndices at = nd_indices(call, call.input(1), x.shape());
  RawOutput out(x.dtype(), joined(at.outer, x.shape(), at.depth));
  const RawElements from(x);
  const auto width = static_cast<std::int64_t>(from.width);
  std::byte* to = out.data();
  const std::int64_t bytes = at.block * width;
  for (const std::int64_t offset : at.offsets) {
    if (bytes > 0) std::memcpy(to, from.data + offset * width, static_cast<std::size_t>(bytes));
    to += bytes;
  }
  return {out.finish()};
}

namespace {

// Pairs (position in the index tensor, position in the indexed tensor) in row-major order of the index tensor.
template <typename F>
void along_axis(const Call& call, const NDArray& indices, const Shape& shape, std::size_t axis, F&& f) {
  if (!is_integer(indices.dtype())) call.unsupported("indices must be integers");
  const Shape& index_shape = indices.shape();
  if (index_shape.rank() != shape.rank()) call.shape_error("indices and tensor differ in rank");
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (d != axis && index_shape[d] > shape[d]) call.shape_error("the indices reach beyond the tensor beside the axis");
  }
  const Elements<std::int64_t> values(indices);
  std::array<std::vector<std::int64_t>, 2> strides = {index_shape.row_major_strides(), shape.row_major_strides()};
  const std::int64_t stride = strides[1][axis];
  strides[1][axis] = 0;
  const std::int64_t step = strides[1].back();
  walk<2>(index_shape, strides, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t index = wrapped_index(call, values[static_cast<std::size_t>(at[0] + i)], shape[axis]);
      f(at[0] + i, at[1] + i * step + index * stride);
    }
  });
}

}  // namespace

Results gather_along_axis_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const NDArray& indices = call.input(1);
  const std::size_t axis = axis_index(call, int_scalar(call, 2), x.shape().rank());
  RawOutput out(x.dtype(), indices.shape());
  const RawElements from(x);
  const auto width = static_cast<std::int64_t>(from.width);
  std::byte* to = out.data();
  along_axis(call, indices, x.shape(), axis, [&](std::int64_t at, std::int64_t source) {
    copy_element(to + at * width, from.data + source * width, from.width);
  });
  return {out.finish()};
}

namespace {

enum class Update : std::uint8_t { kKeepOld, kTakeNew, kCombine };

// What the update region of scatter_nd, which takes (old, new), does with an element.
Update update_of(const Call& call) {
  if (call.op.regions.empty() || call.op.regions[0].blocks.empty()) return Update::kTakeNew;
  const ir::Block& block = call.op.regions[0].block();
  if (block.ops.empty()) return Update::kTakeNew;
  const ir::Op& last = block.terminator();
  if (block.ops.size() != 1 || last.operands.size() != 1 || last.operands[0]->block != &block) return Update::kCombine;
  return last.operands[0]->index == 0 ? Update::kKeepOld : Update::kTakeNew;
}

// `count` elements from `from` on as an array.
NDArray block_array(DType dtype, const std::byte* from, std::int64_t count) {
  RawOutput out(dtype, Shape{count});
  if (count > 0) std::memcpy(out.data(), from, static_cast<std::size_t>(count) * out.width());
  return out.finish();
}

}  // namespace

Results scatter_nd_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const NDArray& updates = call.input(2);
  if (x.dtype() != updates.dtype()) call.unsupported("the updates have another element type");
  const NdIndices at = nd_indices(call, call.input(1), x.shape());
  const Shape wanted = joined(at.outer, x.shape(), at.depth);
  if (!(updates.shape() == wanted)) {
    call.shape_error(
        fmt::format("the updates are [{}], the indices ask for [{}]", updates.shape().to_string(), wanted.to_string()));
  }
  const Update update = update_of(call);
  if (update == Update::kKeepOld) return {x};
  RawOutput out(x);
  const RawElements from(updates);
  const auto width = static_cast<std::int64_t>(from.width);
  const std::byte* source = from.data;
  const std::int64_t bytes = at.block * width;
  for (const std::int64_t offset : at.offsets) {
    if (bytes > 0 && update == Update::kCombine) {
      const NDArray blocks[] = {block_array(x.dtype(), out.data() + offset * width, at.block),
                                block_array(x.dtype(), source, at.block)};
      const std::vector<NDArray> combined = map_region(call, call.op.regions[0].block(), blocks);
      if (combined.size() != 1 || combined[0].dtype() != x.dtype()) {
        call.shape_error(fmt::format("the update region must yield one {}", dtype_name(x.dtype())));
      }
      const RawElements values(combined[0]);
      std::memcpy(out.data() + offset * width, values.data, static_cast<std::size_t>(bytes));
    } else if (bytes > 0) {
      std::memcpy(out.data() + offset * width, source, static_cast<std::size_t>(bytes));
    }
    source += bytes;
  }
  return {out.finish()};
}

namespace {

enum class ScatterMode : std::uint64_t { kUpdate, kAdd, kSub, kMul, kDiv, kMax, kMin };

template <typename T>
T scattered(ScatterMode mode, T held, T update) {
  const auto a = static_cast<std::uint64_t>(held);
  const auto b = static_cast<std::uint64_t>(update);
  switch (mode) {
    case ScatterMode::kAdd:
      return static_cast<T>(a + b);
    case ScatterMode::kSub:
      return static_cast<T>(a - b);
    case ScatterMode::kMul:
      return static_cast<T>(a * b);
    case ScatterMode::kDiv:
      if constexpr (std::is_signed_v<T>) {
        if (update == -1) return static_cast<T>(0 - a);
      }
      return held / update;
    case ScatterMode::kMax:
      return update > held ? update : held;
    case ScatterMode::kMin:
      return update < held ? update : held;
    case ScatterMode::kUpdate:
      break;
  }
  return update;
}

template <typename T>
T scattered_float(ScatterMode mode, T held, T update) {
  switch (mode) {
    case ScatterMode::kAdd:
      return held + update;
    case ScatterMode::kSub:
      return held - update;
    case ScatterMode::kMul:
      return held * update;
    case ScatterMode::kDiv:
      return held / update;
    case ScatterMode::kMax:
      return update > held ? update : held;
    case ScatterMode::kMin:
      return update < held ? update : held;
    case ScatterMode::kUpdate:
      break;
  }
  return update;
}

}  // namespace

Results scatter_along_axis_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const NDArray& indices = call.input(1);
  const NDArray& updates = call.input(2);
  if (x.dtype() != updates.dtype()) call.unsupported("the updates have another element type");
  if (!(updates.shape() == indices.shape())) call.shape_error("updates and indices differ in shape");
  const std::size_t axis = axis_index(call, int_scalar(call, 3), x.shape().rank());
  const ir::AttrRef attribute = call.op.attribute("scatter_mode");
  const std::uint64_t code = attribute ? attribute->as_enum() : 0;
  if (code > 6) call.unsupported("unknown scatter mode");
  const auto mode = static_cast<ScatterMode>(code);
  if (mode == ScatterMode::kUpdate) {
    RawOutput out(x);
    const RawElements from(updates);
    const auto width = static_cast<std::int64_t>(from.width);
    std::byte* to = out.data();
    along_axis(call, indices, x.shape(), axis, [&](std::int64_t at, std::int64_t target) {
      copy_element(to + target * width, from.data + at * width, from.width);
    });
    return {out.finish()};
  }
  return with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) -> Results {
    const Elements<T> held(x), from(updates);
    std::vector<T> out(held.span().begin(), held.span().end());
    along_axis(call, indices, x.shape(), axis, [&](std::int64_t at, std::int64_t target) {
      T& slot = out[static_cast<std::size_t>(target)];
      const T update = from[static_cast<std::size_t>(at)];
      if constexpr (std::is_floating_point_v<T>) {
        slot = scattered_float(mode, slot, update);
      } else {
        if (mode == ScatterMode::kDiv && update == 0) {
          call.value_error(fmt::format("division by zero: element {} of the updates is 0", at));
        }
        slot = scattered(mode, slot, update);
      }
    });
    return {stored(x.dtype(), x.shape(), out)};
  });
}

}  // namespace coreai::cpu::reference
