// Convolutions (cross-correlation, no padding) and transposed convolutions. Two spatial axes are three with a depth of
// one. Sums run in f32 (f64 for f64), tap by tap in row-major order of the kernel.
#include <fmt/format.h>

#include <array>
#include <complex>
#include <cstring>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

using Triple = std::array<std::int64_t, 3>;

Triple spatial(const Shape& shape) {
  return shape.rank() == 4 ? Triple{1, shape[2], shape[3]} : Triple{shape[2], shape[3], shape[4]};
}

// A stride, dilation or padding operand; `absent` stands for the depth of two-dimensional data.
Triple triple_operand(const Call& call, std::size_t operand, std::size_t axes, std::int64_t absent,
                      std::int64_t least) {
  const std::vector<std::int64_t> values = int_list(call, operand);
  if (values.size() != axes) call.shape_error(fmt::format("operand {} needs {} elements", operand, axes));
  Triple result{absent, absent, absent};
  for (std::size_t i = 0; i < axes; ++i) {
    if (values[i] < least || values[i] > (std::int64_t{1} << 31)) {
      call.shape_error(fmt::format("operand {} holds {}", operand, values[i]));
    }
    result[3 - axes + i] = values[i];
  }
  return result;
}

std::int64_t product(const Triple& t) {
  return t[0] * t[1] * t[2];
}

struct Convolution {
  std::int64_t batch, in_channels, out_channels, groups;
  Triple in, kernel, out, stride, dilation, padding{0, 0, 0};
  Shape out_shape;
};

std::size_t spatial_axes(const Call& call) {
  const std::size_t rank = call.input(0).shape().rank();
  if ((rank != 4 && rank != 5) || call.input(1).shape().rank() != rank) {
    call.shape_error("a convolution takes an input and a weight of rank 4 or 5");
  }
  if (call.input(0).dtype() != call.input(1).dtype()) call.unsupported("input and weight differ in element type");
  const DType dtype = call.input(0).dtype();
  if (!is_float(dtype) && dtype != DType::kComplexF32) call.unsupported("a convolution takes floats or complex<f32>");
  return rank - 2;
}

void set_output(Convolution& c, std::size_t axes) {
  std::vector<std::int64_t> dims = {c.batch, c.out_channels};
  for (std::size_t i = 3 - axes; i < 3; ++i) dims.push_back(c.out[i]);
  c.out_shape = Shape(dims);
  c.out_shape.element_count();
}

void check_groups(const Call& call, const Convolution& c) {
  if (c.groups < 1 || c.in_channels % c.groups != 0 || c.out_channels % c.groups != 0) {
    call.shape_error(
        fmt::format("{} groups for {} input and {} output channels", c.groups, c.in_channels, c.out_channels));
  }
}

Convolution convolution_of(const Call& call) {
  const std::size_t axes = spatial_axes(call);
  const Shape& x = call.input(0).shape();
  const Shape& w = call.input(1).shape();
  Convolution c;
  c.batch = x[0];
  c.in_channels = x[1];
  c.out_channels = w[0];
  c.in = spatial(x);
  c.kernel = spatial(w);
  c.stride = triple_operand(call, 2, axes, 1, 1);
  c.dilation = triple_operand(call, 3, axes, 1, 1);
  c.groups = int_scalar(call, 4);
  check_groups(call, c);
  if (w[1] != c.in_channels / c.groups) call.shape_error("the weight has another number of input channels");
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t reach = c.dilation[i] * (c.kernel[i] - 1) + 1;
    if (c.kernel[i] < 1 || reach > c.in[i]) call.shape_error("the kernel is larger than the input");
    c.out[i] = (c.in[i] - reach) / c.stride[i] + 1;
  }
  set_output(c, axes);
  return c;
}

template <typename T>
void convolve_plane(const Convolution& c, const T* x, const T* w, T* y) {
  const std::int64_t row = c.out[2];
  for (std::int64_t kd = 0; kd < c.kernel[0]; ++kd) {
    for (std::int64_t kh = 0; kh < c.kernel[1]; ++kh) {
      for (std::int64_t kw = 0; kw < c.kernel[2]; ++kw) {
        const T tap = w[(kd * c.kernel[1] + kh) * c.kernel[2] + kw];
        for (std::int64_t d = 0; d < c.out[0]; ++d) {
          for (std::int64_t h = 0; h < c.out[1]; ++h) {
            const std::int64_t in_d = d * c.stride[0] + kd * c.dilation[0];
            const std::int64_t in_h = h * c.stride[1] + kh * c.dilation[1];
            const T* from = x + (in_d * c.in[1] + in_h) * c.in[2] + kw * c.dilation[2];
            T* to = y + (d * c.out[1] + h) * row;
            if (c.stride[2] == 1) {
              for (std::int64_t i = 0; i < row; ++i) to[i] += tap * from[i];
            } else {
              for (std::int64_t i = 0; i < row; ++i) to[i] += tap * from[i * c.stride[2]];
            }
          }
        }
      }
    }
  }
}

// An operand's elements in compute type T, and the result's array; complex<f32> included.
template <typename T>
auto elements_of(const NDArray& array) {
  if constexpr (std::is_same_v<T, std::complex<float>>) {
    std::vector<T> values(static_cast<std::size_t>(array.element_count()));
    if (!values.empty()) std::memcpy(values.data(), array.bytes().data(), array.byte_size());
    return values;
  } else {
    return Elements<T>(array);
  }
}

