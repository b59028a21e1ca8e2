// Operations of the dialect by code, with what the table says of each. Source: docs/aimodel-format.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace coreai::ir {

enum class OpCode : std::uint16_t {
#define COREAI_OP(disk, code, ...) code,
#include "coreai/ir/op_table.inc"
#undef COREAI_OP
};

struct OpAttributeInfo {
  std::string_view name;
  bool optional;
};

struct OpInfo {
  OpCode code;
  std::string_view disk_name;               // "primitive.add_v1"; on disk behind "aicode."
  std::string_view text_name;               // "coreai.add"; empty when the op has no text form
  std::int32_t since;                       // YYYYMMDD, 0 when unknown
  std::vector<OpAttributeInfo> attributes;  // in the order of the property record
  int regions;
  bool decomposable;          // carries one region that spells it out in primitives
  std::string_view operands;  // signature as in the table
  std::string_view results;

  bool regions_isolated() const { return code != OpCode::kIf && code != OpCode::kWhile; }
  // Index of an attribute in Op::attributes; -1 when the op has none of that name.
  int attribute_index(std::string_view name) const;
};

const OpInfo& op_info(OpCode code);
std::optional<OpCode> op_from_disk_name(std::string_view name);  // without "aicode."
std::optional<OpCode> op_from_text_name(std::string_view name);  // the newest version of that name
std::vector<OpCode> all_ops();

}  // namespace coreai::ir
