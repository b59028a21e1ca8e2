// Reductions with kept dimensions, softmax, argmax. Float sums run in double and are rounded once.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

struct Plan {
  Shape out;
  std::vector<std::int64_t> in_strides, out_strides;
  std::int64_t reduced = 1;  // elements per result
};

Plan make_plan(const Call& call) {
  const Shape& shape = call.input(0).shape();
  Plan plan{shape, shape.row_major_strides(), {}, 1};
  for (const std::size_t axis : axis_list(call, 1, shape.rank())) {
    plan.reduced *= shape[axis];
    plan.out[axis] = 1;
  }
  plan.out_strides = broadcast_strides(plan.out, shape);
  return plan;
}

// Folds `f(accumulator, element)` from `init`; accumulators of type A.
template <typename A, typename T, typename F>
std::vector<A> fold(const Plan& plan, const Shape& shape, const Elements<T>& in, A init, F f) {
  std::vector<A> acc(static_cast<std::size_t>(plan.out.element_count()), init);
  const std::array<std::vector<std::int64_t>, 2> strides = {plan.in_strides, plan.out_strides};
  const std::int64_t step = shape.rank() ? plan.out_strides.back() : 0;
  walk<2>(shape, strides, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
    const T* from = in.data() + at[0];
    A* to = acc.data() + at[1];
    if (step == 0) {
      A value = *to;
      for (std::int64_t i = 0; i < n; ++i) value = f(value, from[i]);
      *to = value;
    } else {
      for (std::int64_t i = 0; i < n; ++i) to[i] = f(to[i], from[i]);
    }
  });
  return acc;
}

template <typename F, typename I>
Results reduce_with(const Call& call, I init, F f) {
  const NDArray& x = call.input(0);
  const Plan plan = make_plan(call);
  return with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) -> Results {
    const Elements<T> in(x);
    return { stored(x.dtype(), plan.out, fold<T>(plan, x.shape(), in, init.template operator()<T>(x.dtype()), f)) };
  });
}

// The value that any element of the dtype replaces in a maximum (`want_low`) or minimum.
template <typename T>
T extreme(DType dtype, bool want_low) {
  if constexpr (std::is_floating_point_v<T>) {
    return want_low ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
  } else {
    const auto bits = static_cast<unsigned>(dtype_bits(dtype));
    if constexpr (std::is_signed_v<T>) {
      const std::uint64_t high = (std::uint64_t{1} << (bits - 1)) - 1;
      return want_low ? -static_cast<T>(high) - 1 : static_cast<T>(high);
    } else {
      return want_low ? 0 : std::numeric_limits<std::uint64_t>::max() >> (64 - bits);
    }
  }
}

std::vector<double> float_sums(const Plan& plan, const NDArray& x) {
  if (x.dtype() == DType::kF64) {
    const Elements<double> in(x);
    return fold<double>(plan, x.shape(), in, 0.0, [](double a, double b) { return a + b; });
  }
  const Elements<float> in(x);
  return fold<double>(plan, x.shape(), in, 0.0, [](double a, float b) { return a + static_cast<double>(b); });
}

NDArray rounded(DType dtype, const Shape& shape, const std::vector<double>& values) {
  if (dtype == DType::kF64) return stored(dtype, shape, values);
  return stored(dtype, shape, std::vector<float>(values.begin(), values.end()));
}

Results reduce_booleans(const Call& call, bool all) {
  if (call.input(0).dtype() != DType::kI1) call.unsupported("the operation takes booleans");
  return reduce_with(
      call, [all]<typename T>(DType) { return all ? T{1} : T{0}; },
      [all]<typename T>(T a, T b) -> T {
        const bool p = a != T{0};
        const bool q = b != T{0};
        return (all ? p && q : p || q) ? T{1} : T{0};
      });
}

}  // namespace

Results reduce_sum_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  if (is_float(x.dtype())) {
    const Plan plan = make_plan(call);
    return {rounded(x.dtype(), plan.out, float_sums(plan, x))};
  }
  return reduce_with(
      call, []<typename T>(DType) { return T{0}; },
      []<typename T>(T a, T b) -> T {
        if constexpr (std::is_floating_point_v<T>) return a + b;
        return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
      });
}

