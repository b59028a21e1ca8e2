#include "coreai/ir/type.h"

#include <fmt/format.h>

#include <bit>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai::ir {
namespace {

[[noreturn]] void wrong_kind(AttrCode code, std::string_view wanted) {
  throw VerificationError(fmt::format("an attribute is a {}, but {} is needed", attr_info(code).disk_name, wanted));
}

}  // namespace

const std::string& Attribute::as_string() const {
  if (code_ != AttrCode::kSerializationString) wrong_kind(code_, "a string");
  return field<std::string>(0);
}

std::int64_t Attribute::as_int() const {
  if (code_ != AttrCode::kSerializationInteger) wrong_kind(code_, "an integer");
  const std::uint64_t width = field<std::uint64_t>(0);
  if (width == 0 || width > 64) wrong_kind(code_, "an integer of at most 64 bits");
  const std::uint64_t bits = field<std::vector<std::uint64_t>>(2).at(0);
  const bool is_unsigned = field<std::uint64_t>(1) != 0;
  if (is_unsigned || width == 64) return static_cast<std::int64_t>(bits);
  const std::uint64_t sign = std::uint64_t{1} << (width - 1);
  return static_cast<std::int64_t>((bits ^ sign) - sign);
}

double Attribute::as_float() const {
  if (code_ != AttrCode::kSerializationFloat) wrong_kind(code_, "a float");
  const std::uint64_t bits = field<std::vector<std::uint64_t>>(1).at(0);
  switch (field<std::uint64_t>(0)) {
    case 16:
      return static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(bits)));
    case 32:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    case 64:
      return std::bit_cast<double>(bits);
    default:
      wrong_kind(code_, "a float of 16, 32 or 64 bits");
  }
}

std::span<const AttrRef> Attribute::as_array() const {
  if (code_ != AttrCode::kSerializationArray) wrong_kind(code_, "an array");
  return field<std::vector<AttrRef>>(0);
}

std::uint64_t Attribute::as_enum() const {
  const CodeInfo& info = attr_info(code_);
  if (info.fields.size() != 1 || info.fields[0].enum_name.empty()) wrong_kind(code_, "an enum case");
  return field<std::uint64_t>(0);
}

bool Type::is_tensor() const {
  return code_ == TypeCode::kTensor || code_ == TypeCode::kTensorWithEncoding;
}

bool Type::is_handle() const {
  return code_ == TypeCode::kHandle;
}

bool Type::is_token() const {
  return code_ == TypeCode::kToken;
}

bool Type::is_element() const {
  return dtype_of(code_).has_value();
}

DType Type::dtype() const {
  if (is_handle()) return handle_inner()->dtype();
  if (!dtype_) throw VerificationError(fmt::format("a {} has no element type", type_info(code_).disk_name));
  return *dtype_;
}

const Shape& Type::shape() const {
  if (is_handle()) return handle_inner()->shape();
  if (!is_tensor()) throw VerificationError(fmt::format("a {} has no shape", type_info(code_).disk_name));
  return shape_;
}

AttrRef Type::encoding() const {
  if (is_handle()) return handle_inner()->encoding();
  return code_ == TypeCode::kTensorWithEncoding ? field<AttrRef>(2) : nullptr;
}

TypeRef Type::handle_inner() const {
  if (!is_handle()) throw VerificationError(fmt::format("a {} is not a handle", type_info(code_).disk_name));
  return field<TypeRef>(0);
}

}  // namespace coreai::ir
