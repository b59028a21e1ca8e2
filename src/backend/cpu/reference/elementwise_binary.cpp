// Two operands with numpy broadcasting. Integers wrap; a float result is rounded once from f32 (f64 for f64).
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <complex>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

// Calls f(out index, a index, b index, count, a step, b step) for runs that cover the broadcast result.
template <typename F>
void broadcast_runs(const Shape& a, const Shape& b, const Shape& out, F&& f) {
  const std::int64_t count = extent_product(out, 0, out.rank());
  if (count == 0) return;
  const std::int64_t a_count = extent_product(a, 0, a.rank());
  const std::int64_t b_count = extent_product(b, 0, b.rank());
  if ((a_count == count || a_count == 1) && (b_count == count || b_count == 1)) {
    f(0, 0, 0, count, a_count == 1 ? 0 : 1, b_count == 1 ? 0 : 1);
    return;
  }
  const std::array<std::vector<std::int64_t>, 3> strides = {broadcast_strides(out, out), broadcast_strides(a, out),
                                                            broadcast_strides(b, out)};
  const std::int64_t a_step = strides[1].back();
  const std::int64_t b_step = strides[2].back();
  walk<3>(out, strides,
          [&](const std::array<std::int64_t, 3>& at, std::int64_t n) { f(at[0], at[1], at[2], n, a_step, b_step); });
}

template <typename R, typename T, typename F>
void apply_run(R* out, const T* a, const T* b, std::int64_t n, std::int64_t a_step, std::int64_t b_step, F f) {
  if (a_step == 1 && b_step == 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  } else if (a_step == 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[0]);
  } else if (b_step == 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[0], b[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[0], b[0]);
  }
}

void same_dtype(const Call& call) {
  if (call.input(0).dtype() != call.input(1).dtype()) call.unsupported("the operands differ in element type");
}

// `f` maps two compute values to one of the same type.
template <typename F>
Results zip(const Call& call, F f) {
  same_dtype(call);
  const NDArray& x = call.input(0);
  const NDArray& y = call.input(1);
  const Shape shape = broadcast(call, x.shape(), y.shape());
  return with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) -> Results {
    const Elements<T> a(x), b(y);
    std::vector<T> out(static_cast<std::size_t>(shape.element_count()));
    broadcast_runs(x.shape(), y.shape(), shape, [&](auto o, auto i, auto j, auto n, auto a_step, auto b_step) {
      apply_run(out.data() + o, a.data() + i, b.data() + j, n, a_step, b_step, f);
    });
    return {stored(x.dtype(), shape, out)};
  });
}

template <typename F>
Results zip_integers(const Call& call, F f) {
  if (is_float(call.input(0).dtype())) call.unsupported("the operation takes integers and booleans");
  return zip(call, [f]<typename T>(T a, T b) -> T {
    if constexpr (std::is_floating_point_v<T>) {
      return a;
    } else {
      return f(a, b);
    }
  });
}

template <typename F>
Results compare(const Call& call, F f) {
  same_dtype(call);
  const NDArray& x = call.input(0);
  const NDArray& y = call.input(1);
  const Shape shape = broadcast(call, x.shape(), y.shape());
  NDArray result(DType::kI1, shape);
  auto* out = reinterpret_cast<std::uint8_t*>(result.mutable_bytes().data());
  with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) {
    const Elements<T> a(x), b(y);
    broadcast_runs(x.shape(), y.shape(), shape, [&](auto o, auto i, auto j, auto n, auto a_step, auto b_step) {
      apply_run(out + o, a.data() + i, b.data() + j, n, a_step, b_step,
                [f](T p, T q) { return static_cast<std::uint8_t>(f(p, q)); });
    });
  });
  return {std::move(result)};
}

using Complex = std::complex<float>;

