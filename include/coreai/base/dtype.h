// Element types of the format, sub-byte, 8-bit float, micro-scaling and complex ones included.
// Source: docs/aimodel-format.md, "Element types".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace coreai {

enum class DType : std::uint8_t {
  kI1,  // bool: one byte per element, 0 or 1
  kSI2,
  kSI4,
  kSI8,
  kSI16,
  kSI32,
  kSI64,
  kUI1,
  kUI2,
  kUI3,
  kUI4,
  kUI6,
  kUI8,
  kUI16,
  kUI32,
  kUI64,
  kF4E2M1FN,
  kF8E4M3FN,
  kF8E5M2,
  kF8E8M0FNU,
  kF16,
  kBF16,
  kTF32,
  kF32,
  kF64,
  kComplexF8E4M3FN,
  kComplexF8E5M2,
  kComplexF16,
  kComplexBF16,
  kComplexF32,
  kComplexF64,
};
inline constexpr int kDTypeCount = static_cast<int>(DType::kComplexF64) + 1;

enum class DTypeClass : std::uint8_t { kBool, kSigned, kUnsigned, kFloat, kComplex };

// Bits of one element in a packed array; i1 counts 8, since it is stored as a byte.
int dtype_bits(DType dtype);
DTypeClass dtype_class(DType dtype);
// The text name of the reference: "si4", "f8E4M3FN", "complex<f32>", ...
std::string_view dtype_name(DType dtype);
// Inverse of dtype_name; nothing for an unknown name.
std::optional<DType> dtype_from_name(std::string_view name);

inline bool is_float(DType d) {
  return dtype_class(d) == DTypeClass::kFloat;
}
inline bool is_complex(DType d) {
  return dtype_class(d) == DTypeClass::kComplex;
}
inline bool is_integer(DType d) {
  return dtype_class(d) == DTypeClass::kSigned || dtype_class(d) == DTypeClass::kUnsigned;
}
inline bool is_subbyte(DType d) {
  return dtype_bits(d) < 8;
}

// Bytes of `count` elements: sub-byte elements form one little-endian bit stream, element i at bits i*b.., LSB first.
std::uint64_t dtype_bytes(DType dtype, std::uint64_t count);

}  // namespace coreai
