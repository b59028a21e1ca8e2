#include "coreai/base/dtype.h"

#include <array>

namespace coreai {
namespace {

struct DTypeInfo {
  std::string_view name;
  int bits;
  DTypeClass kind;
};

constexpr std::array<DTypeInfo, kDTypeCount> kInfo = {{
    {"i1", 8, DTypeClass::kBool},
    {"si2", 2, DTypeClass::kSigned},
    {"si4", 4, DTypeClass::kSigned},
    {"si8", 8, DTypeClass::kSigned},
    {"si16", 16, DTypeClass::kSigned},
    {"si32", 32, DTypeClass::kSigned},
    {"si64", 64, DTypeClass::kSigned},
    {"ui1", 1, DTypeClass::kUnsigned},
    {"ui2", 2, DTypeClass::kUnsigned},
    {"ui3", 3, DTypeClass::kUnsigned},
    {"ui4", 4, DTypeClass::kUnsigned},
    {"ui6", 6, DTypeClass::kUnsigned},
    {"ui8", 8, DTypeClass::kUnsigned},
    {"ui16", 16, DTypeClass::kUnsigned},
    {"ui32", 32, DTypeClass::kUnsigned},
    {"ui64", 64, DTypeClass::kUnsigned},
    {"f4E2M1FN", 4, DTypeClass::kFloat},
    {"f8E4M3FN", 8, DTypeClass::kFloat},
    {"f8E5M2", 8, DTypeClass::kFloat},
    {"f8E8M0FNU", 8, DTypeClass::kFloat},
    {"f16", 16, DTypeClass::kFloat},
    {"bf16", 16, DTypeClass::kFloat},
    {"tf32", 32, DTypeClass::kFloat},
    {"f32", 32, DTypeClass::kFloat},
    {"f64", 64, DTypeClass::kFloat},
    {"complex<f8E4M3FN>", 16, DTypeClass::kComplex},
    {"complex<f8E5M2>", 16, DTypeClass::kComplex},
    {"complex<f16>", 32, DTypeClass::kComplex},
    {"complex<bf16>", 32, DTypeClass::kComplex},
    {"complex<f32>", 64, DTypeClass::kComplex},
    {"complex<f64>", 128, DTypeClass::kComplex},
}};

const DTypeInfo& info(DType dtype) {
  return kInfo[static_cast<std::size_t>(dtype)];
}

}  // namespace

int dtype_bits(DType dtype) {
  return info(dtype).bits;
}
DTypeClass dtype_class(DType dtype) {
  return info(dtype).kind;
}
std::string_view dtype_name(DType dtype) {
  return info(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kInfo[static_cast<std::size_t>(i)].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::uint64_t dtype_bytes(DType dtype, std::uint64_t count) {
  const auto bits = static_cast<std::uint64_t>(dtype_bits(dtype));
  return bits >= 8 ? count * (bits / 8) : (count * bits + 7) / 8;
}

}  // namespace coreai
