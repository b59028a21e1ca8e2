// The program form of types and attributes; disk_text.cpp has the other one.
#include "ir/attribute_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "coreai/base/error.h"
#include "ir/number_text.h"

namespace coreai::ir {

AttributeWriter::Nesting::Nesting(AttributeWriter& writer) : writer_(writer) {
  if (writer.depth_ >= kMaxDepth || writer.out_.size() - writer.start_ > kMaxBytes) {
    throw VerificationError(
        fmt::format("the text of an attribute is deeper than {} levels or longer than {} bytes", kMaxDepth, kMaxBytes));
  }
  ++writer.depth_;
}

std::string program_key(std::string_view disk_key) {
  constexpr std::string_view kDisk = "aicode.";
  return disk_key.starts_with(kDisk) ? fmt::format("coreai.{}", disk_key.substr(kDisk.size())) : std::string(disk_key);
}

std::string symbol_text(const std::vector<std::string>& path) {
  std::string text;
  for (const std::string& name : path) {
    if (!text.empty()) text += "::";
    text += "@" + identifier_text(name);
  }
  return text;
}

void AttributeWriter::type(TypeRef type) {
  const Nesting nesting(*this);
  if (type == nullptr) {
    out_ += "<<null type>>";
  } else if (form_ == TextForm::kDisk) {
    disk_type(type);
  } else {
    program_type(type);
  }
}

void AttributeWriter::attribute(AttrRef attribute) {
  const Nesting nesting(*this);
  if (attribute == nullptr) {
    out_ += "<<null attribute>>";
  } else if (form_ == TextForm::kDisk || !program_attribute(*attribute)) {
    disk_attribute(*attribute);
  }
}

void AttributeWriter::stripped_type(TypeRef type) {
  const std::size_t at = out_.size();
  this->type(type);
  for (const std::string_view prefix : {"!coreai.handle", "!coreai.image"}) {
    if (out_.compare(at, prefix.size(), prefix) == 0) out_.erase(at, prefix.size());
  }
}

void AttributeWriter::types(const std::vector<TypeRef>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out_ += ", ";
    type(list[i]);
  }
}

void AttributeWriter::function(const std::vector<TypeRef>& operands, const std::vector<TypeRef>& results) {
  out_ += "(";
  types(operands);
  out_ += ") -> ";
  const bool parens = results.size() != 1 || (results[0] != nullptr && results[0]->code() == TypeCode::kFunction);
  if (parens) out_ += "(";
  types(results);
  if (parens) out_ += ")";
}

void AttributeWriter::program_type(TypeRef type) {
  if (type->is_tensor()) {
    out_ += "tensor<";
    const std::string shape = type->shape().to_string();
    if (!shape.empty()) out_ += shape + "x";
    this->type(type->field<TypeRef>(1));
    if (type->encoding() != nullptr) {
      out_ += ", ";
      attribute(type->encoding());
    }
    out_ += ">";
    return;
  }
  if (type->is_element()) {
    out_ += dtype_name(type->dtype());
    return;
  }
  switch (type->code()) {
    case TypeCode::kFunction:
      return function(type->field<std::vector<TypeRef>>(1), type->field<std::vector<TypeRef>>(0));
    case TypeCode::kHandle:
      out_ += "!coreai.handle<";
      this->type(type->field<TypeRef>(0));
      out_ += ">";
      return;
    case TypeCode::kToken:
      out_ += "!coreai.token";
      return;
    case TypeCode::kParamSymbol:
      out_ += "!param.symbol";
      return;
    case TypeCode::kParamType:
      out_ += "!param.type";
      return;
    case TypeCode::kImage:
    case TypeCode::kImageWithImageConstraints:
      return image(*type);
    case TypeCode::kDebuginfoUnresolved:
      out_ += "!debuginfo.unresolved<";
      this->type(type->field<TypeRef>(0));
      out_ += ">";
      return;
    default:
      return disk_type(type);
  }
}

