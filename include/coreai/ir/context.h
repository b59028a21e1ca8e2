// Owner and factory of a program's types and attributes. Not thread-safe while it is being filled.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "coreai/ir/type.h"

namespace coreai::ir {

class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Interned by value. The fields must follow the table (invariant).
  AttrRef attribute(AttrCode code, std::vector<Field> fields);
  TypeRef type(TypeCode code, std::vector<Field> fields);

  TypeRef element_type(DType dtype);
  TypeRef tensor_type(DType dtype, const Shape& shape, AttrRef encoding = nullptr);
  TypeRef handle_type(TypeRef inner);
  TypeRef token_type();
  TypeRef function_type(std::vector<TypeRef> inputs, std::vector<TypeRef> results);

  AttrRef string_attr(std::string value);
  AttrRef integer_attr(std::int64_t value, unsigned width = 64, bool is_unsigned = false);
  AttrRef flag_attr(bool value);  // 1-bit unsigned: isPrivate, noInline, externalize
  AttrRef bool_attr(bool value);  // 1-bit signed: a bool inside a composite declaration
  AttrRef float_attr(double value, unsigned width = 32);
  AttrRef array_attr(std::vector<AttrRef> elements);
  AttrRef named_attr(std::string name, std::vector<AttrRef> parameters);  // serialization.opaque
  AttrRef dictionary_attr(std::vector<AttrRef> named);
  AttrRef type_attr(TypeRef value);
  AttrRef symbol_ref_attr(std::vector<std::string> path);
  AttrRef callee_attr(std::string symbol);  // "g" or "ns::g"; param.constant{symbol_ref}, what invoke stores
  AttrRef unit_attr();
  AttrRef enum_attr(AttrCode code, std::uint64_t value);
  AttrRef dense_attr(std::vector<std::byte> bytes, bool splat);  // bytes in the inline packing
  AttrRef resource_attr(ResourceRef resource);
  AttrRef source_location(std::string filename, std::uint64_t line, std::uint64_t column);
  AttrRef unknown_location();  // the one shared location that says nothing

 private:
  struct Tables;
  std::unique_ptr<Tables> tables_;
};

}  // namespace coreai::ir