template <typename T>
NDArray array_of(DType dtype, const Shape& shape, const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, std::complex<float>>) {
    return NDArray::from<T>(dtype, shape, values);
  } else {
    return stored(dtype, shape, values);
  }
}

template <typename T>
Results convolve(const Call& call) {
  const Convolution c = convolution_of(call);
  const auto x = elements_of<T>(call.input(0)), w = elements_of<T>(call.input(1));
  std::vector<T> y(static_cast<std::size_t>(c.out_shape.element_count()), T{0});
  const std::int64_t per_group = c.in_channels / c.groups;
  const std::int64_t out_per_group = c.out_channels / c.groups;
  for (std::int64_t n = 0; n < c.batch; ++n) {
    for (std::int64_t o = 0; o < c.out_channels; ++o) {
      for (std::int64_t i = 0; i < per_group; ++i) {
        const std::int64_t channel = n * c.in_channels + o / out_per_group * per_group + i;
        convolve_plane(c, x.data() + channel * product(c.in), w.data() + (o * per_group + i) * product(c.kernel),
                       y.data() + (n * c.out_channels + o) * product(c.out));
      }
    }
  }
  return {array_of(call.input(0).dtype(), c.out_shape, y)};
}

Convolution transposed_of(const Call& call) {
  const std::size_t axes = spatial_axes(call);
  const Shape& x = call.input(0).shape();
  const Shape& w = call.input(1).shape();
  Convolution c;
  c.batch = x[0];
  c.in_channels = x[1];
  c.groups = int_scalar(call, 6);
  if (w[0] != c.in_channels) call.shape_error("the weight has another number of input channels");
  if (c.groups < 1 || c.groups > (std::int64_t{1} << 31)) call.shape_error("the number of groups is out of range");
  c.out_channels = w[1] * c.groups;
  check_groups(call, c);
  c.in = spatial(x);
  c.kernel = spatial(w);
  c.stride = triple_operand(call, 2, axes, 1, 1);
  c.padding = triple_operand(call, 3, axes, 0, 0);
  c.dilation = triple_operand(call, 4, axes, 1, 1);
  const Triple extra = triple_operand(call, 5, axes, 0, 0);
  for (std::size_t i = 0; i < 3; ++i) {
    if (c.in[i] < 1 || c.kernel[i] < 1) call.shape_error("input and kernel must not be empty");
    c.out[i] = (c.in[i] - 1) * c.stride[i] - 2 * c.padding[i] + c.dilation[i] * (c.kernel[i] - 1) + 1 + extra[i];
    if (c.out[i] < 0) call.shape_error("the padding is larger than the result");
  }
  set_output(c, axes);
  return c;
}

template <typename T>
void transpose_plane(const Convolution& c, const T* x, const T* w, T* y) {
  for (std::int64_t d = 0; d < c.in[0]; ++d) {
    for (std::int64_t h = 0; h < c.in[1]; ++h) {
      for (std::int64_t v = 0; v < c.in[2]; ++v) {
        const T value = x[(d * c.in[1] + h) * c.in[2] + v];
        for (std::int64_t kd = 0; kd < c.kernel[0]; ++kd) {
          const std::int64_t od = d * c.stride[0] - c.padding[0] + kd * c.dilation[0];
          if (od < 0 || od >= c.out[0]) continue;
          for (std::int64_t kh = 0; kh < c.kernel[1]; ++kh) {
            const std::int64_t oh = h * c.stride[1] - c.padding[1] + kh * c.dilation[1];
            if (oh < 0 || oh >= c.out[1]) continue;
            for (std::int64_t kw = 0; kw < c.kernel[2]; ++kw) {
              const std::int64_t ow = v * c.stride[2] - c.padding[2] + kw * c.dilation[2];
              if (ow < 0 || ow >= c.out[2]) continue;
              y[(od * c.out[1] + oh) * c.out[2] + ow] += value * w[(kd * c.kernel[1] + kh) * c.kernel[2] + kw];
            }
          }
        }
      }
    }
  }
}

template <typename T>
Results convolve_transposed(const Call& call) {
  const Convolution c = transposed_of(call);
  const auto x = elements_of<T>(call.input(0)), w = elements_of<T>(call.input(1));
  std::vector<T> y(static_cast<std::size_t>(c.out_shape.element_count()), T{0});
  const std::int64_t per_group = c.in_channels / c.groups;
  const std::int64_t out_per_group = c.out_channels / c.groups;
  for (std::int64_t n = 0; n < c.batch; ++n) {
    for (std::int64_t i = 0; i < c.in_channels; ++i) {
      for (std::int64_t o = 0; o < out_per_group; ++o) {
        const std::int64_t out = n * c.out_channels + i / per_group * out_per_group + o;
        transpose_plane(c, x.data() + (n * c.in_channels + i) * product(c.in),
                        w.data() + (i * out_per_group + o) * product(c.kernel), y.data() + out * product(c.out));
      }
    }
  }
  return {array_of(call.input(0).dtype(), c.out_shape, y)};
}

}  // namespace

Results conv_kernel(const Call& call) {
  if (is_complex(call.input(0).dtype())) return convolve<std::complex<float>>(call);
  return call.input(0).dtype() == DType::kF64 ? convolve<double>(call) : convolve<float>(call);
}

Results conv_transpose_kernel(const Call& call) {
  if (is_complex(call.input(0).dtype())) return convolve_transposed<std::complex<float>>(call);
  return call.input(0).dtype() == DType::kF64 ? convolve_transposed<double>(call) : convolve_transposed<float>(call);
}

}  // namespace coreai::cpu::reference
