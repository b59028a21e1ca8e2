#include "coreai/ir/context.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <unordered_set>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai::ir {
namespace {

std::size_t combine(std::size_t seed, std::size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
}

template <typename T>
std::size_t hash_value(const T& value) {
  return std::hash<T>{}(value);
}
std::size_t hash_value(const std::vector<std::byte>& bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}
template <typename T>
std::size_t hash_value(const std::vector<T>& values) {
  std::size_t seed = values.size();
  for (const T& value : values) seed = combine(seed, std::hash<T>{}(value));
  return seed;
}

std::size_t hash_fields(std::size_t code, std::span<const Field> fields) {
  std::size_t seed = code;
  for (const Field& field : fields) {
    seed = combine(seed, field.index());
    seed = combine(seed, std::visit([](const auto& value) { return hash_value(value); }, field));
  }
  return seed;
}

template <typename T>
struct ContentHash {
  std::size_t operator()(const T* item) const {
    return hash_fields(static_cast<std::size_t>(item->code()), item->fields());
  }
};
template <typename T>
struct ContentEqual {
  bool operator()(const T* a, const T* b) const {
    return a->code() == b->code() &&
           std::equal(a->fields().begin(), a->fields().end(), b->fields().begin(), b->fields().end());
  }
};

bool holds(FieldKind kind, const Field& field) {
  switch (kind) {
    case FieldKind::kVarint:
    case FieldKind::kByte:
      return std::holds_alternative<std::uint64_t>(field);
    case FieldKind::kSVarint:
      return std::holds_alternative<std::int64_t>(field);
    case FieldKind::kString:
      return std::holds_alternative<std::string>(field);
    case FieldKind::kAttr:
      return std::holds_alternative<AttrRef>(field) && std::get<AttrRef>(field) != nullptr;
    case FieldKind::kType:
      return std::holds_alternative<TypeRef>(field) && std::get<TypeRef>(field) != nullptr;
    case FieldKind::kResource:
      return std::holds_alternative<ResourceRef>(field) && std::get<ResourceRef>(field) != nullptr;
    case FieldKind::kSVarintList:
      return std::holds_alternative<std::vector<std::int64_t>>(field);
    case FieldKind::kVarintList:
    case FieldKind::kOptionalVarint:
    case FieldKind::kApInt:
    case FieldKind::kApFloat:
      return std::holds_alternative<std::vector<std::uint64_t>>(field);
    case FieldKind::kStringList:
      return std::holds_alternative<std::vector<std::string>>(field);
    case FieldKind::kAttrList:
      return std::holds_alternative<std::vector<AttrRef>>(field);
    case FieldKind::kTypeList:
      return std::holds_alternative<std::vector<TypeRef>>(field);
    case FieldKind::kBlob:
      return std::holds_alternative<std::vector<std::byte>>(field);
  }
  return false;
}

void check_fields(const CodeInfo& info, std::span<const Field> fields) {
  COREAI_INVARIANT(fields.size() == info.fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) COREAI_INVARIANT(holds(info.fields[i].kind, fields[i]));
}

template <typename Ref>
void add_part(Extent& extent, Ref part) {
  extent.depth = std::max(extent.depth, part->extent().depth + 1);
  extent.nodes = std::min(extent.nodes + part->extent().nodes, Extent::kMaxNodes);
}

Extent extent_of(std::span<const Field> fields) {
  Extent extent;
  for (const Field& field : fields) {
    if (const auto* attribute = std::get_if<AttrRef>(&field)) add_part(extent, *attribute);
    if (const auto* type = std::get_if<TypeRef>(&field)) add_part(extent, *type);
    if (const auto* list = std::get_if<std::vector<AttrRef>>(&field)) {
      for (const AttrRef attribute : *list) add_part(extent, attribute);
    }
    if (const auto* list = std::get_if<std::vector<TypeRef>>(&field)) {
      for (const TypeRef type : *list) add_part(extent, type);
    }
  }
  return extent;
}

}  // namespace

struct Context::Tables {
  std::deque<Attribute> attributes;
  std::deque<Type> types;
  std::unordered_set<AttrRef, ContentHash<Attribute>, ContentEqual<Attribute>> attribute_set;
  std::unordered_set<TypeRef, ContentHash<Type>, ContentEqual<Type>> type_set;
};

Context::Context() : tables_(std::make_unique<Tables>()) {}
Context::~Context() = default;

AttrRef Context::attribute(AttrCode code, std::vector<Field> fields) {
  check_fields(attr_info(code), fields);
  Attribute candidate;
  candidate.code_ = code;
  candidate.fields_ = std::move(fields);
  const auto found = tables_->attribute_set.find(&candidate);
  if (found != tables_->attribute_set.end()) return *found;
  candidate.extent_ = extent_of(candidate.fields_);
  tables_->attributes.push_back(std::move(candidate));
  const AttrRef stored = &tables_->attributes.back();
  tables_->attribute_set.insert(stored);
  return stored;
}

