// The tables of docs/aimodel-format.md, made from the code's own tables.
#include <fmt/format.h>

#include <functional>
#include <map>

#include "coreai-build/commands.h"
#include "coreai/base/dtype.h"
#include "coreai/ir/context.h"
#include "coreai/ir/op_code.h"
#include "coreai/ir/op_doc.h"
#include "coreai/ir/printer.h"
#include "coreai/ir/type.h"

namespace coreai::tools {
namespace {

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

std::string row(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string header(const std::vector<std::string>& titles) {
  return row(titles) + row(std::vector<std::string>(titles.size(), "---"));
}

// A bar would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

std::string code(std::string_view text) {
  return text.empty() ? std::string() : fmt::format("`{}`", cell(text));
}

std::string date(std::int32_t since) {
  return since == 0 ? std::string() : fmt::format("{}", since);
}

std::string_view kind_name(ir::FieldKind kind) {
  switch (kind) {
    case ir::FieldKind::kVarint:
      return "varint";
    case ir::FieldKind::kSVarint:
      return "svarint";
    case ir::FieldKind::kByte:
      return "byte";
    case ir::FieldKind::kString:
      return "str";
    case ir::FieldKind::kAttr:
      return "attr";
    case ir::FieldKind::kType:
      return "type";
    case ir::FieldKind::kResource:
      return "blob index";
    case ir::FieldKind::kSVarintList:
      return "list of svarint";
    case ir::FieldKind::kVarintList:
      return "list of varint";
    case ir::FieldKind::kStringList:
      return "list of str";
    case ir::FieldKind::kAttrList:
      return "list of attr";
    case ir::FieldKind::kTypeList:
      return "list of type";
    case ir::FieldKind::kBlob:
      return "bytes";
    case ir::FieldKind::kOptionalVarint:
      return "optional varint";
    case ir::FieldKind::kApInt:
      return "big integer";
    case ir::FieldKind::kApFloat:
      return "big float";
  }
  return "?";
}

std::string fields_text(const std::vector<ir::FieldInfo>& fields) {
  std::string text;
  for (const ir::FieldInfo& field : fields) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} `{}`", field.enum_name.empty() ? std::string(kind_name(field.kind)) : field.enum_name,
                        field.name);
  }
  return text.empty() ? "none" : text;
}

std::string code_table(const std::function<const ir::CodeInfo*(std::uint64_t)>& find, bool skip_elements) {
  std::string out = header({"code", "name", "fields", "since"});
  for (std::uint64_t number = 0; number < 64; ++number) {
    const ir::CodeInfo* info = find(number);
    if (info == nullptr) continue;
    if (skip_elements && info->fields.empty() && number >= 4 && number != 32 && number != 33 && number != 34) continue;
    out += row({fmt::format("{}", number), code(info->disk_name), fields_text(info->fields), date(info->since)});
  }
  return out;
}

std::string element_types() {
  std::string out = header({"code", "name", "text", "bits", "since"});
  ir::Context context;
  std::map<int, DType> by_code;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    by_code[static_cast<int>(context.element_type(dtype)->code())] = dtype;
  }
  for (const auto& [number, dtype] : by_code) {
    const ir::CodeInfo& info = ir::type_info(static_cast<ir::TypeCode>(number));
    out += row({fmt::format("{}", number), code(info.disk_name), code(dtype_name(dtype)),
                fmt::format("{}", dtype_bits(dtype)), date(info.since)});
  }
  return out;
}

std::string enums() {
  std::string out = header({"enum", "cases"});
  std::string_view current;
  std::string cases;
  const auto flush = [&](bool flags) {
    if (!current.empty()) out += row({fmt::format("{}{}", current, flags ? " (bits)" : ""), cases});
    cases.clear();
  };
  bool flags = false;
  for (const EnumCase& each : kEnumCases) {
    if (each.enum_name != current) flush(flags);
    current = each.enum_name;
    flags = each.flags;
    if (!cases.empty()) cases += ", ";
    cases += fmt::format("{} {}", each.disk_name, each.value);
  }
  flush(flags);
  return out;
}

std::string attributes_text(const ir::OpInfo& info) {
  std::string text;
  for (const ir::OpAttributeInfo& attribute : info.attributes) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}{}", attribute.name, attribute.optional ? "?" : "");
  }
  return text;
}

std::string operations() {
  std::string out =
      header({"operation", "in text", "since", "operands → results", "attributes", "regions", "computes"});
  for (const ir::OpCode op : ir::all_ops()) {
    const ir::OpInfo& info = ir::op_info(op);
    const std::string regions = info.decomposable  ? "D"
                                : info.regions < 0 ? "any"
                                : info.regions > 0 ? fmt::format("{}", info.regions)
                                                   : "";
    const std::string signature = info.operands.empty() && info.results.empty()
                                      ? std::string()
                                      : fmt::format("{} → {}", info.operands.empty() ? "()" : cell(info.operands),
                                                    info.results.empty() ? "()" : cell(info.results));
    out += row({code(info.disk_name), code(info.text_name), date(info.since), signature, attributes_text(info), regions,
                cell(ir::op_summary(op))});
  }
  return out;
}

std::string dtype_sets() {
  std::string out = header({"set", "element types"});
  for (const ir::DTypeSetName& set : ir::dtype_set_names()) {
    std::string names;
    for (const DType dtype : set.dtypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", dtype_name(dtype));
    out += row({code(set.name), names});
  }
  return out;
}

}  // namespace

std::vector<DialectTable> dialect_tables() {
  return {{"types", code_table(ir::find_type_info, true)},
          {"element types", element_types()},
          {"attributes", code_table(ir::find_attr_info, false)},
          {"enums", enums()},
          {"dtype sets", dtype_sets()},
          {"operations", operations()}};
}

}  // namespace coreai::tools
