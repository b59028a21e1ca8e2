// Types and attributes of a program. Both are immutable, interned and owned by a Context: equal ones of one context
// are the same pointer. The field layout of each code comes from the tables in attribute_table.inc and type_table.inc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "coreai/base/ndarray.h"

namespace coreai::ir {

class Attribute;
class Type;
using AttrRef = const Attribute*;
using TypeRef = const Type*;

// A blob of the Resource section: name, alignment and bytes (mapped from the file, or owned).
struct Resource {
  std::string name;
  std::uint32_t alignment = 16;
  std::shared_ptr<Storage> storage;
  std::size_t offset = 0, size = 0;
  std::span<const std::byte> bytes() const { return {storage->data() + offset, size}; }
};
using ResourceRef = std::shared_ptr<const Resource>;

enum class FieldKind : std::uint8_t {
  kVarint,
  kSVarint,
  kByte,
  kString,
  kAttr,
  kType,
  kResource,
  kSVarintList,
  kVarintList,
  kStringList,
  kAttrList,
  kTypeList,
  kBlob,
  kOptionalVarint,
  kApInt,    // width = the field before the sign byte; 64-bit words, lowest first
  kApFloat,  // IEEE bits, as kApInt
};

// One field of an attribute or type. kVarint/kByte: uint64; kSVarint: int64; kOptionalVarint, kVarintList, kApInt,
// kApFloat: vector<uint64>; kSVarintList: vector<int64>; kBlob: vector<byte>.
using Field = std::variant<std::uint64_t, std::int64_t, std::string, AttrRef, TypeRef, ResourceRef,
                           std::vector<std::int64_t>, std::vector<std::uint64_t>, std::vector<std::string>,
                           std::vector<AttrRef>, std::vector<TypeRef>, std::vector<std::byte>>;

enum class AttrCode : std::uint8_t {
#define COREAI_ATTRIBUTE(code, name, ...) name = code,
#include "coreai/ir/attribute_table.inc"
#undef COREAI_ATTRIBUTE
};
enum class TypeCode : std::uint8_t {
#define COREAI_TYPE(code, name, ...) name = code,
#include "coreai/ir/type_table.inc"
#undef COREAI_TYPE
};

struct FieldInfo {
  std::string name;
  FieldKind kind;
  std::string enum_name;  // of an enum or flags field, else empty
};
// What the tables say of one code: used by reader, writer, printer and documentation.
struct CodeInfo {
  int code;
  std::string_view disk_name;  // behind "#aicode." or "!aicode."
  std::int32_t since;
  std::vector<FieldInfo> fields;
};
const CodeInfo& attr_info(AttrCode code);
const CodeInfo& type_info(TypeCode code);
const CodeInfo* find_attr_info(std::uint64_t code);  // null for a code that does not exist
const CodeInfo* find_type_info(std::uint64_t code);

// How large an attribute or type is when it is written out: shared parts count each time they occur.
struct Extent {
  std::uint32_t depth = 1;
  std::uint64_t nodes = 1;  // saturates at kMaxNodes
  static constexpr std::uint64_t kMaxNodes = std::uint64_t{1} << 40;
};

class Attribute {
 public:
  AttrCode code() const { return code_; }
  std::span<const Field> fields() const { return fields_; }
  template <typename T>
  const T& field(std::size_t i) const {
    return std::get<T>(fields_.at(i));
  }

  // Typed access; each throws VerificationError when the attribute is of another kind.
  const std::string& as_string() const;  // serialization.string
  std::int64_t as_int() const;           // serialization.integer up to 64 bits, sign honoured
  bool as_bool() const { return as_int() != 0; }
  double as_float() const;                    // serialization.float of 16, 32 or 64 bits
  std::span<const AttrRef> as_array() const;  // serialization.array
  std::uint64_t as_enum() const;              // an attribute whose one field is an enum
  bool is(AttrCode code) const { return code_ == code; }
  const Extent& extent() const { return extent_; }

 private:
  friend class Context;
  AttrCode code_{};
  std::vector<Field> fields_;
  Extent extent_;
};

class Type {
 public:
  TypeCode code() const { return code_; }
  std::span<const Field> fields() const { return fields_; }
  template <typename T>
  const T& field(std::size_t i) const {
    return std::get<T>(fields_.at(i));
  }

  bool is_tensor() const;  // with or without an encoding
  bool is_handle() const;
  bool is_token() const;
  bool is_element() const;  // a scalar element type such as f32
  // Tensors (handles: of the tensor inside; dtype also of element types). Throw VerificationError on other types.
  DType dtype() const;
  const Shape& shape() const;
  AttrRef encoding() const;  // null when there is none
  TypeRef handle_inner() const;
  const Extent& extent() const { return extent_; }

 private:
  friend class Context;
  TypeCode code_{};
  std::vector<Field> fields_;
  Extent extent_;
  std::optional<DType> dtype_;  // of tensors and element types
  Shape shape_;                 // of tensors
};

// The element type that a type code names, if any, and back.
std::optional<DType> dtype_of(TypeCode code);
TypeCode type_code_of(DType dtype);

// `enum_case_name("PaddingMode", 1)` is "constant"; empty for an unknown case. Flags join their names.
std::string enum_case_name(std::string_view enum_name, std::uint64_t value);

}  // namespace coreai::ir
