#include "backend/cpu/ops/conv_shape.h"

#include <fmt/format.h>

namespace coreai::cpu {
namespace {

Triple spatial(const Shape& shape) {
  return shape.rank() == 4 ? Triple{1, shape[2], shape[3]} : Triple{shape[2], shape[3], shape[4]};
}

// A stride, dilation or padding; `absent` stands for the depth of two-dimensional data.
Triple triple(const OpArray& array, std::size_t axes, std::int64_t absent, std::int64_t least, std::string_view where) {
  const Ints values = read_ints(array, where);
  if (values.size() != axes) shape_error(where, fmt::format("{} values for {} axes", values.size(), axes));
  Triple result{absent, absent, absent};
  for (std::size_t i = 0; i < axes; ++i) {
    if (values[i] < least || values[i] > (std::int64_t{1} << 31)) {
      shape_error(where, fmt::format("a stride, dilation or padding of {}", values[i]));
    }
    result[3 - axes + i] = values[i];
  }
  return result;
}

void set_extents(ConvShape& c, const Triple& extra, std::string_view where) {
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t reach = c.dilation[i] * (c.kernel[i] - 1) + 1;
    if (!c.transposed) {
      if (c.kernel[i] < 1 || reach > c.in[i]) shape_error(where, "the kernel is larger than the input");
      c.out[i] = (c.in[i] - reach) / c.stride[i] + 1;
      continue;
    }
    if (c.in[i] < 1 || c.kernel[i] < 1) shape_error(where, "input and kernel must not be empty");
    c.out[i] = (c.in[i] - 1) * c.stride[i] - 2 * c.padding[i] + reach + extra[i];
    if (c.out[i] < 0) shape_error(where, "the padding is larger than the result");
  }
}

}  // namespace

ConvShape conv_shape(std::span<const OpArray> in, const OpArray& out, bool transposed, std::string_view where) {
  const Shape &x = in[0].shape, &w = in[1].shape;
  const std::size_t rank = x.rank();
  if ((rank != 4 && rank != 5) || w.rank() != rank) {
    shape_error(where,
                fmt::format("an input [{}] and a weight [{}] must be of rank 4 or 5", x.to_string(), w.to_string()));
  }
  const std::size_t axes = rank - 2;
  ConvShape c;
  c.transposed = transposed;
  c.batch = x[0], c.in_channels = x[1];
  c.in = spatial(x), c.kernel = spatial(w);
  c.groups = read_int(in[transposed ? 6 : 4], where);
  if (c.groups < 1 || c.groups > (std::int64_t{1} << 31)) shape_error(where, fmt::format("{} groups", c.groups));
  c.out_channels = transposed ? w[1] * c.groups : w[0];
  if (c.in_channels % c.groups != 0 || c.out_channels % c.groups != 0) {
    shape_error(where,
                fmt::format("{} groups for {} input and {} output channels", c.groups, c.in_channels, c.out_channels));
  }
  if ((transposed ? w[0] : w[1]) != (transposed ? c.in_channels : c.in_per_group())) {
    shape_error(where, fmt::format("a weight [{}] for {} input channels", w.to_string(), c.in_channels));
  }
  c.stride = triple(in[2], axes, 1, 1, where);
  if (transposed) c.padding = triple(in[3], axes, 0, 0, where);
  c.dilation = triple(in[transposed ? 4 : 3], axes, 1, 1, where);
  set_extents(c, transposed ? triple(in[5], axes, 0, 0, where) : Triple{}, where);
  Shape wanted = x;
  wanted[1] = c.out_channels;
  for (std::size_t i = 0; i < axes; ++i) wanted[2 + i] = c.out[3 - axes + i];
  check_result(out, wanted, where);
  return c;
}

}  // namespace coreai::cpu