// Complex operands; `store_one(out index, value of f)` writes the result.
template <typename F, typename S>
void zip_complex(const Call& call, const Shape& shape, F f, S store_one) {
  if (call.input(0).dtype() != DType::kComplexF32) call.unsupported("of the complex types only complex<f32> is used");
  const NDArray x = call.input(0).clone();
  const NDArray y = call.input(1).clone();
  const auto* a = reinterpret_cast<const float*>(x.bytes().data());
  const auto* b = reinterpret_cast<const float*>(y.bytes().data());
  broadcast_runs(x.shape(), y.shape(), shape, [&](auto o, auto i, auto j, auto n, auto a_step, auto b_step) {
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t p = 2 * (i + k * a_step);
      const std::int64_t q = 2 * (j + k * b_step);
      store_one(o + k, f(Complex(a[p], a[p + 1]), Complex(b[q], b[q + 1])));
    }
  });
}

template <typename F>
Results zip_complex_values(const Call& call, F f) {
  same_dtype(call);
  const Shape shape = broadcast(call, call.input(0).shape(), call.input(1).shape());
  NDArray result(DType::kComplexF32, shape);
  auto* out = reinterpret_cast<float*>(result.mutable_bytes().data());
  zip_complex(call, shape, f, [out](std::int64_t i, Complex v) {
    out[2 * i] = v.real();
    out[2 * i + 1] = v.imag();
  });
  return {std::move(result)};
}

Results compare_complex(const Call& call, bool want_equal) {
  same_dtype(call);
  const Shape shape = broadcast(call, call.input(0).shape(), call.input(1).shape());
  NDArray result(DType::kI1, shape);
  auto* out = reinterpret_cast<std::uint8_t*>(result.mutable_bytes().data());
  zip_complex(
      call, shape, [want_equal](Complex p, Complex q) { return (p == q) == want_equal; },
      [out](std::int64_t i, bool v) { out[i] = static_cast<std::uint8_t>(v); });
  return {std::move(result)};
}

bool complex_operands(const Call& call) {
  return is_complex(call.input(0).dtype());
}

template <typename T>
T wrapped(std::uint64_t bits) {
  return static_cast<T>(bits);
}
template <typename T>
std::uint64_t bits_of(T value) {
  return static_cast<std::uint64_t>(value);
}

// Throws InvalidArgumentError when an integer would be divided by zero.
void check_divisors(const Call& call) {
  const NDArray& y = call.input(1);
  if (!is_integer(y.dtype()) || call.input(0).element_count() == 0) return;
  const Elements<std::int64_t> divisors(y);
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    if (divisors[i] == 0) call.value_error(fmt::format("division by zero: element {} of the divisor is 0", i));
  }
}

// The divisor is not zero.
template <typename T>
T integer_quotient(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return wrapped<T>(0 - bits_of(a));
  }
  return a / b;
}

template <typename T>
T integer_remainder(T a, T b) {
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return a % b;
}

template <typename T>
T integer_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) {
      if (base == 1) return 1;
      if (base == -1) return exponent % 2 == 0 ? 1 : -1;
      return 0;
    }
  }
  std::uint64_t result = 1, factor = bits_of(base);
  for (std::uint64_t e = bits_of(exponent); e != 0; e >>= 1) {
    if (e & 1u) result *= factor;
    factor *= factor;
  }
  return wrapped<T>(result);
}

}  // namespace

Results add_kernel(const Call& call) {
  if (complex_operands(call)) return zip_complex_values(call, [](Complex a, Complex b) { return a + b; });
  return zip(call, []<typename T>(T a, T b) -> T {
    if constexpr (std::is_floating_point_v<T>) return a + b;
    return wrapped<T>(bits_of(a) + bits_of(b));
  });
}

Results sub_kernel(const Call& call) {
  if (complex_operands(call)) return zip_complex_values(call, [](Complex a, Complex b) { return a - b; });
  return zip(call, []<typename T>(T a, T b) -> T {
    if constexpr (std::is_floating_point_v<T>) return a - b;
    return wrapped<T>(bits_of(a) - bits_of(b));
  });
}

Results mul_kernel(const Call& call) {
  if (complex_operands(call)) return zip_complex_values(call, [](Complex a, Complex b) { return a * b; });
  return zip(call, []<typename T>(T a, T b) -> T {
    if constexpr (std::is_floating_point_v<T>) return a * b;
    return wrapped<T>(bits_of(a) * bits_of(b));
  });
}

