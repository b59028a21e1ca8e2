#include "backend/cpu/reference/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "backend/cpu/reference/packing.h"
#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai::cpu::reference {

std::string Call::where() const {
  std::string text(op.info().text_name.empty() ? op.info().disk_name : op.info().text_name);
  text += " of (";
  for (std::size_t i = 0; i < in.size(); ++i) {
    text += fmt::format("{}[{}]{}", i ? ", " : "", in[i].shape().to_string(), dtype_name(in[i].dtype()));
  }
  return text + ")";
}

void Call::shape_error(const std::string& problem) const {
  throw ShapeError(problem, where());
}

void Call::value_error(const std::string& problem) const {
  throw InvalidArgumentError(problem, where());
}

void Call::unsupported(const std::string& problem) const {
  throw UnsupportedError(problem, where());
}

namespace {

// f16 to f32 without a branch per case: the exponent is rebiased by a multiplication, which also makes subnormals.
inline float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = magnitude | 0x7f800000u;
  return std::bit_cast<float>(sign | ((bits & 0x7c00u) == 0x7c00u ? special : finite));
}

template <typename From, typename T>
void convert(const NDArray& array, std::vector<T>& out) {
  const auto values = array.values<From>();
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): 8-bit numbers, whose sign counts
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(values[i]);
}

template <typename From, typename T, typename F>
void convert_with(const NDArray& array, std::vector<T>& out, F f) {
  const auto values = array.values<From>();
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(f(values[i]));
}

template <typename T>
void convert_codes(const NDArray& array, std::vector<T>& out) {
  const std::vector<std::uint8_t> codes = unpack_codes(array);
  const int bits = dtype_bits(array.dtype());
  std::array<T, 64> table{};
  for (std::uint32_t code = 0; code < (1u << bits); ++code) {
    if (array.dtype() == DType::kF4E2M1FN) {
      table[code] = static_cast<T>(f4e2m1fn_to_f32(static_cast<std::uint8_t>(code)));
    } else if (dtype_class(array.dtype()) == DTypeClass::kSigned && (code >> (bits - 1))) {
      table[code] = static_cast<T>(static_cast<std::int64_t>(code) - (1 << bits));
    } else {
      table[code] = static_cast<T>(code);
    }
  }
  for (std::size_t i = 0; i < codes.size(); ++i) out[i] = table[codes[i]];
}

template <typename T>
void load(const NDArray& array, std::vector<T>& out) {
  switch (array.dtype()) {
    case DType::kI1:
      return convert_with<std::uint8_t>(array, out, [](std::uint8_t v) { return v != 0; });
    case DType::kUI8:
      return convert<std::uint8_t>(array, out);
    case DType::kSI8:
      return convert<std::int8_t>(array, out);
    case DType::kSI16:
      return convert<std::int16_t>(array, out);
    case DType::kSI32:
      return convert<std::int32_t>(array, out);
    case DType::kSI64:
      return convert<std::int64_t>(array, out);
    case DType::kUI16:
      return convert<std::uint16_t>(array, out);
    case DType::kUI32:
      return convert<std::uint32_t>(array, out);
    case DType::kUI64:
      return convert<std::uint64_t>(array, out);
    default:
      break;
  }
  if (is_integer(array.dtype())) return convert_codes(array, out);
  if constexpr (std::is_floating_point_v<T>) {
    switch (array.dtype()) {
      case DType::kTF32:
      case DType::kF32:
        return convert<float>(array, out);
      case DType::kF64:
        return convert<double>(array, out);
      case DType::kF16:
        return convert_with<std::uint16_t>(array, out, widen_f16);
      case DType::kBF16:
        return convert_with<std::uint16_t>(array, out, bf16_to_f32);
      case DType::kF8E4M3FN:
        return convert_with<std::uint8_t>(array, out, f8e4m3fn_to_f32);
      case DType::kF8E5M2:
        return convert_with<std::uint8_t>(array, out, f8e5m2_to_f32);
      case DType::kF8E8M0FNU:
        return convert_with<std::uint8_t>(array, out, f8e8m0fnu_to_f32);
      case DType::kF4E2M1FN:
        return convert_codes(array, out);
      default:
        break;
    }
  }
  throw UnsupportedError(fmt::format("elements of {} cannot be read as {}", dtype_name(array.dtype()),
                                     std::is_floating_point_v<T> ? "reals" : "integers"));
}

