#include "backend/cpu/reference/movement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

std::vector<std::int64_t> iota(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

bool is_run(const std::vector<std::int64_t>& map) {
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] < 0 || map[i] != map[0] + static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

// Trailing axes that the maps take whole: they move as one block.
std::size_t whole_from(const Shape& source, const AxisMaps& maps) {
  std::size_t axis = maps.size();
  while (axis > 0) {
    const std::vector<std::int64_t>& map = maps[axis - 1];
    if (static_cast<std::int64_t>(map.size()) != source[axis - 1] || (!map.empty() && map[0] != 0) || !is_run(map))
      break;
    --axis;
  }
  return axis;
}

}  // namespace

NDArray remap(const NDArray& source, const Shape& out_shape, const AxisMaps& maps, const std::byte* fill) {
  RawOutput out(source.dtype(), out_shape);
  const std::size_t rank = out_shape.rank();
  for (std::size_t d = 0; d < rank; ++d) {
    if (out_shape[d] == 0) return out.finish();
  }
  const RawElements from(source);
  const auto width = static_cast<std::int64_t>(from.width);
  const std::size_t whole = whole_from(source.shape(), maps);
  const std::int64_t block = extent_product(source.shape(), whole, rank) * width;
  std::byte* to = out.data();
  if (whole == 0) {
    std::memcpy(to, from.data, static_cast<std::size_t>(block));
    return out.finish();
  }
  const std::vector<std::int64_t> strides = source.shape().row_major_strides();
  const std::vector<std::int64_t>& last = maps[whole - 1];
  const std::int64_t last_stride = strides[whole - 1] * width;
  const bool run = is_run(last);
  const auto row = static_cast<std::int64_t>(last.size()) * block;
  std::vector<std::size_t> index(whole - 1, 0);
  while (true) {
    std::int64_t base = 0;
    bool outside = false;
    for (std::size_t d = 0; d + 1 < whole; ++d) {
      const std::int64_t at = maps[d][index[d]];
      outside = outside || at < 0;
      base += at * strides[d];
    }
    base *= width;
    if (run && !outside) {
      std::memcpy(to, from.data + base + last[0] * last_stride, static_cast<std::size_t>(row));
      to += row;
    } else {
      for (const std::int64_t at : last) {
        if (outside || at < 0) {
          for (std::int64_t k = 0; k < block; k += width) copy_element(to + k, fill, from.width);
        } else if (block == width) {
          copy_element(to, from.data + base + at * last_stride, from.width);
        } else {
          std::memcpy(to, from.data + base + at * last_stride, static_cast<std::size_t>(block));
        }
        to += block;
      }
    }
    std::size_t d = whole - 1;
    while (d > 0 && ++index[d - 1] == maps[d - 1].size()) index[--d] = 0;
    if (d == 0) break;
  }
  return out.finish();
}

Results get_shape_kernel(const Call& call) {
  const Shape& shape = call.input(0).shape();
  const std::vector<std::int64_t> dims(shape.begin(), shape.end());
  return {stored(call.result_dtype(), Shape{static_cast<std::int64_t>(dims.size())}, dims)};
}

namespace {

// The one unknown extent of a result type, filled so that `count` elements fit; nothing when that is not possible.
std::optional<Shape> completed(const Shape& declared, std::int64_t count) {
  std::optional<std::size_t> unknown;
  std::int64_t known = 1;
  for (std::size_t d = 0; d < declared.rank(); ++d) {
    if (declared[d] == kDynamic) {
      if (unknown) return std::nullopt;
      unknown = d;
    } else {
      known *= declared[d];
    }
  }
  if (!unknown || known <= 0 || count % known != 0) return std::nullopt;
  Shape shape = declared;
  shape[*unknown] = count / known;
  return shape;
}

}  // namespace