void AttributeWriter::image(const Type& type) {
  const bool disk = form_ == TextForm::kDisk;
  const auto fourcc = type.field<AttrRef>(0);
  out_ += disk ? "!aicode.image_v1<" : "!coreai.image<";
  if (fourcc != nullptr && fourcc->is(AttrCode::kFourcc)) {
    out_ += fmt::format("<{}>", enum_case("FourCC", fourcc->as_enum()));
  } else {
    attribute(fourcc);
  }
  const std::string_view kind = disk ? "" : " : i64";
  out_ += fmt::format(" x {}{} x {}{}", type.field<std::uint64_t>(1), kind, type.field<std::uint64_t>(2), kind);
  if (type.code() == TypeCode::kImageWithImageConstraints) {
    out_ += ", image_constraints = ";
    const auto constraints = type.field<AttrRef>(3);
    if (disk) {
      bare(constraints);
    } else {
      attribute(constraints);
    }
  }
  out_ += ">";
}

std::string AttributeWriter::enum_case(std::string_view enum_name, std::uint64_t value) const {
  std::string name = enum_case_name(enum_name, value);
  if (name.empty()) return fmt::format("{}", value);
  // The file's text form spells the two enums of the `ax` family with their prefix.
  if (form_ == TextForm::kDisk && (enum_name == "AllocationType" || enum_name == "ImageContainerType")) {
    name.insert(0, "AX");
  }
  return name;
}

void AttributeWriter::numbers(const std::vector<std::int64_t>& values, std::string_view separator) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out_ += separator;
    out_ += values[i] == kDynamic ? "?" : fmt::format("{}", values[i]);
  }
}

void AttributeWriter::hw_constraints(const Attribute& attribute) {
  const std::string_view separator = form_ == TextForm::kDisk ? ", " : "x";
  out_ += enum_case("AllocationType", attribute.field<std::uint64_t>(2)) + ", alignments: [";
  numbers(attribute.field<std::vector<std::int64_t>>(0), separator);
  out_ += "], interleave: [";
  numbers(attribute.field<std::vector<std::int64_t>>(1), separator);
  out_ += "]";
  if (attribute.is(AttrCode::kAxHwConstraintsWithBaseEncoding)) {
    out_ += ", baseEncoding: ";
    this->attribute(attribute.field<AttrRef>(3));
  }
}

void AttributeWriter::sparse_encoding(const Attribute& attribute) {
  out_ += enum_case("CompressionScheme", attribute.field<std::uint64_t>(0));
  const auto& non_zeros = attribute.field<std::vector<std::uint64_t>>(3);
  if (!non_zeros.empty()) out_ += fmt::format(", numNonZero = {}", non_zeros[0]);
  out_ += fmt::format(", posWidth = {}, crdWidth = {}", attribute.field<std::uint64_t>(1),
                      attribute.field<std::uint64_t>(2));
  if (attribute.is(AttrCode::kSparseTensorEncodingWithBlockSize)) {
    out_ += fmt::format(", blockSize = [{}]", fmt::join(attribute.field<std::vector<std::uint64_t>>(4), ", "));
  }
}

void AttributeWriter::named_entry(const Attribute& entry) {
  if (!entry.is(AttrCode::kSerializationOpaque)) return attribute(&entry);
  const auto& parameters = entry.field<std::vector<AttrRef>>(1);
  out_ += identifier_text(program_key(entry.field<std::string>(0)));
  if (parameters.size() == 1 && parameters[0] != nullptr && parameters[0]->is(AttrCode::kUnit)) return;
  out_ += " = ";
  if (parameters.size() == 1) return attribute(parameters[0]);
  out_ += "[";
  list(parameters);
  out_ += "]";
}

void AttributeWriter::dictionary(const std::vector<AttrRef>& entries) {
  std::vector<std::pair<std::string, std::size_t>> sorted;  // by key; equal keys in the file's order
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const bool named = entries[i] != nullptr && entries[i]->is(AttrCode::kSerializationOpaque);
    sorted.emplace_back(named ? program_key(entries[i]->field<std::string>(0)) : std::string(), i);
  }
  std::ranges::sort(sorted);
  out_ += "{";
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i > 0) out_ += ", ";
    const AttrRef entry = entries[sorted[i].second];
    if (entry == nullptr) {
      attribute(nullptr);
    } else {
      named_entry(*entry);
    }
  }
  out_ += "}";
}

void AttributeWriter::list(const std::vector<AttrRef>& attributes) {
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    if (i > 0) out_ += ", ";
    attribute(attributes[i]);
  }
}