template <typename To, typename T>
void narrow(NDArray& out, std::span<const T> values) {
  auto to = out.mutable_values<To>();
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<To>(values[i]);
}

template <typename To, typename T, typename F>
void narrow_with(NDArray& out, std::span<const T> values, F f) {
  auto to = out.mutable_values<To>();
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = f(values[i]);
}

template <typename T>
void store_floats(NDArray& out, std::span<const T> values) {
  COREAI_INVARIANT(values.size() == static_cast<std::size_t>(out.element_count()));
  constexpr bool kIsDouble = std::is_same_v<T, double>;
  const auto through_f32 = [](auto f) { return [f](T v) { return f(static_cast<float>(v)); }; };
  switch (out.dtype()) {
    case DType::kTF32:
    case DType::kF32:
      return narrow<float>(out, values);
    case DType::kF64:
      return narrow<double>(out, values);
    case DType::kF16:
      if constexpr (kIsDouble) return narrow_with<std::uint16_t>(out, values, f64_to_f16);
      return narrow_with<std::uint16_t>(out, values, through_f32(f32_to_f16));
    case DType::kBF16:
      if constexpr (kIsDouble) return narrow_with<std::uint16_t>(out, values, f64_to_bf16);
      return narrow_with<std::uint16_t>(out, values, through_f32(f32_to_bf16));
    default:
      break;
  }
  std::vector<double> wide(values.begin(), values.end());
  write_from_f64(out, wide);  // 8- and 4-bit floats; integers (only after a cast) truncate and saturate
}

template <typename T>
void store_integers(NDArray& out, std::span<const T> values) {
  COREAI_INVARIANT(values.size() == static_cast<std::size_t>(out.element_count()));
  switch (out.dtype()) {
    case DType::kI1:
      return narrow_with<std::uint8_t>(out, values, [](T v) { return static_cast<std::uint8_t>(v != 0); });
    case DType::kSI8:
      return narrow<std::int8_t>(out, values);
    case DType::kUI8:
      return narrow<std::uint8_t>(out, values);
    case DType::kSI16:
      return narrow<std::int16_t>(out, values);
    case DType::kUI16:
      return narrow<std::uint16_t>(out, values);
    case DType::kSI32:
      return narrow<std::int32_t>(out, values);
    case DType::kUI32:
      return narrow<std::uint32_t>(out, values);
    case DType::kSI64:
      return narrow<std::int64_t>(out, values);
    case DType::kUI64:
      return narrow<std::uint64_t>(out, values);
    default:
      break;
  }
  if (is_integer(out.dtype())) {
    std::vector<std::uint8_t> codes(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) codes[i] = static_cast<std::uint8_t>(values[i]);
    pack_codes(codes, out);
    return;
  }
  std::vector<double> wide(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) wide[i] = static_cast<double>(values[i]);
  write_from_f64(out, wide);
}

template <typename T>
constexpr bool same_memory(DType dtype) {
  if constexpr (std::is_same_v<T, float>) return dtype == DType::kF32 || dtype == DType::kTF32;
  if constexpr (std::is_same_v<T, double>) return dtype == DType::kF64;
  if constexpr (std::is_same_v<T, std::int64_t>) return dtype == DType::kSI64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return dtype == DType::kUI64;
  return false;
}

}  // namespace

template <typename T>
Elements<T>::Elements(const NDArray& array) {
  // Mapped constants may lie at any address: elements are read in place only where they are aligned.
  const auto address = reinterpret_cast<std::uintptr_t>(array.bytes().data());
  if (same_memory<T>(array.dtype()) && address % alignof(T) == 0) {
    view_ = array.values<T>();
    return;
  }
  owned_.resize(static_cast<std::size_t>(array.element_count()));
  const auto width = static_cast<std::uintptr_t>(std::max(dtype_bits(array.dtype()) / 8, 1));
  if (address % width != 0) {
    load(array.clone(), owned_);
  } else {
    load(array, owned_);
  }
  view_ = owned_;
}

template class Elements<float>;
template class Elements<double>;
template class Elements<std::int64_t>;
template class Elements<std::uint64_t>;

