#include "coreai/ir/verifier.h"

#include <fmt/format.h>

#include "coreai/base/error.h"
#include "coreai/ir/printer.h"
#include "ir/number_text.h"
#include "ir/value_names.h"
#include "ir/verify.h"

namespace coreai::ir {
namespace {

constexpr int kMaxRegionDepth = 200;

std::string graph_name(const Op& graph) {
  const AttrRef name = graph.attribute("name");
  return name != nullptr && name->is(AttrCode::kSerializationString) ? name->as_string() : "?";
}

bool is_terminator(OpCode code) {
  return code == OpCode::kOutput || code == OpCode::kYield || code == OpCode::kCondition ||
         code == OpCode::kUdmlReturn || code == OpCode::kSerializationTerminator;
}

// The terminators that region `index` of `op` may end in.
bool terminator_fits(const Op& op, std::size_t index, OpCode terminator) {
  switch (op.code) {
    case OpCode::kGraph:
      return terminator == OpCode::kOutput;
    case OpCode::kUdmlFunc:
      return terminator == OpCode::kUdmlReturn;
    case OpCode::kWhile:
      return terminator == (index == 0 ? OpCode::kCondition : OpCode::kYield);
    case OpCode::kSerializationOpaque:
      return true;
    default:
      // Bodies of decompositions may end in `output`: they are never run.
      return terminator == OpCode::kYield || (op.info().decomposable && terminator == OpCode::kOutput);
  }
}

// Walks blocks and keeps the values that an operation may use.
class Walk {
 public:
  Walk(const Module& module, const SymbolTable& symbols) : symbols_(symbols) { scope_.module = &module; }

  void module_body() {
    for (const auto& op : scope_.module->body().ops) top_level(*op);
  }

 private:
  void top_level(const Op& op) {
    switch (op.code) {
      case OpCode::kGraph:
      case OpCode::kUdmlFunc:
        scope_.graph = &op;
        one_op(op, false);
        scope_.graph = nullptr;
        return;
      case OpCode::kNamespace:
        for (const auto& inner : op.regions.at(0).block().ops) top_level(*inner);
        return;
      case OpCode::kExecutionTargetSpec:
        return one_op(op, false);
      default:
        refuse(scope_, op, "module-op", "only graphs, functions, namespaces and a target_spec may stand in a module");
    }
  }

  void one_op(const Op& op, bool in_decomposition) {
    verify_shape_of_op(scope_, op);
    verify_attributes(scope_, op);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (!visible_.contains(op.operands[i])) {
        refuse(scope_, op, "dominance",
               fmt::format("operand {} is not defined before it, or lies outside of an isolated region", i));
      }
    }
    // The content of a decomposition is never run and old writers left anything there: structure alone is checked.
    if (!in_decomposition) {
      verify_operand_types(scope_, op);
      verify_op_rules(scope_, op);
      if (op.code == OpCode::kGraph || op.code == OpCode::kUdmlFunc) symbols_.verify_graph(scope_, op);
      if (op.code == OpCode::kInvoke || op.code == OpCode::kUdmlCall) symbols_.verify_call(scope_, op);
    }
    for (std::size_t i = 0; i < op.regions.size(); ++i) region(op, i, in_decomposition || op.info().decomposable);
    for (std::size_t i = 0; i < op.results.size(); ++i) {
      const Value* value = op.results[i];
      if (value->op != &op || value->index != i) {
        refuse(scope_, op, "result-link", fmt::format("result {} does not point back to its operation", i));
      }
      define(op, value);
    }
  }

