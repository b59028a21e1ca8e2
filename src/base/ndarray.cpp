#include "coreai/base/ndarray.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and read in place");

std::shared_ptr<Storage> Storage::allocate(std::size_t bytes) {
  std::shared_ptr<Storage> storage(new Storage());
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  if (rounded > 0) {
    storage->data_ = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
    if (!storage->data_) throw ShapeError(fmt::format("no memory for an array of {} bytes", bytes));
    std::memset(storage->data_, 0, rounded);
  }
  storage->size_ = bytes;
  storage->owned_ = true;
  return storage;
}

std::shared_ptr<Storage> Storage::borrow(std::byte* data, std::size_t bytes, bool writable,
                                         std::shared_ptr<const void> keep_alive) {
  std::shared_ptr<Storage> storage(new Storage());
  storage->data_ = data;
  storage->size_ = bytes;
  storage->writable_ = writable;
  storage->keep_alive_ = std::move(keep_alive);
  return storage;
}

Storage::~Storage() {
  if (owned_) std::free(data_);
}

NDArray::NDArray(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)), count_(shape_.element_count()) {
  if (count_ > std::numeric_limits<std::int64_t>::max() / 32) {
    throw ShapeError("the array is too large", shape_.to_string());
  }
  storage_ = Storage::allocate(dtype_bytes(dtype_, static_cast<std::uint64_t>(count_)));
  data_ = storage_->data();
}

NDArray::NDArray(DType dtype, Shape shape, std::shared_ptr<Storage> storage, std::size_t offset)
    : dtype_(dtype), shape_(std::move(shape)), count_(shape_.element_count()), storage_(std::move(storage)) {
  const std::uint64_t bytes = dtype_bytes(dtype_, static_cast<std::uint64_t>(count_));
  if (offset > storage_->size() || bytes > storage_->size() - offset) {
    throw ShapeError(fmt::format("{} elements of {} need {} bytes, the storage holds {} from offset {}", count_,
                                 dtype_name(dtype_), bytes, storage_->size() - std::min(offset, storage_->size()),
                                 offset));
  }
  data_ = storage_->data() + offset;
}

std::span<std::byte> NDArray::mutable_bytes() {
  if (storage_ && !storage_->writable()) {
    throw InvalidArgumentError("the array's storage is read-only", shape_.to_string(), "Write to a clone()");
  }
  return {data_, byte_size()};
}

NDArray NDArray::clone() const {
  NDArray copy(dtype_, shape_);
  copy.assign(bytes());
  return copy;
}

NDArray NDArray::reshaped(Shape shape) const {
  if (shape.element_count() != count_) {
    throw ShapeError(fmt::format("{} elements do not fit the shape [{}]", count_, shape.to_string()));
  }
  NDArray view = *this;
  view.shape_ = std::move(shape);
  return view;
}

void NDArray::assign(std::span<const std::byte> bytes) {
  if (bytes.size() != byte_size()) {
    throw ShapeError(fmt::format("an array of {} bytes cannot take {} bytes", byte_size(), bytes.size()));
  }
  if (!bytes.empty()) std::memcpy(mutable_bytes().data(), bytes.data(), bytes.size());
}

void NDArray::check_width(std::size_t width) const {
  COREAI_INVARIANT(width * 8 == static_cast<std::size_t>(dtype_bits(dtype_)));
}

namespace {

std::uint32_t packed_element(const std::byte* data, std::int64_t index, int bits) {
  const std::int64_t bit = index * bits;
  const auto low = static_cast<std::uint32_t>(data[bit / 8]);
  const int shift = static_cast<int>(bit % 8);
  std::uint32_t word = low >> shift;
  if (shift + bits > 8) word |= static_cast<std::uint32_t>(data[bit / 8 + 1]) << (8 - shift);
  return word & ((1u << bits) - 1);
}

void set_packed_element(std::byte* data, std::int64_t index, int bits, std::uint32_t value) {
  for (int i = 0; i < bits; ++i) {
    const std::int64_t bit = index * bits + i;
    const auto mask = static_cast<std::byte>(1u << (bit % 8));
    if ((value >> i) & 1u) {
      data[bit / 8] |= mask;
    } else {
      data[bit / 8] &= ~mask;
    }
  }
}

template <typename T>
void widen(const NDArray& array, std::span<double> out) {
  const auto values = array.values<T>();
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<double>(values[i]);
}

template <typename T, typename F>
void widen_with(const NDArray& array, std::span<double> out, F convert) {
  const auto values = array.values<T>();
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<double>(convert(values[i]));
}

template <typename T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kHigh = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= kLow) return std::numeric_limits<T>::min();
  if (value >= kHigh) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

template <typename T>
void narrow(NDArray& array, std::span<const double> values) {
  auto out = array.mutable_values<T>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      out[i] = static_cast<T>(values[i]);
    } else {
      out[i] = saturate<T>(values[i]);
    }
  }
}

template <typename T, typename F>
void narrow_with(NDArray& array, std::span<const double> values, F convert) {
  auto out = array.mutable_values<T>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = convert(values[i]);
}

}  // namespace

