// An operation against its row of the op table.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "coreai/base/error.h"
#include "coreai/ir/printer.h"
#include "ir/signature.h"
#include "ir/verify.h"

namespace coreai::ir {
namespace {

// Codes that an attribute of this name may have, whatever the operation.
struct AttributeRule {
  std::string_view name;
  std::array<AttrCode, 2> codes;
};
constexpr AttrCode kNone{};
constexpr AttributeRule kAttributeRules[] = {
    {"argAttrs", {AttrCode::kSerializationArray, kNone}},
    {"resAttrs", {AttrCode::kSerializationArray, kNone}},
    {"arg_attrs", {AttrCode::kSerializationArray, kNone}},
    {"res_attrs", {AttrCode::kSerializationArray, kNone}},
    {"paramDecls", {AttrCode::kSerializationArray, kNone}},
    {"annotations", {AttrCode::kSerializationArray, kNone}},
    {"compositeDecl", {AttrCode::kSerializationOpaque, kNone}},
    {"externalize", {AttrCode::kSerializationInteger, kNone}},
    {"isPrivate", {AttrCode::kSerializationInteger, kNone}},
    {"noInline", {AttrCode::kSerializationInteger, kNone}},
    {"keep_placeholder", {AttrCode::kSerializationInteger, kNone}},
    {"id", {AttrCode::kSerializationInteger, kNone}},
    {"version", {AttrCode::kSerializationInteger, kNone}},
    {"functionType", {AttrCode::kSerializationType, kNone}},
    {"name", {AttrCode::kSerializationString, kNone}},
    {"source", {AttrCode::kSerializationString, kNone}},
    {"opname", {AttrCode::kSerializationString, kNone}},
    {"delegate_id", {AttrCode::kSerializationString, kNone}},
    {"kernel_name", {AttrCode::kSerializationString, kNone}},
    {"kernel_source", {AttrCode::kSerializationString, kNone}},
    {"callee", {AttrCode::kParamConstant, AttrCode::kParamBind}},
    {"value", {AttrCode::kSerializationDenseElements, AttrCode::kSerializationDenseResource}},
    {"padding_mode", {AttrCode::kPaddingMode, kNone}},
    {"combiner", {AttrCode::kScanCombiner, kNone}},
    {"approximate", {AttrCode::kApproximate, kNone}},
    {"scatter_mode", {AttrCode::kScatterMode, kNone}},
    {"interpolation_mode", {AttrCode::kInterpolationMode, kNone}},
    {"lifecycle", {AttrCode::kExecutionLifecyclePhase, kNone}},
    {"compilation", {AttrCode::kExecutionCompilation, kNone}},
    {"spec", {AttrCode::kExecutionTargetSpec, kNone}},
    {"variable", {AttrCode::kDebuginfoLocalVariable, kNone}},
};

void check_enum(const VerifyScope& scope, const Op& op, std::string_view name, AttrRef value) {
  const CodeInfo& info = attr_info(value->code());
  if (info.fields.size() != 1 || info.fields[0].enum_name.empty()) return;
  if (enum_case_name(info.fields[0].enum_name, value->as_enum()).empty()) {
    refuse(
        scope, op, "attribute-value",
        fmt::format("attribute `{}` has the unknown case {} of {}", name, value->as_enum(), info.fields[0].enum_name));
  }
}

std::string set_text(const OperandRule& rule) {
  const std::size_t colon = rule.text.rfind(':');
  std::string names;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (!rule.allows(static_cast<DType>(i))) continue;
    if (!names.empty()) names += ", ";
    names += dtype_name(static_cast<DType>(i));
  }
  return fmt::format("{} ({})", rule.text.substr(colon + 1), names);
}

void check_tensor(const VerifyScope& scope, const Op& op, const OperandRule& rule, std::string_view role,
                  std::size_t index, const Value* value) {
  const TypeRef type = value->type;
  const auto text = [&] { return describe_value(scope, role, index, rule.name, value); };
  if (!type->is_tensor()) refuse(scope, op, "operand-type", text() + " is not a tensor");
  if (!rule.allows(type->dtype())) {
    refuse(scope, op, "operand-dtype", fmt::format("{} must be one of {}", text(), set_text(rule)));
  }
  const auto rank = static_cast<int>(type->shape().rank());
  if (rule.max_rank >= 0 && (rank < rule.min_rank || rank > rule.max_rank)) {
    refuse(scope, op, "operand-rank",
           rule.min_rank == rule.max_rank
               ? fmt::format("{} must have rank {}", text(), rule.min_rank)
               : fmt::format("{} must have rank {} to {}", text(), rule.min_rank, rule.max_rank));
  }
  if (rule.static_extents && !type->shape().is_static()) {
    refuse(scope, op, "operand-rank", text() + " must have a static length");
  }
  if (rule.elements >= 0 && rank == 1 && type->shape()[0] != kDynamic && type->shape()[0] != rule.elements) {
    refuse(scope, op, "operand-rank", fmt::format("{} must have {} elements", text(), rule.elements));
  }
  if (rule.sparse) {
    const AttrRef encoding = type->encoding();
    if (encoding == nullptr || !encoding->is(AttrCode::kSparseTensorEncoding)) {
      refuse(scope, op, "operand-encoding", text() + " must carry a sparse bitmask encoding");
    }
  }
}

void check_values(const VerifyScope& scope, const Op& op, const std::vector<OperandRule>& rules, std::string_view role,
                  const std::vector<Value*>& values) {
  const auto sizes = split_values(rules, values.size(), role == "operand" ? op.results.size() : 0);
  std::size_t at = 0;
  for (std::size_t r = 0; r < rules.size(); ++r) {
    for (std::size_t k = 0; k < (*sizes)[r]; ++k, ++at) {
      const Value* value = values[at];
      switch (rules[r].kind) {
        case OperandKind::kAny:
          break;
        case OperandKind::kTensor:
          check_tensor(scope, op, rules[r], role, at, value);
          break;
        case OperandKind::kToken:
          if (!value->type->is_token()) {
            refuse(scope, op, "operand-type",
                   describe_value(scope, role, at, rules[r].name, value) + " is not a token");
          }
          break;
        case OperandKind::kOpaque:
          break;
      }
    }
  }
}

std::string expected_count(const std::vector<OperandRule>& rules) {
  std::size_t fixed = 0;
  bool variadic = false;
  for (const OperandRule& rule : rules) {
    fixed += rule.variadic ? 0 : 1;
    variadic = variadic || rule.variadic;
  }
  return fmt::format("{}{}", variadic ? "at least " : "", fixed);
}

}  // namespace

