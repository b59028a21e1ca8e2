#include "ir/signature.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "coreai/base/error.h"
#include "coreai/ir/op_doc.h"

namespace coreai::ir {
namespace {

// Splits at `separator` outside of brackets.
std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']') --depth;
    if (depth == 0 && text.compare(i, separator.size(), separator) == 0) {
      parts.push_back(text.substr(start, i - start));
      start = i + separator.size();
    }
  }
  if (!text.empty()) parts.push_back(text.substr(start));
  return parts;
}

int parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  COREAI_INVARIANT(error == std::errc{} && end != text.data());
  return value;
}

// "1D", "0D/1D", "1D, 3 elements", "1D static", "sparse bitmask"
void parse_rank(std::string_view text, OperandRule& rule) {
  for (std::string_view part : split(text, ", ")) {
    if (part == "sparse bitmask") {
      rule.sparse = true;
    } else if (part.ends_with(" elements")) {
      rule.elements = parse_int(part);
    } else {
      if (part.ends_with(" static")) {
        rule.static_extents = true;
        part.remove_suffix(std::string_view(" static").size());
      }
      const std::vector<std::string_view> ranks = split(part, "/");
      rule.min_rank = parse_int(ranks.front());
      rule.max_rank = parse_int(ranks.back());
    }
  }
}

OperandRule parse_rule(std::string_view text) {
  OperandRule rule;
  rule.text = text;
  const std::size_t bracket = text.find('[');
  const std::size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : text.find(']'));
  COREAI_INVARIANT(colon != std::string_view::npos);
  rule.name = text.substr(0, std::min(bracket, colon));
  if (rule.name.ends_with("...")) {
    rule.variadic = true;
    rule.name.remove_suffix(3);
  }
  if (bracket != std::string_view::npos) {
    parse_rank(text.substr(bracket + 1, text.find(']') - bracket - 1), rule);
  }
  const std::string_view type = text.substr(colon + 1);
  if (type == "any") {
    rule.kind = OperandKind::kAny;
  } else if (type == "token") {
    rule.kind = OperandKind::kToken;
  } else if (type == "opaque_type") {
    rule.kind = OperandKind::kOpaque;
  } else {
    rule.dtypes = dtype_set(type);
  }
  return rule;
}

std::vector<OperandRule> parse_rules(std::string_view text) {
  std::vector<OperandRule> rules;
  for (const std::string_view part : split(text, ", ")) rules.push_back(parse_rule(part));
  return rules;
}

}  // namespace

const std::vector<DTypeSetName>& dtype_set_names() {
  using D = DType;
  static const std::vector<DTypeSetName> names = {
      {"F", {D::kF64, D::kF32, D::kF16, D::kBF16}},
      {"F32d", {D::kF32, D::kF16, D::kBF16}},
      {"F8", {D::kF8E5M2, D::kF8E4M3FN}},
      {"FX", {D::kF4E2M1FN, D::kF8E8M0FNU}},
      {"I", {D::kSI8, D::kSI16, D::kSI32, D::kSI64, D::kUI8, D::kUI16, D::kUI32, D::kUI64}},
      {"I8", {D::kSI8, D::kUI8}},
      {"I16up", {D::kSI16, D::kSI32, D::kSI64, D::kUI16, D::kUI32, D::kUI64}},
      {"I2I4", {D::kSI2, D::kSI4, D::kUI2, D::kUI4}},
      {"U136", {D::kUI1, D::kUI3, D::kUI6}},
      {"LUTIDX", {D::kUI1, D::kUI2, D::kUI3, D::kUI4, D::kUI6, D::kUI8}},
      {"B", {D::kI1}},
      {"C", {D::kComplexF32}},
      {"SX", {D::kSI16, D::kSI32}},
      {"UX", {D::kUI16, D::kUI32}},
  };
  return names;
}

std::uint64_t dtype_set(std::string_view text) {
  static_assert(kDTypeCount <= 64);
  std::uint64_t bits = 0;
  for (const std::string_view part : split(text, "+")) {
    if (const auto dtype = dtype_from_name(part)) {
      bits |= std::uint64_t{1} << static_cast<int>(*dtype);
      continue;
    }
    bool known = false;
    for (const DTypeSetName& set : dtype_set_names()) {
      if (set.name != part) continue;
      known = true;
      for (const DType dtype : set.dtypes) bits |= std::uint64_t{1} << static_cast<int>(dtype);
    }
    if (!known) throw InternalError(fmt::format("the op table names an unknown dtype set '{}'", part));
  }
  return bits;
}

std::string_view op_summary(OpCode code) {
  static constexpr std::string_view kSummaries[] = {
#define COREAI_OP(disk, enumerator, text, since, attributes, regions, decomposable, operands, results, summary) summary,
#include "coreai/ir/op_table.inc"
#undef COREAI_OP
  };
  const auto index = static_cast<std::size_t>(code);
  COREAI_INVARIANT(index < std::size(kSummaries));
  return kSummaries[index];
}

const OpSignature& op_signature(OpCode code) {
  static const std::vector<OpSignature> signatures = [] {
    std::vector<OpSignature> rows;
    for (const OpCode each : all_ops()) {
      rows.push_back({parse_rules(op_info(each).operands), parse_rules(op_info(each).results)});
    }
    return rows;
  }();
  return signatures.at(static_cast<std::size_t>(code));
}

std::optional<std::vector<std::size_t>> split_values(const std::vector<OperandRule>& rules, std::size_t count,
                                                     std::size_t paired) {
  std::size_t fixed = 0, groups = 0;
  for (const OperandRule& rule : rules) (rule.variadic ? groups : fixed) += 1;
  if (groups > 1) fixed += paired;  // the last group is as long as the results
  if (count < fixed || (groups == 0 && count != fixed)) return std::nullopt;
  std::vector<std::size_t> sizes;
  for (const OperandRule& rule : rules) {
    const bool last_group = rule.variadic && groups > 1 && &rule == &rules.back();
    sizes.push_back(last_group ? paired : rule.variadic ? count - fixed : 1);
  }
  return sizes;
}

}  // namespace coreai::ir