void store(NDArray& out, std::span<const float> values) {
  store_floats(out, values);
}
void store(NDArray& out, std::span<const double> values) {
  store_floats(out, values);
}
void store(NDArray& out, std::span<const std::int64_t> values) {
  store_integers(out, values);
}
void store(NDArray& out, std::span<const std::uint64_t> values) {
  store_integers(out, values);
}

RawElements::RawElements(const NDArray& array) {
  if (is_subbyte(array.dtype())) {
    const std::vector<std::uint8_t> codes = unpack_codes(array);
    owned.resize(codes.size());
    if (!codes.empty()) std::memcpy(owned.data(), codes.data(), codes.size());
    data = owned.data();
    width = 1;
  } else {
    data = array.bytes().data();
    width = static_cast<std::size_t>(dtype_bits(array.dtype())) / 8;
  }
}

RawOutput::RawOutput(DType dtype, const Shape& shape) : array_(dtype, shape) {
  width_ = is_subbyte(dtype) ? 1 : static_cast<std::size_t>(dtype_bits(dtype)) / 8;
  if (is_subbyte(dtype)) unpacked_.resize(static_cast<std::size_t>(array_.element_count()));
}

RawOutput::RawOutput(const NDArray& array) : array_(array.clone()) {
  width_ = is_subbyte(array.dtype()) ? 1 : static_cast<std::size_t>(dtype_bits(array.dtype())) / 8;
  if (is_subbyte(array.dtype())) unpacked_ = RawElements(array).owned;
}

NDArray RawOutput::finish() {
  if (!unpacked_.empty()) {
    pack_codes({reinterpret_cast<const std::uint8_t*>(unpacked_.data()), unpacked_.size()}, array_);
  }
  return std::move(array_);
}

void copy_element(std::byte* to, const std::byte* from, std::size_t width) {
  switch (width) {
    case 1:
      *to = *from;
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    default:
      std::memcpy(to, from, width);
  }
}

std::vector<std::int64_t> int_list(const Call& call, std::size_t operand) {
  const NDArray& array = call.input(operand);
  if (!is_integer(array.dtype()) && array.dtype() != DType::kI1) call.unsupported("an index operand is not integer");
  if (array.shape().rank() > 1) call.shape_error(fmt::format("operand {} must be a scalar or a vector", operand));
  const Elements<std::int64_t> values(array);
  return {values.span().begin(), values.span().end()};
}

std::int64_t int_scalar(const Call& call, std::size_t operand) {
  const std::vector<std::int64_t> values = int_list(call, operand);
  if (values.size() != 1) call.shape_error(fmt::format("operand {} must hold one element", operand));
  return values[0];
}

std::size_t axis_index(const Call& call, std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) {
    call.shape_error(fmt::format("axis {} is outside a tensor of rank {}", axis, rank));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

std::vector<std::size_t> axis_list(const Call& call, std::size_t operand, std::size_t rank) {
  std::vector<std::size_t> axes;
  for (const std::int64_t axis : int_list(call, operand)) {
    const std::size_t index = axis_index(call, axis, rank);
    if (std::find(axes.begin(), axes.end(), index) != axes.end()) {
      call.shape_error(fmt::format("axis {} is given twice", axis));
    }
    axes.push_back(index);
  }
  return axes;
}

std::int64_t non_negative(const Call& call, std::int64_t value, const char* what) {
  if (value < 0) call.shape_error(fmt::format("{} is {}, it must not be negative", what, value));
  return value;
}

Shape broadcast(const Call& call, const Shape& a, const Shape& b) {
  const std::optional<Shape> out = broadcast_shapes(a, b);
  if (!out) call.shape_error(fmt::format("[{}] and [{}] do not broadcast", a.to_string(), b.to_string()));
  return *out;
}

std::vector<std::int64_t> broadcast_strides(const Shape& shape, const Shape& out) {
  std::vector<std::int64_t> strides(out.rank(), 0);
  const std::size_t lead = out.rank() - shape.rank();
  std::int64_t stride = 1;
  for (std::size_t d = shape.rank(); d-- > 0;) {
    strides[lead + d] = shape[d] == 1 && out[lead + d] != 1 ? 0 : stride;
    stride *= shape[d];
  }
  return strides;
}

std::int64_t extent_product(const Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t product = 1;
  for (std::size_t d = begin; d < end; ++d) product *= shape[d];
  return product;
}

}  // namespace coreai::cpu::reference