void verify_shape_of_op(const VerifyScope& scope, const Op& op) {
  const OpSignature& rules = op_signature(op.code);
  for (const auto* values : {&op.operands, &op.results}) {
    if (std::ranges::find(*values, nullptr) != values->end())
      refuse(scope, op, "value", "an operand or result is null");
  }
  if (!split_values(rules.operands, op.operands.size(), op.results.size())) {
    refuse(scope, op, "operand-count",
           fmt::format("{} operands, {} needed", op.operands.size(), expected_count(rules.operands)));
  }
  if (!split_values(rules.results, op.results.size(), 0)) {
    refuse(scope, op, "result-count",
           fmt::format("{} results, {} needed", op.results.size(), expected_count(rules.results)));
  }
  const int regions = op.info().regions;
  if (regions >= 0 && op.regions.size() != static_cast<std::size_t>(regions)) {
    refuse(scope, op, "region-count", fmt::format("{} regions, {} needed", op.regions.size(), regions));
  }
}

void verify_attributes(const VerifyScope& scope, const Op& op) {
  const OpInfo& info = op.info();
  if (op.attributes.size() != info.attributes.size()) {
    refuse(scope, op, "attribute-count",
           fmt::format("{} attributes, {} needed", op.attributes.size(), info.attributes.size()));
  }
  for (std::size_t i = 0; i < op.attributes.size(); ++i) {
    const AttrRef value = op.attributes[i];
    const std::string_view name = info.attributes[i].name;
    if (value == nullptr) {
      if (info.attributes[i].optional) continue;
      refuse(scope, op, "attribute-missing", fmt::format("attribute `{}` is missing", name));
    }
    const auto rule = std::ranges::find(kAttributeRules, name, &AttributeRule::name);
    if (rule != std::end(kAttributeRules) && std::ranges::find(rule->codes, value->code()) == rule->codes.end()) {
      refuse(scope, op, "attribute-kind",
             fmt::format("attribute `{}` is a {}, {} needed", name, attr_info(value->code()).disk_name,
                         attr_info(rule->codes[0]).disk_name));
    }
    check_enum(scope, op, name, value);
  }
}

void verify_operand_types(const VerifyScope& scope, const Op& op) {
  const OpSignature& rules = op_signature(op.code);
  check_values(scope, op, rules.operands, "operand", op.operands);
  check_values(scope, op, rules.results, "result", op.results);
}

}  // namespace coreai::ir