Results reshape_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::int64_t count = x.element_count();
  std::vector<std::int64_t> dims = int_list(call, 1);
  std::optional<std::size_t> unknown;
  std::uint64_t known = 1;
  bool overflow = false;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == -1) {
      if (unknown) call.shape_error("a shape has two extents of -1");
      unknown = d;
      continue;
    }
    const auto product = checked_mul(known, static_cast<std::uint64_t>(non_negative(call, dims[d], "an extent")));
    overflow = overflow || !product;
    known = product.value_or(0);
  }
  const auto elements = static_cast<std::uint64_t>(count);
  if (!overflow && unknown && known > 0 && elements % known == 0) {
    dims[*unknown] = static_cast<std::int64_t>(elements / known);
    return {x.reshaped(Shape(dims))};
  }
  if (!overflow && !unknown && known == elements) return {x.reshaped(Shape(dims))};
  // Some exporters write a constant shape that holds for one size only: the declared type tells which axis is free.
  if (const auto shape = completed(call.op.results.at(0)->type->shape(), count)) return {x.reshaped(*shape)};
  call.shape_error(fmt::format("{} elements do not fit the shape [{}]", count, fmt::join(dims, "x")));
}

Results transpose_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::size_t rank = x.shape().rank();
  const std::vector<std::size_t> order = axis_list(call, 1, rank);
  if (order.size() != rank) call.shape_error("the permutation has another length than the rank");
  Shape shape = x.shape();
  const std::vector<std::int64_t> strides = x.shape().row_major_strides();
  std::array<std::vector<std::int64_t>, 2> steps;
  steps[1].resize(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    shape[d] = x.shape()[order[d]];
    steps[1][d] = strides[order[d]];
  }
  steps[0] = shape.row_major_strides();
  const RawElements from(x);
  RawOutput out(x.dtype(), shape);
  std::byte* to = out.data();
  const auto width = static_cast<std::int64_t>(from.width);
  const std::int64_t step = rank ? steps[1].back() : 1;
  walk<2>(shape, steps, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
    std::byte* row = to + at[0] * width;
    const std::byte* source = from.data + at[1] * width;
    if (step == 1) {
      std::memcpy(row, source, static_cast<std::size_t>(n * width));
    } else {
      for (std::int64_t i = 0; i < n; ++i) copy_element(row + i * width, source + i * step * width, from.width);
    }
  });
  return {out.finish()};
}

Results expand_dims_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::size_t rank = x.shape().rank() + int_list(call, 1).size();
  const std::vector<std::size_t> axes = axis_list(call, 1, rank);
  std::vector<std::int64_t> dims;
  std::size_t next = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    const bool added = std::find(axes.begin(), axes.end(), d) != axes.end();
    dims.push_back(added ? 1 : x.shape()[next++]);
  }
  return {x.reshaped(Shape(dims))};
}

Results shrink_dims_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::vector<std::size_t> axes = axis_list(call, 1, x.shape().rank());
  std::vector<std::int64_t> dims;
  for (std::size_t d = 0; d < x.shape().rank(); ++d) {
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) {
      dims.push_back(x.shape()[d]);
    } else if (x.shape()[d] != 1) {
      call.shape_error(fmt::format("axis {} has {} elements, only an axis of one can be removed", d, x.shape()[d]));
    }
  }
  return {x.reshaped(Shape(dims))};
}

Results concat_kernel(const Call& call) {
  if (call.in.size() < 2) call.shape_error("there is nothing to join");
  // Exporters build shapes from scalars and vectors of one element alike.
  std::vector<NDArray> parts;
  for (const NDArray& x : call.in.subspan(1)) parts.push_back(x.shape().rank() == 0 ? x.reshaped(Shape{1}) : x);
  const NDArray& first = parts.front();
  const std::size_t rank = first.shape().rank();
  const std::size_t axis = axis_index(call, int_scalar(call, 0), rank);
  Shape shape = first.shape();
  shape[axis] = 0;
  for (const NDArray& x : parts) {
    if (x.dtype() != first.dtype()) call.unsupported("the operands differ in element type");
    if (x.shape().rank() != rank) call.shape_error("the operands differ in rank");
    for (std::size_t d = 0; d < rank; ++d) {
      if (d != axis && x.shape()[d] != first.shape()[d]) call.shape_error("the operands differ beside the joined axis");
    }
    shape[axis] += x.shape()[axis];
  }
  RawOutput out(first.dtype(), shape);
  const auto width = static_cast<std::int64_t>(out.width());
  const std::int64_t outer = extent_product(shape, 0, axis);
  const std::int64_t row = extent_product(shape, axis, rank) * width;
  std::int64_t offset = 0;
  for (const NDArray& x : parts) {
    const RawElements from(x);
    const std::int64_t piece = extent_product(x.shape(), axis, rank) * width;
    for (std::int64_t o = 0; o < outer && piece > 0; ++o) {
      std::memcpy(out.data() + o * row + offset, from.data + o * piece, static_cast<std::size_t>(piece));
    }
    offset += piece;
  }
  return {out.finish()};
}

