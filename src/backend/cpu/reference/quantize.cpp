// Quantisation: quantize, dequantize, blockwise shift and scale, statistics.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

// Real values of any dtype: exact for all but 64-bit integers.
std::vector<double> reals(const NDArray& array) {
  if (array.dtype() == DType::kF64) {
    const Elements<double> values(array);
    return {values.span().begin(), values.span().end()};
  }
  const bool wide = is_integer(array.dtype()) && dtype_bits(array.dtype()) > 16;
  if (wide) {
    const Elements<double> values(array);
    return {values.span().begin(), values.span().end()};
  }
  const Elements<float> values(array);
  return {values.span().begin(), values.span().end()};
}

// A result of f16, bf16, f32 is computed in f32 and rounded once more by the store.
NDArray rounded(DType dtype, const Shape& shape, const std::vector<double>& values) {
  if (dtype == DType::kF64 || !is_float(dtype)) return stored(dtype, shape, values);
  return stored(dtype, shape, std::vector<float>(values.begin(), values.end()));
}

struct Bounds {
  double low, high;
};

Bounds bounds_of(const Call& call, DType dtype) {
  if (is_integer(dtype)) {
    const int bits = dtype_bits(dtype);
    if (dtype_class(dtype) == DTypeClass::kSigned) return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
    return {0.0, std::ldexp(1.0, bits) - 1};
  }
  switch (dtype) {
    case DType::kF8E4M3FN:
      return {-448.0, 448.0};
    case DType::kF8E5M2:
      return {-57344.0, 57344.0};
    case DType::kF4E2M1FN:
      return {-6.0, 6.0};
    default:
      call.unsupported("the result type has no quantised form");
  }
}

// Which parameter belongs to each element: per axis, or one for all.
struct Parameters {
  std::vector<double> scale, offset1, offset2;
  std::int64_t inner = 1, count = 1;
  std::size_t index(std::size_t element) const {
    return static_cast<std::size_t>(static_cast<std::int64_t>(element) / inner % count);
  }
};

double at(const std::vector<double>& values, std::size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

// Operands: input, scale, offset1, [offset2,] axis.
Parameters parameters(const Call& call, bool has_offset2) {
  const Shape& shape = call.input(0).shape();
  Parameters p;
  p.scale = reals(call.input(1));
  p.offset1 = reals(call.input(2));
  p.offset2 = has_offset2 ? reals(call.input(3)) : std::vector<double>{0.0};
  const std::size_t axis_operand = has_offset2 ? 4 : 3;
  const std::size_t count = std::max({p.scale.size(), p.offset1.size(), p.offset2.size()});
  for (const auto* values : {&p.scale, &p.offset1, &p.offset2}) {
    if (values->size() != 1 && values->size() != count) call.shape_error("scale and offsets differ in length");
  }
  if (count != 1 || call.input(1).shape().rank() == 1) {
    const std::vector<std::int64_t> axes = int_list(call, axis_operand);
    if (axes.size() == 1) {
      const std::size_t axis = axis_index(call, axes[0], shape.rank());
      if (count != 1 && static_cast<std::int64_t>(count) != shape[axis]) {
        call.shape_error(fmt::format("{} scales for a dimension of {}", count, shape[axis]));
      }
      p.inner = extent_product(shape, axis + 1, shape.rank());
    } else if (count != 1) {
      call.shape_error("a vector of scales needs one axis");
    }
  }
  p.count = static_cast<std::int64_t>(count);
  p.inner = std::max<std::int64_t>(p.inner, 1);
  return p;
}

Results quantize_with(const Call& call, bool has_offset2) {
  const NDArray& x = call.input(0);
  const Parameters p = parameters(call, has_offset2);
  const DType to = call.result_dtype();
  const Bounds bounds = bounds_of(call, to);
  std::vector<double> values = reals(x);
  const bool in_f32 = x.dtype() != DType::kF64;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t k = p.index(i);
    double q = (values[i] - at(p.offset2, k)) / at(p.scale, k);
    if (in_f32)
      q = static_cast<double>(
          static_cast<float>(static_cast<float>(values[i] - at(p.offset2, k)) / static_cast<float>(at(p.scale, k))));
    // Rounding belongs to integer codes; a float code is rounded by its format.
    if (is_integer(to)) q = std::nearbyint(q);
    q += at(p.offset1, k);
    values[i] = std::isnan(q) ? 0.0 : std::clamp(q, bounds.low, bounds.high);
  }
  NDArray out(to, x.shape());
  write_from_f64(out, values);
  return {std::move(out)};
}

Results dequantize_with(const Call& call, bool has_offset2) {
  const NDArray& x = call.input(0);
  const Parameters p = parameters(call, has_offset2);
  const DType to = call.result_dtype();
  const bool in_f32 = to != DType::kF64;
  std::vector<double> values = reals(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t k = p.index(i);
    double product = (values[i] - at(p.offset1, k)) * at(p.scale, k);
    if (in_f32) product = static_cast<double>(static_cast<float>(product));
    values[i] = product + at(p.offset2, k);
  }
  return {rounded(to, x.shape(), values)};
}

}  // namespace

Results quantize_v1_kernel(const Call& call) {
  return quantize_with(call, false);
}
Results quantize_kernel(const Call& call) {
  return quantize_with(call, true);
}
Results dequantize_v1_kernel(const Call& call) {
  return dequantize_with(call, false);
}
Results dequantize_kernel(const Call& call) {
  return dequantize_with(call, true);
}

