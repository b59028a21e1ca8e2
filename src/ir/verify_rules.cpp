// Rules of single operations that the table cannot say.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "coreai/base/error.h"
#include "coreai/ir/printer.h"
#include "ir/verify.h"

namespace coreai::ir {
namespace {

// Elementwise operations whose operands share one dtype. Result: the same, or i1 for comparisons (held by the table).
bool is_binary_elementwise(const OpInfo& info) {
  constexpr std::string_view kNames[] = {"add",       "sub",     "mul",         "divide",     "floor_divide",
                                         "modulo",    "pow",     "maximum",     "minimum",    "equal",
                                         "not_equal", "greater", "bitwise_and", "bitwise_or", "bitwise_xor"};
  std::string_view name = info.disk_name;
  for (const std::string_view prefix : {"primitive.", "broadcasting_"}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  name = name.substr(0, name.rfind("_v"));
  return std::ranges::find(kNames, name) != std::end(kNames);
}

void check_equal_dtypes(const VerifyScope& scope, const Op& op) {
  const DType first = op.operand_type(0)->dtype();
  const auto check = [&](std::string_view role, std::size_t index, const Value* value) {
    if (value->type->dtype() == first) return;
    refuse(scope, op, "equal-dtypes",
           fmt::format("{} must have the dtype {} of operand 0", describe_value(scope, role, index, "", value),
                       dtype_name(first)));
  };
  check("operand", 1, op.operands[1]);
  if (op.results[0]->type->dtype() != DType::kI1) check("result", 0, op.results[0]);
}

void check_types(const VerifyScope& scope, const Op& op, std::string_view what, const std::vector<TypeRef>& have,
                 const std::vector<TypeRef>& want) {
  if (have.size() != want.size()) {
    refuse(scope, op, "region-types", fmt::format("{}: {} values, {} needed", what, have.size(), want.size()));
  }
  for (std::size_t i = 0; i < have.size(); ++i) {
    if (have[i] == want[i]) continue;
    refuse(scope, op, "region-types",
           fmt::format("{}: value {} has type {}, {} needed", what, i, to_text(have[i]), to_text(want[i])));
  }
}

std::vector<TypeRef> types_of(const std::vector<Value*>& values, std::size_t from = 0) {
  std::vector<TypeRef> types;
  for (std::size_t i = from; i < values.size(); ++i) types.push_back(values[i] == nullptr ? nullptr : values[i]->type);
  return types;
}

// The block of a region whose structure the walk checks later; null when it is not there.
const Block* block_of(const Op& op, std::size_t region) {
  return op.regions[region].blocks.size() == 1 && !op.regions[region].blocks[0]->ops.empty()
             ? op.regions[region].blocks[0].get()
             : nullptr;
}

void check_if(const VerifyScope& scope, const Op& op) {
  for (std::size_t r = 0; r < 2; ++r) {
    const Block* block = block_of(op, r);
    if (block == nullptr) continue;
    check_types(scope, op, fmt::format("arguments of region {}", r), types_of(block->arguments), {});
    check_types(scope, op, fmt::format("yield of region {}", r), types_of(block->terminator().operands),
                types_of(op.results));
  }
}

void check_while(const VerifyScope& scope, const Op& op) {
  const Block* before = block_of(op, 0);
  const Block* after = block_of(op, 1);
  if (before == nullptr || after == nullptr) return;
  check_types(scope, op, "arguments of the condition region", types_of(before->arguments), types_of(op.operands));
  check_types(scope, op, "values of `condition`", types_of(before->terminator().operands, 1), types_of(op.results));
  check_types(scope, op, "arguments of the body", types_of(after->arguments), types_of(op.results));
  check_types(scope, op, "yield of the body", types_of(after->terminator().operands), types_of(op.operands));
}

void check_condition(const VerifyScope& scope, const Op& op) {
  const TypeRef type = op.operands[0]->type;
  if (type->is_tensor() && type->dtype() == DType::kI1 && type->shape().rank() == 0) return;
  refuse(scope, op, "operand-type",
         describe_value(scope, "operand", 0, "condition", op.operands[0]) + " must be a tensor<i1>");
}

void check_isolated_group(const VerifyScope& scope, const Op& op) {
  const Block* block = block_of(op, 0);
  if (block == nullptr) return;
  check_types(scope, op, "arguments of the region", types_of(block->arguments), types_of(op.operands));
  check_types(scope, op, "yield of the region", types_of(block->terminator().operands), types_of(op.results));
}

void check_constant(const VerifyScope& scope, const Op& op) {
  try {
    if (!constant_splat(op)) constant_value(op);
  } catch (const Error& error) {
    refuse(scope, op, "constant", error.problem());
  }
}

void check_handle(const VerifyScope& scope, const Op& op) {
  const TypeRef handle = op.operands[0]->type;
  if (!handle->is_handle()) {
    refuse(scope, op, "handle", describe_value(scope, "operand", 0, "handle", op.operands[0]) + " is not a handle");
  }
  const Value* data = op.code == OpCode::kReadHandle ? op.results[0] : op.operands[1];
  if (data->type != handle->handle_inner()) {
    refuse(scope, op, "handle",
           fmt::format("{} must have the handle's type {}",
                       describe_value(scope, op.code == OpCode::kReadHandle ? "result" : "operand",
                                      op.code == OpCode::kReadHandle ? 0 : 1, "", data),
                       to_text(handle->handle_inner())));
  }
  const Value* token = op.code == OpCode::kReadHandle ? op.results[1] : op.results[0];
  if (!token->type->is_token()) refuse(scope, op, "token", "the last result must be a token");
}

void check_permutation_rank(const VerifyScope& scope, const Op& op) {
  const auto rank = static_cast<std::int64_t>(op.operand_type(0)->shape().rank());
  const std::int64_t length = op.operand_type(1)->shape()[0];
  if (length != kDynamic && length != rank) {
    refuse(scope, op, "permutation",
           fmt::format("{} must have {} elements, one per dimension of operand 0",
                       describe_value(scope, "operand", 1, "permutation", op.operands[1]), rank));
  }
  if (op.results[0]->type->shape().rank() != static_cast<std::size_t>(rank)) {
    refuse(scope, op, "permutation", describe_value(scope, "result", 0, "output", op.results[0]) + " has another rank");
  }
}

}  // namespace

void verify_op_rules(const VerifyScope& scope, const Op& op) {
  switch (op.code) {
    case OpCode::kConstant:
      return check_constant(scope, op);
    case OpCode::kIf:
      return check_if(scope, op);
    case OpCode::kWhile:
      return check_while(scope, op);
    case OpCode::kCondition:
      return check_condition(scope, op);
    case OpCode::kIsolatedGroup:
      return check_isolated_group(scope, op);
    case OpCode::kReadHandle:
    case OpCode::kWriteHandle:
      return check_handle(scope, op);
    case OpCode::kTranspose:
      return check_permutation_rank(scope, op);
    default:
      if (is_binary_elementwise(op.info())) check_equal_dtypes(scope, op);
  }
}

}  // namespace coreai::ir