Results split_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::size_t axis = axis_index(call, int_scalar(call, 2), x.shape().rank());
  const std::int64_t extent = x.shape()[axis];
  std::vector<std::int64_t> sizes = int_list(call, 1);
  if (call.input(1).shape().rank() == 0) {
    const std::int64_t size = sizes[0];
    if (size <= 0) call.shape_error(fmt::format("a split size is {}, it must be positive", size));
    sizes.clear();
    for (std::int64_t left = extent; left > 0; left -= size) sizes.push_back(std::min(size, left));
  }
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > extent - sum) {
      call.shape_error(
          fmt::format("the sections [{}] do not add up to a dimension of {}", fmt::join(sizes, ", "), extent));
    }
    sum += size;
  }
  if (sum != extent) {
    call.shape_error(
        fmt::format("the sections [{}] do not add up to a dimension of {}", fmt::join(sizes, ", "), extent));
  }
  if (sizes.size() != call.op.results.size()) {
    call.shape_error(fmt::format("{} pieces for {} results", sizes.size(), call.op.results.size()));
  }
  AxisMaps maps;
  for (const std::int64_t dim : x.shape()) maps.push_back(iota(dim));
  Results results;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    Shape shape = x.shape();
    shape[axis] = size;
    maps[axis] = iota(size);
    for (std::int64_t& at : maps[axis]) at += begin;
    results.push_back(remap(x, shape, maps));
    begin += size;
  }
  return results;
}

std::vector<SliceRange> slice_ranges(const Call& call, const Shape& shape) {
  const auto begins = int_list(call, 1);
  const auto ends = int_list(call, 2);
  const auto steps = int_list(call, 3);
  if (begins.size() != shape.rank() || ends.size() != shape.rank() || steps.size() != shape.rank()) {
    call.shape_error("begin, end and stride need one element per axis");
  }
  std::vector<SliceRange> ranges;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const auto range = slice_range(begins[d], ends[d], steps[d], shape[d]);
    if (!range) call.shape_error("a slice has stride 0");
    ranges.push_back(*range);
  }
  return ranges;
}

Results slice_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::vector<SliceRange> ranges = slice_ranges(call, x.shape());
  Shape shape = x.shape();
  AxisMaps maps;
  for (std::size_t d = 0; d < ranges.size(); ++d) {
    shape[d] = ranges[d].size;
    maps.push_back(iota(ranges[d].size));
    for (std::int64_t& at : maps[d]) at = ranges[d].begin + at * ranges[d].step;
  }
  if (shape == x.shape() && whole_from(x.shape(), maps) == 0) return {x};
  return {remap(x, shape, maps)};
}

Results slice_update_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const NDArray& update = call.input(4);
  if (x.dtype() != update.dtype()) call.unsupported("the update has another element type");
  const std::vector<SliceRange> ranges = slice_ranges(call, x.shape());
  Shape shape = x.shape();
  std::array<std::vector<std::int64_t>, 2> strides = {x.shape().row_major_strides(), {}};
  std::int64_t origin = 0;
  for (std::size_t d = 0; d < ranges.size(); ++d) {
    shape[d] = ranges[d].size;
    origin += ranges[d].begin * strides[0][d];
    strides[0][d] *= ranges[d].step;
  }
  if (!(update.shape() == shape)) {
    call.shape_error(fmt::format("the slice is [{}], the update [{}]", shape.to_string(), update.shape().to_string()));
  }
  strides[1] = shape.row_major_strides();
  RawOutput out(x);
  const RawElements from(update);
  const auto width = static_cast<std::int64_t>(from.width);
  const std::int64_t step = shape.rank() ? strides[0].back() : 1;
  std::byte* to = out.data();
  walk<2>(shape, strides, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
    std::byte* row = to + (origin + at[0]) * width;
    const std::byte* source = from.data + at[1] * width;
    if (step == 1) {
      std::memcpy(row, source, static_cast<std::size_t>(n * width));
    } else {
      for (std::int64_t i = 0; i < n; ++i) copy_element(row + i * step * width, source + i * width, from.width);
    }
  });
  return {out.finish()};
}