  void region(const Op& op, std::size_t index, bool in_decomposition) {
    const Region& region = op.regions[index];
    if (op.code == OpCode::kUdmlFunc && region.blocks.empty()) return;  // declared elsewhere
    if (region.blocks.size() != 1) {
      refuse(scope_, op, "region-block",
             fmt::format("region {} has {} blocks, exactly one is legal", index, region.blocks.size()));
    }
    if (++depth_ > kMaxRegionDepth) {
      refuse(scope_, op, "region-depth", fmt::format("regions nest deeper than {} levels", kMaxRegionDepth));
    }
    const bool isolated = op.info().regions_isolated();
    std::unordered_set<const Value*> outer;
    if (isolated) outer.swap(visible_);
    std::vector<const Value*> local;
    local.swap(local_);
    block(op, index, *region.blocks[0], in_decomposition);
    for (const Value* value : local_) visible_.erase(value);
    local_.swap(local);
    if (isolated) visible_.swap(outer);
    --depth_;
  }

  void block(const Op& op, std::size_t index, const Block& block, bool in_decomposition) {
    for (const Value* argument : block.arguments) define(op, argument);
    if (block.ops.empty()) refuse(scope_, op, "terminator", fmt::format("region {} is empty", index));
    for (const auto& inner : block.ops) {
      const bool last = inner == block.ops.back();
      if (last != is_terminator(inner->code)) {
        refuse(scope_, *inner, "terminator",
               last ? "the last operation of a block must be a terminator" : "a terminator must be the last operation");
      }
      if (last && !terminator_fits(op, index, inner->code)) {
        refuse(scope_, *inner, "terminator", fmt::format("it may not end region {} of {}", index, op.info().disk_name));
      }
      one_op(*inner, in_decomposition);
    }
    if (!in_decomposition) verify_token_order(scope_, block);
  }

  void define(const Op& op, const Value* value) {
    if (value == nullptr || value->type == nullptr) refuse(scope_, op, "value", "a value or its type is null");
    if (!visible_.insert(value).second) refuse(scope_, op, "value", "a value is defined twice");
    local_.push_back(value);
  }

  VerifyScope scope_;
  const SymbolTable& symbols_;
  std::unordered_set<const Value*> visible_;
  std::vector<const Value*> local_;  // defined in the current region, to be forgotten at its end
  int depth_ = 0;
};

}  // namespace

std::string describe_value(const VerifyScope& scope, std::string_view role, std::size_t index, std::string_view name,
                           const Value* value) {
  const std::string label = name.empty() ? std::string() : fmt::format(" `{}`", name);
  if (value == nullptr || value->type == nullptr) return fmt::format("{} {}{} (null)", role, index, label);
  const ValueNames names(scope.graph != nullptr ? *scope.graph : scope.module->root(), true);
  return fmt::format("{} {}{} ({}: {})", role, index, label, names(value), to_text(value->type));
}

void refuse(const VerifyScope& scope, const Op& op, std::string_view rule, const std::string& what) {
  const OpInfo& info = op.info();
  std::string where = scope.graph != nullptr ? fmt::format("graph @{}", graph_name(*scope.graph)) : "module";
  const std::string name =
      info.text_name.empty() ? fmt::format("aicode.{}", info.disk_name) : std::string(info.text_name);
  std::string results;
  if (scope.graph != nullptr && !op.results.empty()) {
    try {
      results = ValueNames(*scope.graph, true).results(op) + " = ";
    } catch (const std::exception&) {  // values that cannot be numbered: the op's name has to do
    }
  }
  if (&op != scope.graph) where += fmt::format(", `{}{}`", results, name);
  throw VerificationError(fmt::format("[{}] {}", rule, what), where);
}

void verify(const Module& module) {
  const VerifyScope scope{&module, nullptr};
  const Op& root = module.root();
  if (root.code != OpCode::kSerializationAsset)
    refuse(scope, root, "module-root", "the root must be serialization.asset");
  if (root.regions.size() != 1 || root.regions[0].blocks.size() != 1 || !root.regions[0].blocks[0]->arguments.empty()) {
    refuse(scope, root, "module-root", "the root must hold one region of one block without arguments");
  }
  verify_attributes(scope, root);
  const SymbolTable symbols(module);
  Walk(module, symbols).module_body();
  symbols.verify_acyclic(module);
}

}  // namespace coreai::ir
