// One operand, one result of the same shape. Floats are computed in double and rounded once, so that no result depends
// on the vector unit that a libm picks for float.
#include <cmath>
#include <complex>
#include <numbers>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

double sigmoid_of(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

template <typename F>
Results map_floats(const Call& call, F f) {
  const NDArray& x = call.input(0);
  if (!is_float(x.dtype())) call.unsupported("the operation takes floats");
  return with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) -> Results {
    if constexpr (std::is_floating_point_v<T>) {
      const Elements<T> in(x);
      std::vector<T> out(in.size());
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(f(static_cast<double>(in[i])));
      return {stored(x.dtype(), x.shape(), out)};
    } else {
      call.unsupported("the operation takes floats");
    }
  });
}

using Complex = std::complex<double>;

template <typename F>
Results map_complex(const Call& call, F f) {
  const NDArray& x = call.input(0);
  if (x.dtype() != DType::kComplexF32) call.unsupported("of the complex types only complex<f32> is computed with");
  NDArray out(x.dtype(), x.shape());
  const NDArray aligned = x.clone();
  const auto* from = reinterpret_cast<const float*>(aligned.bytes().data());
  auto* to = reinterpret_cast<float*>(out.mutable_bytes().data());
  for (std::int64_t i = 0; i < x.element_count(); ++i) {
    const Complex y = f(Complex(static_cast<double>(from[2 * i]), static_cast<double>(from[2 * i + 1])));
    to[2 * i] = static_cast<float>(y.real());
    to[2 * i + 1] = static_cast<float>(y.imag());
  }
  return {std::move(out)};
}

template <typename R, typename C>
Results map_real_or_complex(const Call& call, R real, C complex) {
  if (is_complex(call.input(0).dtype())) return map_complex(call, complex);
  return map_floats(call, real);
}

template <typename F>
Results map_any(const Call& call, F f) {
  const NDArray& x = call.input(0);
  return with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) -> Results {
    const Elements<T> in(x);
    std::vector<T> out(in.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(in[i]);
    return {stored(x.dtype(), x.shape(), out)};
  });
}

}  // namespace

#define COREAI_REAL_KERNEL(name, expression)                      \
  Results name(const Call& call) {                                \
    return map_floats(call, [](double x) { return expression; }); \
  }
COREAI_REAL_KERNEL(acos_kernel, std::acos(x))
COREAI_REAL_KERNEL(acosh_kernel, std::acosh(x))
COREAI_REAL_KERNEL(asin_kernel, std::asin(x))
COREAI_REAL_KERNEL(asinh_kernel, std::asinh(x))
COREAI_REAL_KERNEL(atan_kernel, std::atan(x))
COREAI_REAL_KERNEL(atanh_kernel, std::atanh(x))
COREAI_REAL_KERNEL(erf_kernel, std::erf(x))
COREAI_REAL_KERNEL(rsqrt_kernel, 1.0 / std::sqrt(x))
COREAI_REAL_KERNEL(sqrt_kernel, std::sqrt(x))
COREAI_REAL_KERNEL(tanh_kernel, std::tanh(x))
#undef COREAI_REAL_KERNEL

#define COREAI_COMPLEX_KERNEL(name, function)                                                         \
  Results name(const Call& call) {                                                                    \
    return map_real_or_complex(                                                                       \
        call, [](double x) { return std::function(x); }, [](Complex x) { return std::function(x); }); \
  }
COREAI_COMPLEX_KERNEL(cos_kernel, cos)
COREAI_COMPLEX_KERNEL(cosh_kernel, cosh)
COREAI_COMPLEX_KERNEL(exp_kernel, exp)
COREAI_COMPLEX_KERNEL(log_kernel, log)
COREAI_COMPLEX_KERNEL(sin_kernel, sin)
COREAI_COMPLEX_KERNEL(sinh_kernel, sinh)
COREAI_COMPLEX_KERNEL(tan_kernel, tan)
#undef COREAI_COMPLEX_KERNEL

Results sigmoid_kernel(const Call& call) {
  return map_real_or_complex(call, sigmoid_of, [](Complex x) { return 1.0 / (1.0 + std::exp(-x)); });
}

Results silu_kernel(const Call& call) {
  return map_real_or_complex(
      call, [](double x) { return x * sigmoid_of(x); }, [](Complex x) { return x / (1.0 + std::exp(-x)); });
}

Results gelu_kernel(const Call& call) {
  const ir::AttrRef mode = call.op.attribute("approximate");
  switch (mode ? mode->as_enum() : 0) {
    case 0:
      return map_floats(call, [](double x) { return x * 0.5 * (1.0 + std::erf(x / std::numbers::sqrt2)); });
    case 1:
      return map_floats(call, [](double x) {
        return x * 0.5 * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      });
    case 2:
      return map_floats(call, [](double x) { return x * sigmoid_of(1.702 * x); });
    default:
      call.unsupported("unknown approximation mode");
  }
}

Results abs_kernel(const Call& call) {
  return map_any(call, []<typename T>(T x) -> T {
    if constexpr (std::is_floating_point_v<T>) return std::fabs(x);
    if constexpr (std::is_signed_v<T>) return x < 0 ? static_cast<T>(0 - static_cast<std::uint64_t>(x)) : x;
    return x;
  });
}

Results round_kernel(const Call& call) {
  return map_any(call, []<typename T>(T x) -> T {
    if constexpr (std::is_floating_point_v<T>) return std::nearbyint(x);  // to nearest even, the default mode
    return x;
  });
}

Results relu_kernel(const Call& call) {
  return map_any(call, []<typename T>(T x) -> T { return x < T{0} ? T{0} : x; });
}

Results not_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  if (x.dtype() != DType::kI1) call.unsupported("the operation takes booleans");
  return map_any(call, []<typename T>(T v) -> T { return v != T{0} ? T{0} : T{1}; });
}

Results create_complex_kernel(const Call& call) {
  const NDArray& re = call.input(0);
  const NDArray& im = call.input(1);
  if (re.dtype() != DType::kF32 || im.dtype() != DType::kF32) call.unsupported("complex numbers are made of f32");
  if (!(re.shape() == im.shape())) call.shape_error("real and imaginary parts differ in shape");
  NDArray out(DType::kComplexF32, re.shape());
  const Elements<float> a(re), b(im);
  auto* to = reinterpret_cast<float*>(out.mutable_bytes().data());
  for (std::size_t i = 0; i < a.size(); ++i) {
    to[2 * i] = a[i];
    to[2 * i + 1] = b[i];
  }
  return {std::move(out)};
}

namespace {

Results complex_part(const Call& call, std::int64_t part) {
  const NDArray& x = call.input(0);
  if (x.dtype() != DType::kComplexF32) call.unsupported("the operation takes complex<f32>");
  const NDArray aligned = x.clone();
  const auto* from = reinterpret_cast<const float*>(aligned.bytes().data());
  std::vector<float> out(static_cast<std::size_t>(x.element_count()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = from[2 * static_cast<std::int64_t>(i) + part];
  return {stored(call.result_dtype(), x.shape(), out)};
}

}  // namespace

Results real_part_kernel(const Call& call) {
  return complex_part(call, 0);
}
Results imaginary_part_kernel(const Call& call) {
  return complex_part(call, 1);
}

}  // namespace coreai::cpu::reference