Results reduce_mean_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  if (!is_float(x.dtype())) call.unsupported("a mean takes floats");
  const Plan plan = make_plan(call);
  std::vector<double> sums = float_sums(plan, x);
  for (double& sum : sums) sum /= static_cast<double>(plan.reduced);
  return {rounded(x.dtype(), plan.out, sums)};
}

Results reduce_product_kernel(const Call& call) {
  return reduce_with(
      call, []<typename T>(DType) { return T{1}; },
      []<typename T>(T a, T b) -> T {
        if constexpr (std::is_floating_point_v<T>) return a * b;
        return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      });
}

Results reduce_max_kernel(const Call& call) {
  return reduce_with(
      call, []<typename T>(DType dtype) { return extreme<T>(dtype, true); },
      []<typename T>(T a, T b) -> T { return a >= b || a != a ? a : b; });
}

Results reduce_min_kernel(const Call& call) {
  return reduce_with(
      call, []<typename T>(DType dtype) { return extreme<T>(dtype, false); },
      []<typename T>(T a, T b) -> T { return a <= b || a != a ? a : b; });
}

Results all_kernel(const Call& call) {
  return reduce_booleans(call, true);
}
Results any_kernel(const Call& call) {
  return reduce_booleans(call, false);
}

namespace {

// Softmax of `n` elements `stride` apart. A row of -inf only gives zeros; +inf takes the mass, shared equally.
template <typename T>
void softmax_row(const T* in, T* out, std::int64_t n, std::int64_t stride) {
  T highest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = in[i * stride];
    if (x != x) {
      for (std::int64_t k = 0; k < n; ++k) out[k * stride] = x;
      return;
    }
    highest = std::max(highest, x);
  }
  double sum = 0;
  const bool infinite = std::isinf(highest);
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = in[i * stride];
    T e = 0;
    if (infinite) {
      e = highest > 0 && x == highest ? T{1} : T{0};
    } else {
      e = static_cast<T>(std::exp(static_cast<double>(x - highest)));
    }
    out[i * stride] = e;
    sum += static_cast<double>(e);
  }
  if (sum == 0) return;
  const T divisor = static_cast<T>(sum);
  for (std::int64_t i = 0; i < n; ++i) out[i * stride] /= divisor;
}

}  // namespace

Results softmax_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  if (!is_float(x.dtype())) call.unsupported("softmax takes floats");
  const Shape& shape = x.shape();
  const std::size_t axis = axis_index(call, int_scalar(call, 1), shape.rank());
  const std::int64_t n = shape[axis];
  const std::int64_t inner = extent_product(shape, axis + 1, shape.rank());
  const std::int64_t outer = extent_product(shape, 0, axis);
  const auto run = [&]<typename T>(std::type_identity<T>) -> Results {
    const Elements<T> in(x);
    std::vector<T> out(in.size());
    for (std::int64_t o = 0; n > 0 && o < outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const std::int64_t at = o * n * inner + i;
        softmax_row(in.data() + at, out.data() + at, n, inner);
      }
    }
    return {stored(x.dtype(), shape, out)};
  };
  if (x.dtype() == DType::kF64) return run(std::type_identity<double>{});
  return run(std::type_identity<float>{});
}

Results argmax_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::size_t axis = axis_index(call, int_scalar(call, 1), x.shape().rank());
  const std::int64_t n = x.shape()[axis];
  if (n == 0) call.shape_error("there is no greatest element along an empty dimension");
  Shape shape = x.shape();
  shape[axis] = 1;
  const std::int64_t inner = extent_product(shape, axis + 1, shape.rank());
  const std::int64_t outer = extent_product(shape, 0, axis);
  std::vector<std::int64_t> out;
  out.reserve(static_cast<std::size_t>(outer * inner));
  with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) {
    const Elements<T> in(x);
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t i = 0; i < inner; ++i) {
        const T* row = in.data() + o * n * inner + i;
        std::int64_t best = 0;
        for (std::int64_t k = 1; k < n; ++k) {
          const T held = row[best * inner];
          const T candidate = row[k * inner];
          if (candidate > held || (held != held && candidate == candidate)) best = k;
        }
        out.push_back(best);
      }
    }
  });
  return {stored(call.result_dtype(), shape, out)};
}

}  // namespace coreai::cpu::reference
