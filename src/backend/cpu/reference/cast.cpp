// Conversions between element types. Floats to integers truncate and saturate, NaN gives 0; integers clamp; anything
// to i1 is a test against zero. One rule at compile time and at run time.
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

struct Range {
  std::int64_t low;
  std::uint64_t high;
};

Range integer_range(DType dtype) {
  const auto bits = static_cast<unsigned>(dtype_bits(dtype));
  if (dtype_class(dtype) == DTypeClass::kSigned) {
    const std::uint64_t high = (std::uint64_t{1} << (bits - 1)) - 1;
    return {-static_cast<std::int64_t>(high) - 1, high};
  }
  return {0, bits == 64 ? std::numeric_limits<std::uint64_t>::max() : (std::uint64_t{1} << bits) - 1};
}

template <typename T>
T clamped(T value, const Range& range) {
  if constexpr (std::is_signed_v<T>) {
    if (value < range.low) return range.low;
    if (value > 0 && static_cast<std::uint64_t>(value) > range.high) return static_cast<T>(range.high);
    return value;
  } else {
    return value > range.high ? range.high : value;
  }
}

// An integer as a double whose lowest bit is sticky: a second rounding to a format of at most 32 bits is exact.
template <typename T>
double sticky_double(T value) {
  bool negative = false;
  std::uint64_t magnitude = static_cast<std::uint64_t>(value);
  if constexpr (std::is_signed_v<T>) {
    negative = value < 0;
    if (negative) magnitude = 0 - magnitude;
  }
  const int excess = 64 - std::countl_zero(magnitude) - 53;
  if (excess > 0) {
    const std::uint64_t lost = magnitude & ((std::uint64_t{1} << excess) - 1);
    magnitude >>= excess;
    if (lost != 0) magnitude |= 1u;
    const double scaled = std::ldexp(static_cast<double>(magnitude), excess);
    return negative ? -scaled : scaled;
  }
  const auto exact = static_cast<double>(magnitude);
  return negative ? -exact : exact;
}

template <typename T>
NDArray cast_integers(const NDArray& x, DType to) {
  const Elements<T> in(x);
  if (is_integer(to)) {
    const Range range = integer_range(to);
    std::vector<T> out(in.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = clamped(in[i], range);
    return stored(to, x.shape(), out);
  }
  std::vector<double> out(in.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = to == DType::kF64 ? static_cast<double>(in[i]) : sticky_double(in[i]);
  }
  return stored(to, x.shape(), out);
}

template <typename T>
NDArray cast_floats(const NDArray& x, DType to) {
  const Elements<T> in(x);
  NDArray out(to, x.shape());
  if (is_float(to)) {
    store(out, in.span());
    return out;
  }
  std::vector<double> wide(in.span().begin(), in.span().end());
  write_from_f64(out, wide);
  return out;
}

NDArray cast_to_complex(const Call& call, const NDArray& x) {
  if (call.result_dtype() != DType::kComplexF32) call.unsupported("of the complex types only complex<f32> is used");
  NDArray out(DType::kComplexF32, x.shape());
  const Elements<float> in(x);
  auto* to = reinterpret_cast<float*>(out.mutable_bytes().data());
  for (std::size_t i = 0; i < in.size(); ++i) to[2 * i] = in[i];
  return out;
}

}  // namespace

NDArray cast_array(const Call& call, const NDArray& x, DType to) {
  if (x.dtype() == to) return x;
  if (is_complex(x.dtype())) call.unsupported("a complex tensor casts to no other type");
  if (is_complex(to)) return cast_to_complex(call, x);
  return with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) -> NDArray {
    if (to == DType::kI1) {
      const Elements<T> in(x);
      std::vector<std::uint64_t> out(in.size());
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = in[i] != T{0};
      return stored(to, x.shape(), out);
    }
    if constexpr (std::is_floating_point_v<T>) {
      return cast_floats<T>(x, to);
    } else {
      return cast_integers<T>(x, to);
    }
  });
}

Results cast_kernel(const Call& call) {
  return {cast_array(call, call.input(0), call.result_dtype())};
}

Results identity_kernel(const Call& call) {
  return {call.input(0)};
}

}  // namespace coreai::cpu::reference
