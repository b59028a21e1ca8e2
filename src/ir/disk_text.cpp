// Types and attributes as the file spells them: "#aicode.serialization.string<"x">", every code of the dialect.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/attribute_text.h"
#include "ir/number_text.h"

namespace coreai::ir {

namespace {

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? kAlphabet[group >> (18 - 6 * k) & 63u] : '=';
  }
  return text;
}

// Fields whose attribute kind is fixed are printed without its name.
std::span<const std::string_view> stripped_fields(AttrCode code) {
  static constexpr std::array<std::string_view, 6> kUsual = {"file", "src", "location", "allFiles", "triple", "soc"};
  static constexpr std::array<std::string_view, 3> kTarget = {"triple", "soc", "delegateOptions"};
  static constexpr std::array<std::string_view, 2> kLocation = {"src", "metadata"};
  if (code == AttrCode::kExecutionTargetSpec) return kTarget;
  if (code == AttrCode::kDebuginfoLocation || code == AttrCode::kDebuginfoLocationWithInlinedAt) return kLocation;
  return kUsual;
}
constexpr std::array<std::string_view, 2> kStrippedInTypes = {"scope", "location"};

}  // namespace

void AttributeWriter::disk_type(TypeRef type, bool prefix) {
  if (type->code() == TypeCode::kImage || type->code() == TypeCode::kImageWithImageConstraints) return image(*type);
  const CodeInfo& info = type_info(type->code());
  if (prefix) out_ += fmt::format("!aicode.{}", info.disk_name);
  if (info.fields.empty()) return;
  out_ += "<";
  switch (type->code()) {
    case TypeCode::kTensor:
    case TypeCode::kTensorWithEncoding: {
      const auto& shape = type->field<std::vector<std::int64_t>>(0);
      if (!shape.empty()) out_ += fmt::format("[{}] : ", fmt::join(shape, ", "));
      this->type(type->field<TypeRef>(1));
      if (type->code() == TypeCode::kTensorWithEncoding) {
        out_ += ", ";
        attribute(type->field<AttrRef>(2));
      }
      break;
    }
    case TypeCode::kFunction: {
      const auto& operands = type->field<std::vector<TypeRef>>(1);
      const auto& results = type->field<std::vector<TypeRef>>(0);
      out_ += operands.empty() ? "(" : "(operands ";
      types(operands);
      out_ += results.empty() ? ") -> (" : ") -> (results ";
      types(results);
      out_ += ")";
      break;
    }
    case TypeCode::kHandle:
      this->type(type->field<TypeRef>(0));
      break;
    case TypeCode::kSerializationOpaqueType: {
      out_ += fmt::format("\"{}\"", escaped(type->field<std::string>(0)));
      const auto& parameters = type->field<std::vector<AttrRef>>(1);
      if (!parameters.empty()) out_ += " = [";
      list(parameters);
      if (!parameters.empty()) out_ += "]";
      break;
    }
    case TypeCode::kParamRef:
      out_ += fmt::format("\"{}\" : ", escaped(type->field<std::string>(0)));
      this->type(type->field<TypeRef>(1));
      break;
    default:
      disk_fields(type->fields(), info, kStrippedInTypes);
  }
  out_ += ">";
}

void AttributeWriter::disk_attribute(const Attribute& attribute, bool prefix) {
  const Nesting nesting(*this);
  if (prefix) out_ += fmt::format("#aicode.{}", attr_info(attribute.code()).disk_name);
  if (attribute.fields().empty()) return;
  out_ += "<";
  if (!disk_body(attribute)) {
    disk_fields(attribute.fields(), attr_info(attribute.code()), stripped_fields(attribute.code()));
  }
  out_ += ">";
}

void AttributeWriter::bare(AttrRef attribute) {
  if (attribute == nullptr) return this->attribute(attribute);
  disk_attribute(*attribute, false);
}