Results divide_kernel(const Call& call) {
  if (complex_operands(call)) return zip_complex_values(call, [](Complex a, Complex b) { return a / b; });
  check_divisors(call);
  return zip(call, []<typename T>(T a, T b) -> T {
    if constexpr (std::is_floating_point_v<T>) return a / b;
    return integer_quotient(a, b);
  });
}

Results floor_divide_kernel(const Call& call) {
  check_divisors(call);
  return zip(call, []<typename T>(T a, T b) -> T {
    if constexpr (std::is_floating_point_v<T>) {
      return std::floor(a / b);
    } else {
      const T quotient = integer_quotient(a, b);
      if (std::is_signed_v<T> && integer_remainder(a, b) != 0 && (a < T{0}) != (b < T{0})) return quotient - 1;
      return quotient;
    }
  });
}

Results modulo_kernel(const Call& call) {
  check_divisors(call);
  return zip(call, []<typename T>(T a, T b) -> T {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      return integer_remainder(a, b);
    }
  });
}

Results pow_kernel(const Call& call) {
  if (complex_operands(call)) {
    return zip_complex_values(
        call, [](Complex a, Complex b) { return Complex(std::pow(std::complex<double>(a), std::complex<double>(b))); });
  }
  return zip(call, []<typename T>(T a, T b) -> T {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(std::pow(static_cast<double>(a), static_cast<double>(b)));
    } else {
      return integer_power(a, b);
    }
  });
}

Results maximum_kernel(const Call& call) {
  return zip(call, []<typename T>(T a, T b) -> T { return a >= b || a != a ? a : b; });
}

Results minimum_kernel(const Call& call) {
  return zip(call, []<typename T>(T a, T b) -> T { return a <= b || a != a ? a : b; });
}

Results equal_kernel(const Call& call) {
  if (complex_operands(call)) return compare_complex(call, true);
  return compare(call, [](auto a, auto b) { return a == b; });
}

Results not_equal_kernel(const Call& call) {
  if (complex_operands(call)) return compare_complex(call, false);
  return compare(call, [](auto a, auto b) { return a != b; });
}

Results greater_kernel(const Call& call) {
  return compare(call, [](auto a, auto b) { return a > b; });
}

Results bitwise_and_kernel(const Call& call) {
  return zip_integers(call, []<typename T>(T a, T b) -> T { return a & b; });
}

Results bitwise_or_kernel(const Call& call) {
  return zip_integers(call, []<typename T>(T a, T b) -> T { return a | b; });
}

Results bitwise_xor_kernel(const Call& call) {
  return zip_integers(call, []<typename T>(T a, T b) -> T { return a ^ b; });
}

Results where_kernel(const Call& call) {
  const NDArray& condition = call.input(0);
  const NDArray& a = call.input(1);
  const NDArray& b = call.input(2);
  if (condition.dtype() != DType::kI1) call.unsupported("the condition must be boolean");
  if (a.dtype() != b.dtype()) call.unsupported("the two values differ in element type");
  const Shape shape = broadcast(call, broadcast(call, condition.shape(), a.shape()), b.shape());
  const RawElements from_a(a), from_b(b);
  RawOutput out(a.dtype(), shape);
  const auto* flags = reinterpret_cast<const std::uint8_t*>(condition.bytes().data());
  const std::array<std::vector<std::int64_t>, 4> strides = {
      broadcast_strides(shape, shape), broadcast_strides(condition.shape(), shape), broadcast_strides(a.shape(), shape),
      broadcast_strides(b.shape(), shape)};
  std::array<std::int64_t, 4> step{};
  for (std::size_t i = 0; i < 4 && shape.rank() > 0; ++i) step[i] = strides[i].back();
  const std::size_t width = out.width();
  const auto bytes = static_cast<std::int64_t>(width);
  std::byte* to = out.data();
  walk<4>(shape, strides, [&](const std::array<std::int64_t, 4>& at, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const bool take_a = flags[at[1] + i * step[1]] != 0;
      const std::byte* from =
          take_a ? from_a.data + (at[2] + i * step[2]) * bytes : from_b.data + (at[3] + i * step[3]) * bytes;
      copy_element(to + (at[0] + i) * bytes, from, width);
    }
  });
  return {out.finish()};
}

}  // namespace coreai::cpu::reference