namespace {

NDArray broadcast_array(const NDArray& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  std::vector<std::int64_t> aligned(shape.rank() - x.shape().rank(), 1);
  aligned.insert(aligned.end(), x.shape().begin(), x.shape().end());
  AxisMaps maps;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    maps.push_back(aligned[d] == shape[d] ? iota(shape[d])
                                          : std::vector<std::int64_t>(static_cast<std::size_t>(shape[d]), 0));
  }
  return remap(x.reshaped(Shape(aligned)), shape, maps);
}

Shape checked_shape(const Call& call, const std::vector<std::int64_t>& dims) {
  for (const std::int64_t dim : dims) non_negative(call, dim, "an extent");
  Shape shape(dims);
  shape.element_count();  // throws when it overflows
  return shape;
}

}  // namespace

Results broadcast_to_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const Shape shape = checked_shape(call, int_list(call, 1));
  if (shape.rank() < x.shape().rank() || !(broadcast(call, x.shape(), shape) == shape)) {
    call.shape_error(fmt::format("[{}] does not broadcast to [{}]", x.shape().to_string(), shape.to_string()));
  }
  return {broadcast_array(x, shape)};
}

Results broadcast_in_dims_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::vector<std::int64_t> sizes = int_list(call, 1);
  const std::vector<std::size_t> axes = axis_list(call, 2, x.shape().rank());
  if (sizes.size() != axes.size()) call.shape_error("there must be one size per axis");
  std::vector<std::int64_t> dims(x.shape().begin(), x.shape().end());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (dims[axes[i]] != 1 && dims[axes[i]] != sizes[i]) {
      call.shape_error(fmt::format("axis {} has {} elements, it cannot become {}", axes[i], dims[axes[i]], sizes[i]));
    }
    dims[axes[i]] = sizes[i];
  }
  return {broadcast_array(x, checked_shape(call, dims))};
}

Results broadcast_shapes_kernel(const Call& call) {
  const Shape shape = broadcast(call, checked_shape(call, int_list(call, 0)), checked_shape(call, int_list(call, 1)));
  const std::vector<std::int64_t> dims(shape.begin(), shape.end());
  return {stored(call.result_dtype(), Shape{static_cast<std::int64_t>(dims.size())}, dims)};
}

Results tile_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::vector<std::int64_t> given = int_list(call, 1);
  const std::size_t rank = x.shape().rank();
  if (given.size() > rank) call.shape_error("there are more repetitions than axes");
  std::vector<std::int64_t> dims(x.shape().begin(), x.shape().end());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::size_t d = rank - given.size() + i;
    const auto repeats = static_cast<std::uint64_t>(non_negative(call, given[i], "a repetition"));
    const auto extent = checked_mul(static_cast<std::uint64_t>(dims[d]), repeats);
    if (!extent || *extent > std::uint64_t{1} << 40) call.shape_error("the result is too large");
    dims[d] = static_cast<std::int64_t>(*extent);
  }
  const Shape shape = checked_shape(call, dims);
  AxisMaps maps;
  for (std::size_t d = 0; d < rank; ++d) {
    maps.push_back(iota(dims[d]));
    for (std::int64_t& at : maps[d]) at %= x.shape()[d];
  }
  return {remap(x, shape, maps)};
}

Results reverse_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  AxisMaps maps;
  for (const std::int64_t dim : x.shape()) maps.push_back(iota(dim));
  for (const std::size_t axis : axis_list(call, 1, x.shape().rank()))
    std::reverse(maps[axis].begin(), maps[axis].end());
  return {remap(x, x.shape(), maps)};
}

namespace {

// Source index of position `at` (may lie outside [0, extent)); -1 for the padding value.
std::int64_t padded_source(const Call& call, std::uint64_t mode, std::int64_t at, std::int64_t extent) {
  if (at >= 0 && at < extent) return at;
  if (mode == 1) return -1;
  if (extent == 0) call.shape_error("an empty dimension has no elements to pad with");
  if (mode == 3) return std::clamp<std::int64_t>(at, 0, extent - 1);
  std::int64_t source = 0;
  switch (mode) {
    case 0:  // circular
      source = at < 0 ? at + extent : at - extent;
      break;
    case 2:  // reflect, without the border
      source = at < 0 ? -at : 2 * (extent - 1) - at;
      break;
    case 4:  // symmetric, with the border
      source = at < 0 ? -at - 1 : 2 * extent - 1 - at;
      break;
    default:
      call.unsupported("unknown padding mode");
  }
  if (source < 0 || source >= extent) call.shape_error("the padding is larger than the dimension allows");
  return source;
}

}  // namespace

