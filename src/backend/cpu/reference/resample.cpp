// Interpolation over all axes, and images as byte tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

bool linear_mode(const Call& call) {
  const ir::AttrRef mode = call.op.attribute("interpolation_mode");
  const std::uint64_t code = mode ? mode->as_enum() : 0;
  if (code > 1) call.unsupported("unknown interpolation mode");
  return code == 0;
}

// Two neighbours along one axis and the weight of the upper one; nearest has one neighbour.
struct Sample {
  std::int64_t low, high;
  double weight;
};

Sample sample_at(double coordinate, std::int64_t extent, bool linear) {
  const double last = static_cast<double>(extent - 1);
  const double c = std::isnan(coordinate) ? 0.0 : std::clamp(coordinate, 0.0, last);
  if (!linear) {
    const auto index = static_cast<std::int64_t>(std::nearbyint(c));
    return {index, index, 0.0};
  }
  const auto low = static_cast<std::int64_t>(std::floor(c));
  return {low, std::min(low + 1, extent - 1), c - static_cast<double>(low)};
}

double value_of(const std::vector<double>& data, const std::vector<std::int64_t>& strides,
                const std::vector<const Sample*>& samples) {
  double sum = 0;
  const std::size_t rank = samples.size();
  for (std::uint64_t corner = 0; corner < std::uint64_t{1} << rank; ++corner) {
    double weight = 1;
    std::int64_t at = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      const bool upper = (corner >> d) & 1u;
      weight *= upper ? samples[d]->weight : 1.0 - samples[d]->weight;
      at += (upper ? samples[d]->high : samples[d]->low) * strides[d];
    }
    if (weight != 0) sum += weight * data[static_cast<std::size_t>(at)];
  }
  return sum;
}

std::vector<double> reals(const NDArray& x) {
  const Elements<double> values(x);
  return {values.span().begin(), values.span().end()};
}

void check_input(const Call& call) {
  const Shape& shape = call.input(0).shape();
  if (shape.rank() > 16) call.unsupported("interpolation over more than 16 axes");
  for (const std::int64_t dim : shape) {
    if (dim == 0) call.shape_error("an empty dimension cannot be interpolated");
  }
}

NDArray result_of(const NDArray& x, const Shape& shape, std::vector<double>& values) {
  if (is_integer(x.dtype())) {
    for (double& v : values) v = std::nearbyint(v);
  }
  if (x.dtype() != DType::kF64 && is_float(x.dtype())) {
    return stored(x.dtype(), shape, std::vector<float>(values.begin(), values.end()));
  }
  return stored(x.dtype(), shape, values);
}

}  // namespace

Results interpolate_kernel(const Call& call) {
  check_input(call);
  const NDArray& x = call.input(0);
  const std::size_t rank = x.shape().rank();
  const bool linear = linear_mode(call);
  const std::vector<std::int64_t> dims = int_list(call, 1);
  const Elements<float> scale(call.input(2)), offset(call.input(3));
  if (dims.size() != rank || scale.size() != rank || offset.size() != rank) {
    call.shape_error("output shape, scale and offset need one element per axis");
  }
  for (const std::int64_t dim : dims) non_negative(call, dim, "an extent");
  const Shape shape(dims);
  const std::int64_t count = shape.element_count();
  std::vector<std::vector<Sample>> samples(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    for (std::int64_t i = 0; i < (count == 0 ? 0 : dims[d]); ++i) {
      const float position = static_cast<float>(i) + 0.5f - offset[d];
      samples[d].push_back(sample_at(static_cast<double>(position / scale[d] - 0.5f), x.shape()[d], linear));
    }
  }
  const std::vector<double> data = reals(x);
  const std::vector<std::int64_t> strides = x.shape().row_major_strides();
  const std::vector<std::int64_t> out_strides = shape.row_major_strides();
  std::vector<double> out(static_cast<std::size_t>(count));
  std::vector<const Sample*> at(rank);
  for (std::size_t i = 0; i < out.size(); ++i) {
    auto left = static_cast<std::int64_t>(i);
    for (std::size_t d = 0; d < rank; ++d) {
      at[d] = &samples[d][static_cast<std::size_t>(left / out_strides[d])];
      left %= out_strides[d];
    }
    out[i] = value_of(data, strides, at);
  }
  return {result_of(x, shape, out)};
}

Results interpolate_coordinates_kernel(const Call& call) {
  check_input(call);
  const NDArray& x = call.input(0);
  const NDArray& coordinates = call.input(1);
  const std::size_t rank = x.shape().rank();
  if (coordinates.shape().rank() != 2 || coordinates.shape()[1] != static_cast<std::int64_t>(rank)) {
    call.shape_error("the coordinates need one column per axis");
  }
  const bool linear = linear_mode(call);
  const Elements<float> c(coordinates);
  const std::vector<double> data = reals(x);
  const std::vector<std::int64_t> strides = x.shape().row_major_strides();
  std::vector<double> out(static_cast<std::size_t>(coordinates.shape()[0]));
  std::vector<Sample> samples(rank);
  std::vector<const Sample*> at(rank);
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::size_t d = 0; d < rank; ++d) {
      samples[d] = sample_at(static_cast<double>(c[i * rank + d]), x.shape()[d], linear);
      at[d] = &samples[d];
    }
    out[i] = value_of(data, strides, at);
  }
  return {result_of(x, Shape{coordinates.shape()[0]}, out)};
}

// An image value is the byte tensor that image_to_tensor gives.
Results image_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  if (x.dtype() != DType::kUI8) call.unsupported("images are made of ui8");
  return {x};
}

}  // namespace coreai::cpu::reference