void read_as_f64(const NDArray& array, std::span<double> out) {
  COREAI_INVARIANT(out.size() == static_cast<std::size_t>(array.element_count()));
  if (out.empty()) return;  // of any dtype, those without real values too
  switch (array.dtype()) {
    case DType::kI1:
    case DType::kUI8:
      return widen<std::uint8_t>(array, out);
    case DType::kSI8:
      return widen<std::int8_t>(array, out);
    case DType::kSI16:
      return widen<std::int16_t>(array, out);
    case DType::kSI32:
      return widen<std::int32_t>(array, out);
    case DType::kSI64:
      return widen<std::int64_t>(array, out);
    case DType::kUI16:
      return widen<std::uint16_t>(array, out);
    case DType::kUI32:
      return widen<std::uint32_t>(array, out);
    case DType::kUI64:
      return widen<std::uint64_t>(array, out);
    case DType::kTF32:
    case DType::kF32:
      return widen<float>(array, out);
    case DType::kF64:
      return widen<double>(array, out);
    case DType::kF16:
      return widen_with<std::uint16_t>(array, out, f16_to_f32);
    case DType::kBF16:
      return widen_with<std::uint16_t>(array, out, bf16_to_f32);
    case DType::kF8E4M3FN:
      return widen_with<std::uint8_t>(array, out, f8e4m3fn_to_f32);
    case DType::kF8E5M2:
      return widen_with<std::uint8_t>(array, out, f8e5m2_to_f32);
    case DType::kF8E8M0FNU:
      return widen_with<std::uint8_t>(array, out, f8e8m0fnu_to_f32);
    case DType::kSI2:
    case DType::kSI4:
    case DType::kUI1:
    case DType::kUI2:
    case DType::kUI3:
    case DType::kUI4:
    case DType::kUI6:
    case DType::kF4E2M1FN: {
      const int bits = dtype_bits(array.dtype());
      const bool is_signed = dtype_class(array.dtype()) == DTypeClass::kSigned;
      for (std::int64_t i = 0; i < array.element_count(); ++i) {
        const std::uint32_t raw = packed_element(array.bytes().data(), i, bits);
        double value = raw;
        if (array.dtype() == DType::kF4E2M1FN)
          value = static_cast<double>(f4e2m1fn_to_f32(static_cast<std::uint8_t>(raw)));
        else if (is_signed && (raw >> (bits - 1)))
          value -= static_cast<double>(1u << bits);
        out[static_cast<std::size_t>(i)] = value;
      }
      return;
    }
    default:
      throw UnsupportedError(fmt::format("elements of {} have no real value", dtype_name(array.dtype())));
  }
}

void write_from_f64(NDArray& array, std::span<const double> values) {
  COREAI_INVARIANT(values.size() == static_cast<std::size_t>(array.element_count()));
  if (values.empty()) return;
  const auto f8 = [](auto convert) { return [convert](double v) { return convert(static_cast<float>(v)); }; };
  switch (array.dtype()) {
    case DType::kI1:
      return narrow_with<std::uint8_t>(array, values, [](double v) -> std::uint8_t { return v != 0.0; });
    case DType::kUI8:
      return narrow<std::uint8_t>(array, values);
    case DType::kSI8:
      return narrow<std::int8_t>(array, values);
    case DType::kSI16:
      return narrow<std::int16_t>(array, values);
    case DType::kSI32:
      return narrow<std::int32_t>(array, values);
    case DType::kSI64:
      return narrow<std::int64_t>(array, values);
    case DType::kUI16:
      return narrow<std::uint16_t>(array, values);
    case DType::kUI32:
      return narrow<std::uint32_t>(array, values);
    case DType::kUI64:
      return narrow<std::uint64_t>(array, values);
    case DType::kTF32:
    case DType::kF32:
      return narrow<float>(array, values);
    case DType::kF64:
      return narrow<double>(array, values);
    case DType::kF16:
      return narrow_with<std::uint16_t>(array, values, f64_to_f16);
    case DType::kBF16:
      return narrow_with<std::uint16_t>(array, values, f64_to_bf16);
    case DType::kF8E4M3FN:
      return narrow_with<std::uint8_t>(array, values, f8(f32_to_f8e4m3fn));
    case DType::kF8E5M2:
      return narrow_with<std::uint8_t>(array, values, f8(f32_to_f8e5m2));
    case DType::kF8E8M0FNU:
      return narrow_with<std::uint8_t>(array, values, f8(f32_to_f8e8m0fnu));
    case DType::kSI2:
    case DType::kSI4:
    case DType::kUI1:
    case DType::kUI2:
    case DType::kUI3:
    case DType::kUI4:
    case DType::kUI6:
    case DType::kF4E2M1FN: {
      const int bits = dtype_bits(array.dtype());
      const bool is_signed = dtype_class(array.dtype()) == DTypeClass::kSigned;
      const double low = is_signed ? -static_cast<double>(1u << (bits - 1)) : 0.0;
      const double high = low + static_cast<double>((1u << bits) - 1);
      std::byte* data = array.mutable_bytes().data();
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint32_t raw = 0;
        if (array.dtype() == DType::kF4E2M1FN) {
          raw = f32_to_f4e2m1fn(static_cast<float>(values[i]));
        } else {
          const double clamped = std::isnan(values[i]) ? 0.0 : std::min(std::max(std::trunc(values[i]), low), high);
          raw = static_cast<std::uint32_t>(static_cast<std::int32_t>(clamped)) & ((1u << bits) - 1);
        }
        set_packed_element(data, static_cast<std::int64_t>(i), bits, raw);
      }
      return;
    }
    default:
      throw UnsupportedError(fmt::format("elements of {} have no real value", dtype_name(array.dtype())));
  }
}

}  // namespace coreai