namespace {

// "#coreai.padding_mode" of the attributes that hold one enum case; empty for others.
std::string_view program_enum(AttrCode code) {
  switch (code) {
    case AttrCode::kPaddingMode:
      return "coreai.padding_mode";
    case AttrCode::kApproximate:
      return "coreai.approximate";
    case AttrCode::kScatterMode:
      return "coreai.scatter_mode";
    case AttrCode::kScanCombiner:
      return "coreai.scan_combiner";
    case AttrCode::kFourcc:
      return "coreai.fourcc";
    case AttrCode::kInterpolationMode:
      return "coreai.interpolation_mode";
    case AttrCode::kExecutionLifecyclePhase:
      return "udml.lifecycle";
    default:
      return {};
  }
}

// The float format of an attribute's width; nothing for widths without one.
std::optional<DType> float_of_width(std::uint64_t width) {
  if (width == 16) return DType::kF16;
  if (width == 32) return DType::kF32;
  if (width == 64) return DType::kF64;
  return std::nullopt;
}

}  // namespace

std::string float_attribute_text(const Attribute& attribute) {
  const std::uint64_t width = attribute.field<std::uint64_t>(0);
  const auto& words = attribute.field<std::vector<std::uint64_t>>(1);
  const auto dtype = float_of_width(width);
  if (dtype && words.size() == 1) return float_text(*dtype, words[0]);
  std::string text = "0x";
  for (std::size_t i = words.size(); i-- > 0;) text += fmt::format("{:016X}", words[i]);
  return text;
}

bool AttributeWriter::program_attribute(const Attribute& attribute) {
  if (const std::string_view name = program_enum(attribute.code()); !name.empty()) {
    out_ +=
        fmt::format("#{}<{}>", name, enum_case(attr_info(attribute.code()).fields[0].enum_name, attribute.as_enum()));
    return true;
  }
  switch (attribute.code()) {
    case AttrCode::kSerializationString:
      out_ += fmt::format("\"{}\"", escaped(attribute.as_string()));
      return true;
    case AttrCode::kSerializationInteger: {
      const std::uint64_t width = attribute.field<std::uint64_t>(0);
      const bool is_unsigned = attribute.field<std::uint64_t>(1) != 0;
      const std::string text = integer_text(attribute.field<std::vector<std::uint64_t>>(2), width, is_unsigned);
      out_ += width == 1 ? (text == "0" ? "false" : "true")
                         : fmt::format("{} : {}{}", text, is_unsigned ? "ui" : "si", width);
      return true;
    }
    case AttrCode::kSerializationFloat:
      out_ += fmt::format("{} : f{}", float_attribute_text(attribute), attribute.field<std::uint64_t>(0));
      return true;
    case AttrCode::kSerializationType:
      type(attribute.field<TypeRef>(0));
      return true;
    case AttrCode::kSerializationArray:
      out_ += "[";
      list(attribute.field<std::vector<AttrRef>>(0));
      out_ += "]";
      return true;
    case AttrCode::kSerializationDictionary:
      dictionary(attribute.field<std::vector<AttrRef>>(0));
      return true;
    case AttrCode::kSymbolRef:
      out_ += symbol_text(attribute.field<std::vector<std::string>>(0));
      return true;
    case AttrCode::kParamConstant:
      out_ += "#param.constant<";
      this->attribute(attribute.field<AttrRef>(0));
      out_ += "> : ";
      type(attribute.field<TypeRef>(1));
      return true;
    case AttrCode::kAxHwConstraints:
    case AttrCode::kAxHwConstraintsWithBaseEncoding:
      out_ += "#coreaix.hw_constraints<";
      hw_constraints(attribute);
      out_ += ">";
      return true;
    case AttrCode::kSparseTensorEncoding:
    case AttrCode::kSparseTensorEncodingWithBlockSize:
      out_ += "#coreai.sparse_tensor_encoding<";
      sparse_encoding(attribute);
      out_ += ">";
      return true;
    case AttrCode::kAxImageConstraints:
      out_ += fmt::format("#coreaix.image_constraints<{}, rowAlignmentsPerPlane: [",
                          enum_case("ImageContainerType", attribute.field<std::uint64_t>(0)));
      numbers(attribute.field<std::vector<std::int64_t>>(1), "x");
      out_ += "]>";
      return true;
    case AttrCode::kUnit:
      out_ += "unit";
      return true;
    default:
      return false;
  }
}

std::string to_text(TypeRef type, TextForm form) {
  std::string out;
  AttributeWriter(out, form).type(type);
  return out;
}

std::string to_text(AttrRef attribute, TextForm form) {
  std::string out;
  AttributeWriter(out, form).attribute(attribute);
  return out;
}

}  // namespace coreai::ir
