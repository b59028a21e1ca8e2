// Pooling over the last two or three axes, no padding.
#include <fmt/format.h>

#include <array>
#include <limits>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

using Triple = std::array<std::int64_t, 3>;

struct Pool {
  std::int64_t planes;
  Triple in, window, stride, dilation, out;
  Shape out_shape;
};

Triple operand(const Call& call, std::size_t index, std::size_t axes) {
  const std::vector<std::int64_t> values = int_list(call, index);
  if (values.size() != axes) call.shape_error(fmt::format("operand {} needs {} elements", index, axes));
  Triple result{1, 1, 1};
  for (std::size_t i = 0; i < axes; ++i) {
    if (values[i] < 1 || values[i] > (std::int64_t{1} << 31)) {
      call.shape_error(fmt::format("operand {} holds {}", index, values[i]));
    }
    result[3 - axes + i] = values[i];
  }
  return result;
}

Pool pool_of(const Call& call, bool ceil_mode) {
  const Shape& x = call.input(0).shape();
  if (x.rank() != 4 && x.rank() != 5) call.shape_error("pooling takes rank 4 or 5");
  const std::size_t axes = x.rank() - 2;
  Pool p;
  p.planes = x[0] * x[1];
  p.window = operand(call, 1, axes);
  p.stride = operand(call, 2, axes);
  p.dilation = operand(call, 3, axes);
  p.in = axes == 2 ? Triple{1, x[2], x[3]} : Triple{x[2], x[3], x[4]};
  std::vector<std::int64_t> dims = {x[0], x[1]};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t reach = p.dilation[i] * (p.window[i] - 1) + 1;
    if (reach > p.in[i]) call.shape_error("the window is larger than the input");
    const std::int64_t free = p.in[i] - reach;
    p.out[i] = (ceil_mode ? (free + p.stride[i] - 1) / p.stride[i] : free / p.stride[i]) + 1;
    if (i >= 3 - axes) dims.push_back(p.out[i]);
  }
  p.out_shape = Shape(dims);
  return p;
}

// Folds each window; cells outside the input are left out.
template <typename T, typename F>
std::vector<T> fold_windows(const Pool& p, const Elements<T>& x, T init, F f) {
  std::vector<T> out(static_cast<std::size_t>(p.out_shape.element_count()), init);
  std::size_t at = 0;
  const std::int64_t plane = p.in[0] * p.in[1] * p.in[2];
  for (std::int64_t n = 0; n < p.planes; ++n) {
    for (std::int64_t i = 0; i < p.out[0] * p.out[1] * p.out[2]; ++i, ++at) {
      const Triple origin = {i / (p.out[1] * p.out[2]) * p.stride[0], i / p.out[2] % p.out[1] * p.stride[1],
                             i % p.out[2] * p.stride[2]};
      T value = init;
      for (std::int64_t d = 0; d < p.window[0]; ++d) {
        const std::int64_t z = origin[0] + d * p.dilation[0];
        if (z >= p.in[0]) break;
        for (std::int64_t h = 0; h < p.window[1]; ++h) {
          const std::int64_t y = origin[1] + h * p.dilation[1];
          if (y >= p.in[1]) break;
          for (std::int64_t w = 0; w < p.window[2]; ++w) {
            const std::int64_t v = origin[2] + w * p.dilation[2];
            if (v >= p.in[2]) break;
            value = f(value, x.data()[n * plane + (z * p.in[1] + y) * p.in[2] + v]);
          }
        }
      }
      out[at] = value;
    }
  }
  return out;
}

template <typename T>
T lowest(DType dtype) {
  if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
  if constexpr (std::is_signed_v<T>) return static_cast<T>(~std::uint64_t{0} << (dtype_bits(dtype) - 1));
  return T{0};
}

}  // namespace

Results max_pool_kernel(const Call& call) {
  const Pool p = pool_of(call, int_scalar(call, 4) != 0);
  const DType dtype = call.input(0).dtype();
  return with_compute_type(call, dtype, [&]<typename T>(std::type_identity<T>) -> Results {
    const Elements<T> x(call.input(0));
    const auto greater = [](T a, T b) -> T { return a >= b || a != a ? a : b; };
    return {stored(dtype, p.out_shape, fold_windows<T>(p, x, lowest<T>(dtype), greater))};
  });
}

Results sum_pool_kernel(const Call& call) {
  const Pool p = pool_of(call, false);
  const DType dtype = call.input(0).dtype();
  return with_compute_type(call, dtype, [&]<typename T>(std::type_identity<T>) -> Results {
    const Elements<T> x(call.input(0));
    const auto sum = [](T a, T b) -> T {
      if constexpr (std::is_floating_point_v<T>) return a + b;
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    };
    return {stored(dtype, p.out_shape, fold_windows<T>(p, x, T{0}, sum))};
  });
}

}  // namespace coreai::cpu::reference