// The body of the codes that are not a plain list of "name = value"; false for those that are.
bool AttributeWriter::disk_body(const Attribute& attribute) {
  const auto bracketed = [&](const std::vector<AttrRef>& attributes) {
    out_ += "[";
    list(attributes);
    out_ += "]";
  };
  const auto quoted = [&](const std::string& text) { out_ += fmt::format("\"{}\"", escaped(text)); };
  switch (attribute.code()) {
    case AttrCode::kSerializationString:
      quoted(attribute.as_string());
      return true;
    case AttrCode::kSerializationInteger: {
      const std::uint64_t width = attribute.field<std::uint64_t>(0);
      const bool is_unsigned = attribute.field<std::uint64_t>(1) != 0;
      out_ += fmt::format("({}bit {}) {}", width, is_unsigned ? "unsigned" : "signed",
                          integer_text(attribute.field<std::vector<std::uint64_t>>(2), width, is_unsigned));
      return true;
    }
    case AttrCode::kSerializationFloat:
      out_ += fmt::format("({}bit) {}", attribute.field<std::uint64_t>(0), float_attribute_text(attribute));
      return true;
    case AttrCode::kSerializationType:
      type(attribute.field<TypeRef>(0));
      return true;
    case AttrCode::kSerializationArray:
      if (!attribute.as_array().empty()) bracketed(attribute.field<std::vector<AttrRef>>(0));
      return true;
    case AttrCode::kSerializationDenseElements:
      out_ += fmt::format("[splat = {}] \"{}\"", attribute.field<std::uint64_t>(0) != 0,
                          base64(attribute.field<std::vector<std::byte>>(1)));
      return true;
    case AttrCode::kSerializationDenseResource:
      out_ += identifier_text(attribute.field<ResourceRef>(0)->name);
      return true;
    case AttrCode::kSerializationOpaque: {
      quoted(attribute.field<std::string>(0));
      const auto& parameters = attribute.field<std::vector<AttrRef>>(1);
      if (!parameters.empty()) out_ += " = ";
      if (!parameters.empty()) bracketed(parameters);
      return true;
    }
    case AttrCode::kParamDecl:
    case AttrCode::kParamDeclWithValue:
      quoted(attribute.field<std::string>(0));
      out_ += " : ";
      type(attribute.field<TypeRef>(1));
      if (attribute.is(AttrCode::kParamDecl)) return true;
      out_ += " = ";
      this->attribute(attribute.field<AttrRef>(2));
      return true;
    case AttrCode::kParamBind:
    case AttrCode::kParamConstant:
      out_ += "binding{ [";
      this->attribute(attribute.field<AttrRef>(0));
      out_ += "] : ";
      type(attribute.field<TypeRef>(1));
      out_ += " }";
      if (attribute.is(AttrCode::kParamConstant)) return true;
      out_ += " to ";
      bracketed(attribute.field<std::vector<AttrRef>>(2));
      return true;
    case AttrCode::kSymbolRef:
      out_ += fmt::format("{}", fmt::join(attribute.field<std::vector<std::string>>(0), ", "));
      return true;
    case AttrCode::kAxHwConstraints:
    case AttrCode::kAxHwConstraintsWithBaseEncoding:
      hw_constraints(attribute);
      return true;
    case AttrCode::kSparseTensorEncoding:
    case AttrCode::kSparseTensorEncodingWithBlockSize:
      sparse_encoding(attribute);
      return true;
    case AttrCode::kAxImageConstraints:
      out_ += enum_case("ImageContainerType", attribute.field<std::uint64_t>(0)) + ", rowAlignmentsPerPlane: [";
      numbers(attribute.field<std::vector<std::int64_t>>(1), ", ");
      out_ += "]";
      return true;
    case AttrCode::kDebuginfoMetadata:
      quoted(attribute.field<std::string>(0));
      out_ += ": ";
      bare(attribute.field<AttrRef>(1));
      return true;
    case AttrCode::kDebuginfoCompositeElement:
      this->attribute(attribute.field<AttrRef>(0));
      return true;
    case AttrCode::kDebuginfoMetadataLocation:
    case AttrCode::kSerializationDictionary: {
      const auto& entries = attribute.field<std::vector<AttrRef>>(0);
      const bool dictionary = attribute.is(AttrCode::kSerializationDictionary);
      if (dictionary && entries.empty()) return true;
      out_ += dictionary ? "{" : "[";
      for (std::size_t i = 0; i < entries.size(); ++i) {
        if (i > 0) out_ += ", ";
        bare(entries[i]);
      }
      out_ += dictionary ? "}" : "]";
      return true;
    }
    case AttrCode::kSerializationOpaqueLoc:
      bare(attribute.field<AttrRef>(0));
      return true;
    default:
      break;
  }
  const CodeInfo& info = attr_info(attribute.code());
  if (info.fields.size() != 1 || info.fields[0].enum_name.empty()) return false;
  out_ += enum_case(info.fields[0].enum_name, attribute.as_enum());
  return true;
}

// "name = value, name = value"; empty lists are left out.
void AttributeWriter::disk_fields(std::span<const Field> fields, const CodeInfo& info,
                                  std::span<const std::string_view> stripped) {
  bool first = true;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto* attributes = std::get_if<std::vector<AttrRef>>(&fields[i]);
    if (attributes != nullptr && attributes->empty()) continue;
    if (!first) out_ += ", ";
    first = false;
    out_ += info.fields[i].name + " = ";
    disk_field(fields[i], info.fields[i], std::ranges::find(stripped, info.fields[i].name) != stripped.end());
  }
}

void AttributeWriter::disk_field(const Field& field, const FieldInfo& info, bool stripped) {
  if (const auto* number = std::get_if<std::uint64_t>(&field)) {
    if (!info.enum_name.empty()) {
      out_ += enum_case(info.enum_name, *number);
    } else {
      out_ += info.name == "optimized" ? fmt::format("{}", *number != 0) : fmt::format("{}", *number);
    }
  } else if (const auto* signed_number = std::get_if<std::int64_t>(&field)) {
    out_ += fmt::format("{}", *signed_number);
  } else if (const auto* text = std::get_if<std::string>(&field)) {
    out_ += fmt::format("\"{}\"", escaped(*text));
  } else if (const auto* reference = std::get_if<AttrRef>(&field)) {
    if (stripped) {
      bare(*reference);
    } else {
      attribute(*reference);
    }
  } else if (const auto* type_reference = std::get_if<TypeRef>(&field)) {
    type(*type_reference);
  } else if (const auto* attributes = std::get_if<std::vector<AttrRef>>(&field)) {
    for (std::size_t i = 0; i < attributes->size(); ++i) {
      if (i > 0) out_ += ", ";
      disk_field(Field((*attributes)[i]), info, stripped);
    }
  } else {
    out_ += "...";
  }
}

}  // namespace coreai::ir
