#include "coreai/ir/op_code.h"

#include <array>
#include <unordered_map>

#include "coreai/base/error.h"

namespace coreai::ir {
namespace {

std::vector<OpAttributeInfo> parse_attributes(std::string_view list) {
  std::vector<OpAttributeInfo> attributes;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view name = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    attributes.push_back({name, optional});
  }
  return attributes;
}

// Both maps and the rows themselves, built once from the table.
struct OpTable {
  std::vector<OpInfo> rows;
  std::unordered_map<std::string_view, OpCode> by_disk_name, by_text_name;

  OpTable() {
#define COREAI_OP(disk, code, text, since, attributes, regions, decomposable, operands, results, ...) \
  rows.push_back(                                                                                     \
      {OpCode::code, disk, text, since, parse_attributes(attributes), regions, decomposable, operands, results});
#include "coreai/ir/op_table.inc"
#undef COREAI_OP
    for (const OpInfo& row : rows) {
      by_disk_name.emplace(row.disk_name, row.code);
      if (row.text_name.empty()) continue;
      // Versions of one op stand in ascending order, so the newest one wins.
      by_text_name.insert_or_assign(row.text_name, row.code);
    }
  }
};

const OpTable& table() {
  static const OpTable instance;
  return instance;
}

}  // namespace

int OpInfo::attribute_index(std::string_view name) const {
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    if (attributes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

const OpInfo& op_info(OpCode code) {
  const auto index = static_cast<std::size_t>(code);
  COREAI_INVARIANT(index < table().rows.size());
  return table().rows[index];
}

std::optional<OpCode> op_from_disk_name(std::string_view name) {
  const auto found = table().by_disk_name.find(name);
  if (found == table().by_disk_name.end()) return std::nullopt;
  return found->second;
}

std::optional<OpCode> op_from_text_name(std::string_view name) {
  const auto found = table().by_text_name.find(name);
  if (found == table().by_text_name.end()) return std::nullopt;
  return found->second;
}

std::vector<OpCode> all_ops() {
  std::vector<OpCode> codes;
  for (const OpInfo& row : table().rows) codes.push_back(row.code);
  return codes;
}

}  // namespace coreai::ir