TypeRef Context::type(TypeCode code, std::vector<Field> fields) {
  check_fields(type_info(code), fields);
  Type candidate;
  candidate.code_ = code;
  candidate.fields_ = std::move(fields);
  const auto found = tables_->type_set.find(&candidate);
  if (found != tables_->type_set.end()) return *found;
  candidate.extent_ = extent_of(candidate.fields_);
  candidate.dtype_ = dtype_of(code);
  if (candidate.is_tensor()) {
    candidate.shape_ = Shape(candidate.field<std::vector<std::int64_t>>(0));
    candidate.dtype_ = dtype_of(candidate.field<TypeRef>(1)->code());
  }
  tables_->types.push_back(std::move(candidate));
  const TypeRef stored = &tables_->types.back();
  tables_->type_set.insert(stored);
  return stored;
}

TypeRef Context::element_type(DType dtype) {
  return type(type_code_of(dtype), {});
}

TypeRef Context::tensor_type(DType dtype, const Shape& shape, AttrRef encoding) {
  std::vector<std::int64_t> dims(shape.begin(), shape.end());
  if (!encoding) return type(TypeCode::kTensor, {std::move(dims), element_type(dtype)});
  return type(TypeCode::kTensorWithEncoding, {std::move(dims), element_type(dtype), encoding});
}

TypeRef Context::handle_type(TypeRef inner) {
  return type(TypeCode::kHandle, {inner});
}

TypeRef Context::token_type() {
  return type(TypeCode::kToken, {});
}

TypeRef Context::function_type(std::vector<TypeRef> inputs, std::vector<TypeRef> results) {
  return type(TypeCode::kFunction, {std::move(results), std::move(inputs)});
}

AttrRef Context::string_attr(std::string value) {
  return attribute(AttrCode::kSerializationString, {std::move(value)});
}

AttrRef Context::integer_attr(std::int64_t value, unsigned width, bool is_unsigned) {
  COREAI_INVARIANT(width >= 1 && width <= 64);
  const std::uint64_t mask = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
  return attribute(AttrCode::kSerializationInteger,
                   {std::uint64_t{width}, std::uint64_t{is_unsigned ? 1u : 0u},
                    std::vector<std::uint64_t>{static_cast<std::uint64_t>(value) & mask}});
}

AttrRef Context::flag_attr(bool value) {
  return integer_attr(value ? 1 : 0, 1, true);
}

AttrRef Context::bool_attr(bool value) {
  return integer_attr(value ? -1 : 0, 1, false);
}

AttrRef Context::float_attr(double value, unsigned width) {
  std::uint64_t bits = 0;
  if (width == 16) {
    bits = f64_to_f16(value);
  } else if (width == 32) {
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  } else {
    COREAI_INVARIANT(width == 64);
    bits = std::bit_cast<std::uint64_t>(value);
  }
  return attribute(AttrCode::kSerializationFloat, {std::uint64_t{width}, std::vector<std::uint64_t>{bits}});
}

AttrRef Context::array_attr(std::vector<AttrRef> elements) {
  return attribute(AttrCode::kSerializationArray, {std::move(elements)});
}

AttrRef Context::named_attr(std::string name, std::vector<AttrRef> parameters) {
  return attribute(AttrCode::kSerializationOpaque, {std::move(name), std::move(parameters)});
}

AttrRef Context::dictionary_attr(std::vector<AttrRef> named) {
  return attribute(AttrCode::kSerializationDictionary, {std::move(named)});
}

AttrRef Context::type_attr(TypeRef value) {
  return attribute(AttrCode::kSerializationType, {value});
}

AttrRef Context::symbol_ref_attr(std::vector<std::string> path) {
  return attribute(AttrCode::kSymbolRef, {std::move(path)});
}

AttrRef Context::callee_attr(std::string symbol) {
  std::vector<std::string> path;
  std::size_t begin = 0;
  for (std::size_t end; (end = symbol.find("::", begin)) != std::string::npos; begin = end + 2) {
    path.push_back(symbol.substr(begin, end - begin));
  }
  path.push_back(symbol.substr(begin));
  return attribute(AttrCode::kParamConstant, {symbol_ref_attr(std::move(path)), type(TypeCode::kParamSymbol, {})});
}

AttrRef Context::unit_attr() {
  return attribute(AttrCode::kUnit, {});
}

AttrRef Context::enum_attr(AttrCode code, std::uint64_t value) {
  return attribute(code, {value});
}

AttrRef Context::dense_attr(std::vector<std::byte> bytes, bool splat) {
  return attribute(AttrCode::kSerializationDenseElements, {std::uint64_t{splat ? 1u : 0u}, std::move(bytes)});
}

AttrRef Context::resource_attr(ResourceRef resource) {
  return attribute(AttrCode::kSerializationDenseResource, {std::move(resource)});
}

AttrRef Context::source_location(std::string filename, std::uint64_t line, std::uint64_t column) {
  const AttrRef file = attribute(AttrCode::kDebuginfoFile, {std::move(filename), std::string(), std::string()});
  const AttrRef source = attribute(AttrCode::kDebuginfoSourceLocation, {file, line, column, line, column});
  return attribute(AttrCode::kDebuginfoLocation, {source, unit_attr(), std::vector<AttrRef>{}, std::vector<AttrRef>{}});
}

AttrRef Context::unknown_location() {
  return source_location({}, 0, 0);
}

}  // namespace coreai::ir
