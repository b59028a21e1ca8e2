// Attribute, type and enum tables, parsed once from their .inc files.
#include <array>
#include <map>
#include <string_view>

#include "coreai/base/error.h"
#include "coreai/ir/type.h"

namespace coreai::ir {
namespace {

FieldInfo parse_field(std::string_view text) {
  const std::size_t colon = text.find(':');
  FieldInfo field{std::string(text.substr(0, colon)), FieldKind::kVarint, {}};
  const std::string_view kind = text.substr(colon + 1);
  static const std::map<std::string_view, FieldKind> kKinds = {
      {"varint", FieldKind::kVarint},
      {"svarint", FieldKind::kSVarint},
      {"byte", FieldKind::kByte},
      {"str", FieldKind::kString},
      {"attr", FieldKind::kAttr},
      {"type", FieldKind::kType},
      {"handle", FieldKind::kResource},
      {"list<svarint>", FieldKind::kSVarintList},
      {"list<varint>", FieldKind::kVarintList},
      {"list<str>", FieldKind::kStringList},
      {"list<attr>", FieldKind::kAttrList},
      {"list<type>", FieldKind::kTypeList},
      {"blob", FieldKind::kBlob},
      {"optional<varint>", FieldKind::kOptionalVarint},
      {"apint<width>", FieldKind::kApInt},
      {"apfloat<width>", FieldKind::kApFloat},
  };
  if (kind.starts_with("enum:")) {
    field.enum_name = kind.substr(5);
  } else if (kind.starts_with("flags:")) {
    field.enum_name = kind.substr(6);
  } else {
    const auto found = kKinds.find(kind);
    COREAI_INVARIANT(found != kKinds.end());
    field.kind = found->second;
  }
  return field;
}

std::vector<FieldInfo> parse_fields(std::string_view text) {
  std::vector<FieldInfo> fields;
  while (!text.empty()) {
    const std::size_t end = text.find("; ");
    fields.push_back(parse_field(text.substr(0, end)));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 2);
  }
  return fields;
}

// Rows by code; codes without a row stay empty.
using CodeTable = std::array<std::unique_ptr<const CodeInfo>, 64>;

void add_row(CodeTable& table, int code, std::string_view name, std::int32_t since, std::string_view fields) {
  table.at(static_cast<std::size_t>(code)) =
      std::make_unique<const CodeInfo>(CodeInfo{code, name, since, parse_fields(fields)});
}

const CodeTable& attribute_table() {
  static const CodeTable table = [] {
    CodeTable rows;
#define COREAI_ATTRIBUTE(code, name, disk, since, fields) add_row(rows, code, disk, since, fields);
#include "coreai/ir/attribute_table.inc"
#undef COREAI_ATTRIBUTE
    return rows;
  }();
  return table;
}

const CodeTable& type_table() {
  static const CodeTable table = [] {
    CodeTable rows;
#define COREAI_TYPE(code, name, disk, since, fields) add_row(rows, code, disk, since, fields);
#include "coreai/ir/type_table.inc"
#undef COREAI_TYPE
    return rows;
  }();
  return table;
}

const CodeInfo* find_row(const CodeTable& table, std::uint64_t code) {
  return code < table.size() ? table[static_cast<std::size_t>(code)].get() : nullptr;
}

struct EnumCase {
  std::string_view enum_name;
  bool flags;
  std::string_view disk_name, text_name;
  std::uint64_t value;
};
constexpr EnumCase kEnumCases[] = {
#define COREAI_ENUM_CASE(enum_name, flags, disk, text, value) {enum_name, flags, disk, text, value},
#include "coreai/ir/enum_table.inc"
#undef COREAI_ENUM_CASE
};

constexpr std::pair<TypeCode, DType> kElementTypes[] = {
    {TypeCode::kBool, DType::kI1},
    {TypeCode::kFloat64, DType::kF64},
    {TypeCode::kFloat32, DType::kF32},
    {TypeCode::kFloat16, DType::kF16},
    {TypeCode::kBfloat16, DType::kBF16},
    {TypeCode::kFloat8E5M2, DType::kF8E5M2},
    {TypeCode::kFloat8E4M3FN, DType::kF8E4M3FN},
    {TypeCode::kComplexFloat64, DType::kComplexF64},
    {TypeCode::kComplexFloat32, DType::kComplexF32},
    {TypeCode::kComplexFloat16, DType::kComplexF16},
    {TypeCode::kComplexBfloat16, DType::kComplexBF16},
    {TypeCode::kComplexFloat8E5M2, DType::kComplexF8E5M2},
    {TypeCode::kComplexFloat8E4M3FN, DType::kComplexF8E4M3FN},
    {TypeCode::kSint64, DType::kSI64},
    {TypeCode::kSint32, DType::kSI32},
    {TypeCode::kSint16, DType::kSI16},
    {TypeCode::kSint8, DType::kSI8},
    {TypeCode::kSint4, DType::kSI4},
    {TypeCode::kSint2, DType::kSI2},
    {TypeCode::kUint64, DType::kUI64},
    {TypeCode::kUint32, DType::kUI32},
    {TypeCode::kUint16, DType::kUI16},
    {TypeCode::kUint8, DType::kUI8},
    {TypeCode::kUint4, DType::kUI4},
    {TypeCode::kUint2, DType::kUI2},
    {TypeCode::kUint1, DType::kUI1},
    {TypeCode::kUint6, DType::kUI6},
    {TypeCode::kUint3, DType::kUI3},
    {TypeCode::kTfloat32, DType::kTF32},
    {TypeCode::kFloat4E2M1FN, DType::kF4E2M1FN},
    {TypeCode::kFloat8E8M0FN, DType::kF8E8M0FNU},
};
static_assert(std::size(kElementTypes) == static_cast<std::size_t>(kDTypeCount));

}  // namespace

const CodeInfo* find_attr_info(std::uint64_t code) {
  return find_row(attribute_table(), code);
}

const CodeInfo* find_type_info(std::uint64_t code) {
  return find_row(type_table(), code);
}

const CodeInfo& attr_info(AttrCode code) {
  const CodeInfo* info = find_attr_info(static_cast<std::uint64_t>(code));
  COREAI_INVARIANT(info != nullptr);
  return *info;
}

const CodeInfo& type_info(TypeCode code) {
  const CodeInfo* info = find_type_info(static_cast<std::uint64_t>(code));
  COREAI_INVARIANT(info != nullptr);
  return *info;
}

std::optional<DType> dtype_of(TypeCode code) {
  for (const auto& [type, dtype] : kElementTypes) {
    if (type == code) return dtype;
  }
  return std::nullopt;
}

TypeCode type_code_of(DType dtype) {
  for (const auto& [type, element] : kElementTypes) {
    if (element == dtype) return type;
  }
  invariant_failed("every dtype has a type code", __FILE__, __LINE__);
}

std::string enum_case_name(std::string_view enum_name, std::uint64_t value) {
  std::string joined;
  std::uint64_t rest = value;
  for (const EnumCase& row : kEnumCases) {
    if (row.enum_name != enum_name) continue;
    if (row.value == value) return std::string(row.text_name);
    const bool single_bit = row.value != 0 && (row.value & (row.value - 1)) == 0;
    if (!row.flags || !single_bit || (rest & row.value) == 0) continue;
    if (!joined.empty()) joined += '|';
    joined += row.text_name;
    rest &= ~row.value;
  }
  return rest == 0 ? joined : std::string();
}

}  // namespace coreai::ir