Results pad_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::vector<std::int64_t> padding = int_list(call, 1);
  const std::size_t rank = x.shape().rank();
  if (padding.size() != 2 * rank) call.shape_error("the padding needs two elements per axis");
  const ir::AttrRef attribute = call.op.attribute("padding_mode");
  const std::uint64_t mode = attribute ? attribute->as_enum() : 1;
  if (call.input(2).dtype() != x.dtype() || call.input(2).element_count() != 1) {
    call.shape_error("the padding value must be one element of the input's type");
  }
  std::vector<std::int64_t> dims(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t before = non_negative(call, padding[2 * d], "a padding");
    const std::int64_t after = non_negative(call, padding[2 * d + 1], "a padding");
    if (before > (std::int64_t{1} << 40) || after > (std::int64_t{1} << 40))
      call.shape_error("the padding is too large");
    dims[d] = x.shape()[d] + before + after;
  }
  const Shape shape = checked_shape(call, dims);
  AxisMaps maps(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    maps[d].resize(static_cast<std::size_t>(dims[d]));
    for (std::size_t i = 0; i < maps[d].size(); ++i) {
      maps[d][i] = padded_source(call, mode, static_cast<std::int64_t>(i) - padding[2 * d], x.shape()[d]);
    }
  }
  const RawElements fill(call.input(2));
  return {remap(x, shape, maps, fill.data)};
}

Results range_kernel(const Call& call) {
  const DType dtype = call.input(0).dtype();
  for (std::size_t i = 0; i < 3; ++i) {
    if (call.input(i).dtype() != dtype || call.input(i).element_count() != 1) {
      call.shape_error("start, stop and step must be scalars of one type");
    }
  }
  return with_compute_type(call, dtype, [&]<typename T>(std::type_identity<T>) -> Results {
    const T start = Elements<T>(call.input(0))[0];
    const T stop = Elements<T>(call.input(1))[0];
    const T step = Elements<T>(call.input(2))[0];
    if (step == T{0}) call.shape_error("a range has step 0");
    double length = 0;
    if constexpr (std::is_floating_point_v<T>) {
      length = std::ceil((static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step));
    } else {
      const bool up = step > T{0};
      if (up ? stop > start : stop < start) {
        const auto distance =
            static_cast<std::uint64_t>(up ? stop : start) - static_cast<std::uint64_t>(up ? start : stop);
        const std::uint64_t stride = up ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
        const std::uint64_t strides = (distance - 1) / stride;
        length = static_cast<double>(strides) + 1;
      }
    }
    if (!(length > 0)) length = 0;
    if (length > 0x1p40) call.shape_error("the range is too long");
    std::vector<T> out(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if constexpr (std::is_floating_point_v<T>) {
        out[i] = static_cast<T>(static_cast<double>(start) + static_cast<double>(i) * static_cast<double>(step));
      } else {
        out[i] = static_cast<T>(static_cast<std::uint64_t>(start) + i * static_cast<std::uint64_t>(step));
      }
    }
    return {stored(dtype, Shape{static_cast<std::int64_t>(out.size())}, out)};
  });
}

Results non_zero_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::vector<std::int64_t> strides = x.shape().row_major_strides();
  const std::size_t rank = x.shape().rank();
  std::vector<std::int64_t> out;
  std::int64_t found = 0;
  with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) {
    const Elements<T> in(x);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i] == T{0}) continue;
      ++found;
      auto left = static_cast<std::int64_t>(i);
      for (std::size_t d = 0; d < rank; ++d) {
        out.push_back(left / strides[d]);
        left %= strides[d];
      }
    }
  });
  return {stored(call.result_dtype(), Shape{found, static_cast<std::int64_t>(rank)}, out)};
}

}  // namespace coreai::cpu::reference