namespace {

// s * (x - o1) + o2 with an exact difference, in f32, rounded once.
Results blockwise(const Call& call, bool has_offset2) {
  const NDArray& x = call.input(0);
  const Shape& shape = x.shape();
  const Shape& blocks = call.input(1).shape();
  if (blocks.rank() != shape.rank()) call.shape_error("data and scale differ in rank");
  std::vector<std::int64_t> block(shape.rank());
  for (std::size_t i = 2; i < call.in.size(); ++i) {
    if (!(call.input(i).shape() == blocks)) call.shape_error("scale and offsets differ in shape");
  }
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (blocks[d] == 0 ? shape[d] != 0 : shape[d] % blocks[d] != 0) {
      call.shape_error(fmt::format("{} blocks do not divide {} elements", blocks[d], shape[d]));
    }
    block[d] = blocks[d] == 0 ? 1 : std::max<std::int64_t>(shape[d] / blocks[d], 1);
  }
  const DType to = call.result_dtype();
  const Elements<float> data(x), scale(call.input(1)), offset1(call.input(2));
  const std::vector<double> offset2 = has_offset2 ? reals(call.input(3)) : std::vector<double>(scale.size(), 0.0);
  const std::vector<std::int64_t> strides = blocks.row_major_strides();
  std::vector<float> out(data.size());
  if (shape.rank() == 0) {
    out[0] = scale[0] * (data[0] - offset1[0]) + static_cast<float>(offset2[0]);
    return {stored(to, shape, out)};
  }
  // The last axis block by block; the others by their index.
  std::vector<std::int64_t> index(shape.rank(), 0);
  const std::size_t last = shape.rank() - 1;
  for (std::size_t row = 0; row < out.size(); row += static_cast<std::size_t>(shape[last])) {
    std::int64_t base = 0;
    for (std::size_t d = 0; d < last; ++d) base += index[d] / block[d] * strides[d];
    for (std::int64_t b = 0; b < blocks[last]; ++b) {
      const auto k = static_cast<std::size_t>(base + b);
      const float s = scale[k], o1 = offset1[k], o2 = static_cast<float>(offset2[k]);
      const auto from = row + static_cast<std::size_t>(b * block[last]);
      for (std::size_t i = from; i < from + static_cast<std::size_t>(block[last]); ++i)
        out[i] = s * (data[i] - o1) + o2;
    }
    for (std::size_t d = last; d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return {stored(to, shape, out)};
}

}  // namespace

Results blockwise_shift_scale_kernel(const Call& call) {
  return blockwise(call, true);
}
Results blockwise_shift_scale_v1_kernel(const Call& call) {
  return blockwise(call, false);
}

namespace {

struct Extremes {
  std::vector<double> low, high;
};

Extremes extremes(const Call& call) {
  const NDArray& x = call.input(0);
  const std::size_t axis = axis_index(call, int_scalar(call, 2), x.shape().rank());
  const std::int64_t inner = extent_product(x.shape(), axis + 1, x.shape().rank());
  const auto channels = static_cast<std::size_t>(x.shape()[axis]);
  Extremes result{std::vector<double>(channels, std::numeric_limits<double>::infinity()),
                  std::vector<double>(channels, -std::numeric_limits<double>::infinity())};
  const std::vector<double> values = reals(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto c = static_cast<std::size_t>(static_cast<std::int64_t>(i) / inner) % channels;
    if (values[i] < result.low[c] || std::isnan(values[i])) result.low[c] = values[i];
    if (values[i] > result.high[c] || std::isnan(values[i])) result.high[c] = values[i];
  }
  return result;
}

std::array<double, 2> range_operand(const Call& call) {
  const std::vector<double> range = reals(call.input(1));
  if (range.size() != 2) call.shape_error("the range needs two elements");
  return {range[0], range[1]};
}

}  // namespace

Results symmetric_statistics_kernel(const Call& call) {
  const Extremes found = extremes(call);
  const auto [r0, r1] = range_operand(call);
  std::vector<double> scale(found.low.size());
  for (std::size_t c = 0; c < scale.size(); ++c) {
    scale[c] = 2.0 * std::max(std::fabs(found.low[c]), std::fabs(found.high[c])) / (r1 - r0);
  }
  return {rounded(call.result_dtype(), Shape{static_cast<std::int64_t>(scale.size())}, scale)};
}

Results asymmetric_statistics_kernel(const Call& call) {
  const Extremes found = extremes(call);
  const auto [r0, r1] = range_operand(call);
  const DType zero_type = call.result_dtype(1);
  std::vector<double> scale(found.low.size()), zero(found.low.size());
  for (std::size_t c = 0; c < scale.size(); ++c) {
    scale[c] = (std::max(found.high[c], 0.0) - std::min(found.low[c], 0.0)) / (r1 - r0);
    const double steps = static_cast<double>(static_cast<float>(found.low[c] / scale[c]));
    const double shift = is_integer(zero_type) ? std::nearbyint(steps) : steps;
    zero[c] = std::clamp(r0 - shift, std::min(r0, r1), std::max(r0, r1));
  }
  const Shape shape{static_cast<std::int64_t>(scale.size())};
  return {rounded(call.result_dtype(0), shape, scale), rounded(zero_type, shape, zero)};
}

}  // namespace coreai::cpu::reference
