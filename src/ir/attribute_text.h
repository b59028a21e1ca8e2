// Types and attributes as text, in the reference's program form or as the file spells them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/ir/printer.h"
#include "coreai/ir/type.h"

namespace coreai::ir {

// Appends to a string. Throws VerificationError when the text outgrows kMaxBytes or nests deeper than kMaxDepth: nested
// attributes share their parts, so that a few bytes of a file can stand for any amount of text.
class AttributeWriter {
 public:
  AttributeWriter(std::string& out, TextForm form) : out_(out), form_(form), start_(out.size()) {}

  void type(TypeRef type);
  // Without the leading "!coreai.handle" or "!coreai.image", as operations print it.
  void stripped_type(TypeRef type);
  void attribute(AttrRef attribute);
  // "{a = 1 : si64, b}": entries are named values (serialization.opaque with one parameter).
  void dictionary(const std::vector<AttrRef>& entries);
  // "(a, b) -> c"
  void function(const std::vector<TypeRef>& operands, const std::vector<TypeRef>& results);

  // The disk form without its name: "<...>".
  void bare(AttrRef attribute);

 private:
  static constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  static constexpr int kMaxDepth = 200;

  // One level deeper; also where depth and size are checked.
  struct Nesting {
    explicit Nesting(AttributeWriter& writer);
    ~Nesting() { --writer_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    AttributeWriter& writer_;
  };
  void program_type(TypeRef type);
  bool program_attribute(const Attribute& attribute);  // false: the program form has no spelling for it
  void disk_type(TypeRef type, bool prefix = true);
  void disk_attribute(const Attribute& attribute, bool prefix = true);
  bool disk_body(const Attribute& attribute);
  void disk_fields(std::span<const Field> fields, const CodeInfo& info, std::span<const std::string_view> stripped);
  void disk_field(const Field& field, const FieldInfo& info, bool stripped);
  void image(const Type& type);
  void hw_constraints(const Attribute& attribute);
  void sparse_encoding(const Attribute& attribute);
  void named_entry(const Attribute& entry);
  void list(const std::vector<AttrRef>& attributes);
  void types(const std::vector<TypeRef>& list);
  void numbers(const std::vector<std::int64_t>& values, std::string_view separator);
  std::string enum_case(std::string_view enum_name, std::uint64_t value) const;

  std::string& out_;
  TextForm form_;
  std::size_t start_;
  int depth_ = 0;
};

// "coreai.name" of "aicode.name": keys of the dialect are stored under the dialect's own prefix.
std::string program_key(std::string_view disk_key);
// "@ns::@callee"
std::string symbol_text(const std::vector<std::string>& path);

// The number of a serialization.float, without its type.
std::string float_attribute_text(const Attribute& attribute);

}  // namespace coreai::ir
