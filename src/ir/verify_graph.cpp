// Graphs, their ports and the calls between them.
#include <fmt/format.h>

#include <algorithm>

#include "coreai/base/error.h"
#include "coreai/ir/printer.h"
#include "ir/verify.h"

namespace coreai::ir {
namespace {

const Type* function_type(const Op& graph) {
  const AttrRef wrapped = graph.attribute("functionType");
  const TypeRef type =
      wrapped != nullptr && wrapped->is(AttrCode::kSerializationType) ? wrapped->field<TypeRef>(0) : nullptr;
  return type != nullptr && type->code() == TypeCode::kFunction ? type : nullptr;
}
const std::vector<TypeRef>& inputs_of(const Type& function) {
  return function.field<std::vector<TypeRef>>(1);
}
const std::vector<TypeRef>& results_of(const Type& function) {
  return function.field<std::vector<TypeRef>>(0);
}

// The symbol of a callee, through the binding of a parametric one; empty when it is something else.
std::string callee_symbol(const Op& call) {
  AttrRef callee = call.attribute("callee");
  for (int depth = 0; callee != nullptr && depth < 4; ++depth) {
    if (callee->is(AttrCode::kSymbolRef)) {
      return fmt::format("{}", fmt::join(callee->field<std::vector<std::string>>(0), "::"));
    }
    if (!callee->is(AttrCode::kParamBind) && !callee->is(AttrCode::kParamConstant)) break;
    callee = callee->field<AttrRef>(0);
  }
  return {};
}

// One entry per port, or none at all; each entry a list of named values.
void check_port_list(const VerifyScope& scope, const Op& graph, std::string_view name, std::size_t ports) {
  const auto entries = graph.attribute(name)->as_array();
  if (!entries.empty() && entries.size() != ports) {
    refuse(scope, graph, "port-attributes",
           fmt::format("`{}` has {} entries, {} are needed", name, entries.size(), ports));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i] == nullptr || !entries[i]->is(AttrCode::kSerializationArray)) {
      refuse(scope, graph, "port-attributes", fmt::format("entry {} of `{}` is not an array", i, name));
    }
    for (const AttrRef named : entries[i]->as_array()) {
      if (named == nullptr || !named->is(AttrCode::kSerializationOpaque) ||
          named->field<std::vector<AttrRef>>(1).size() != 1) {
        refuse(scope, graph, "port-attributes",
               fmt::format("entry {} of `{}` holds something else than a named value", i, name));
      }
    }
  }
}

void check_names(const VerifyScope& scope, const Op& graph, std::string_view kind, std::vector<std::string> names) {
  std::ranges::sort(names);
  const auto twice =
      std::ranges::adjacent_find(names, [](const auto& a, const auto& b) { return a == b && !a.empty(); });
  if (twice != names.end()) refuse(scope, graph, "port-names", fmt::format("two {} are named `{}`", kind, *twice));
}

void check_types(const VerifyScope& scope, const Op& op, std::string_view rule, std::string_view role,
                 const std::vector<Value*>& values, const std::vector<TypeRef>& want, std::string_view whose) {
  if (values.size() != want.size()) {
    refuse(scope, op, rule, fmt::format("{} {}s, {} has {}", values.size(), role, whose, want.size()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == nullptr) refuse(scope, op, "value", fmt::format("{} {} is null", role, i));
    if (values[i]->type == want[i]) continue;
    refuse(scope, op, rule,
           fmt::format("{} must have the type {} of {}", describe_value(scope, role, i, "", values[i]),
                       to_text(want[i]), whose));
  }
}

// Calls within a graph, nested regions included; decompositions call nothing.
void collect_calls(const Op& op, std::vector<const Op*>& calls) {
  for (const Region& region : op.regions) {
    for (const auto& block : region.blocks) {
      for (const auto& inner : block->ops) {
        if (inner->code == OpCode::kInvoke || inner->code == OpCode::kUdmlCall) calls.push_back(inner.get());
        if (!inner->info().decomposable) collect_calls(*inner, calls);
      }
    }
  }
}

}  // namespace

SymbolTable::SymbolTable(const Module& module) {
  collect({&module, nullptr}, module.body(), {});
}

void SymbolTable::collect(const VerifyScope& scope, const Block& block, const std::string& prefix) {
  for (const auto& op : block.ops) {
    const bool is_namespace = op->code == OpCode::kNamespace;
    if (!is_namespace && op->code != OpCode::kGraph && op->code != OpCode::kUdmlFunc) continue;
    verify_shape_of_op(scope, *op);
    verify_attributes(scope, *op);
    const std::string& name = op->attribute("name")->as_string();
    if (name.empty()) refuse(scope, *op, "symbol", "a graph, function or namespace needs a name");
    const std::string symbol = prefix + name;
    if (!symbols_.emplace(symbol, op.get()).second) {
      refuse(scope, *op, "symbol", fmt::format("two graphs, functions or namespaces are named @{}", symbol));
    }
    if (!is_namespace) continue;
    if (op->regions[0].blocks.size() != 1 || prefix.size() > 4096) {
      refuse(scope, *op, "region-block", "a namespace must hold one block, and nest within 4096 characters");
    }
    collect(scope, *op->regions[0].blocks[0], symbol + "::");
  }
}

const Op* SymbolTable::find(const std::string& symbol) const {
  const auto found = symbols_.find(symbol);
  return found == symbols_.end() ? nullptr : found->second;
}

void SymbolTable::verify_graph(const VerifyScope& scope, const Op& graph) const {
  const Type* function = function_type(graph);
  if (function == nullptr) refuse(scope, graph, "graph-type", "`functionType` is not a function type");
  check_port_list(scope, graph, "argAttrs", inputs_of(*function).size());
  check_port_list(scope, graph, "resAttrs", results_of(*function).size());
  if (graph.regions[0].blocks.size() != 1) return;  // the walk says so, or it is declared elsewhere
  const Block& body = *graph.regions[0].blocks[0];
  check_types(scope, graph, "graph-type", "block argument", body.arguments, inputs_of(*function), "the function type");
  if (const Op* last = body.ops.empty() ? nullptr : body.ops.back().get();
      last != nullptr && (last->code == OpCode::kOutput || last->code == OpCode::kUdmlReturn)) {
    const Op& end = *last;  // the walk refuses other endings
    check_types(scope, end, "graph-type", "operand", end.operands, results_of(*function), "the function type");
  }
  if (graph.code != OpCode::kGraph) return;
  const Graph view(const_cast<Op*>(&graph));
  if (view.is_private() && view.is_externalized()) {
    refuse(scope, graph, "graph-flags", "a graph cannot be private and externalized");
  }
  view.composite();  // throws when the declaration is not one
  if (view.is_private() || graph.attribute("compositeDecl") != nullptr) return;
  check_names(scope, graph, "inputs", view.input_names());
  check_names(scope, graph, "outputs", view.output_names());
  const auto is_handle = [](TypeRef type) { return type->is_handle(); };
  const auto is_token = [](TypeRef type) { return type->is_token(); };
  const auto handles = std::ranges::count_if(inputs_of(*function), is_handle);
  const auto tokens = std::ranges::count_if(results_of(*function), is_token);
  if (handles != tokens) {
    refuse(scope, graph, "state-tokens",
           fmt::format("{} states, but {} tokens are returned: one per state is needed", handles, tokens));
  }
}

void SymbolTable::verify_call(const VerifyScope& scope, const Op& call) const {
  const std::string symbol = callee_symbol(call);
  const Op* callee = symbol.empty() ? nullptr : find(symbol);
  const OpCode wanted = call.code == OpCode::kInvoke ? OpCode::kGraph : OpCode::kUdmlFunc;
  if (callee == nullptr || callee->code != wanted) {
    refuse(scope, call, "callee", fmt::format("there is no {} @{}", op_info(wanted).text_name, symbol));
  }
  const Type* function = function_type(*callee);
  if (function == nullptr) refuse(scope, call, "callee", fmt::format("@{} has no function type", symbol));
  if (!callee->attribute("paramDecls")->as_array().empty()) return;  // its types hold parameters
  const std::string whose = fmt::format("@{}", symbol);
  check_types(scope, call, "callee-type", "operand", call.operands, inputs_of(*function), whose);
  check_types(scope, call, "callee-type", "result", call.results, results_of(*function), whose);
}

void SymbolTable::verify_acyclic(const Module& module) const {
  struct Frame {
    const Op* graph;
    std::vector<const Op*> calls;
    std::size_t next = 0;
  };
  std::unordered_map<const Op*, bool> finished;  // absent: not seen; false: on the stack
  const auto open = [&](const Op* graph) {
    Frame frame{graph, {}, 0};
    collect_calls(*graph, frame.calls);
    finished[graph] = false;
    return frame;
  };
  for (const auto& entry : symbols_) {
    if (entry.second->code == OpCode::kNamespace || finished.contains(entry.second)) continue;
    std::vector<Frame> stack;
    stack.push_back(open(entry.second));
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next == top.calls.size()) {
        finished[top.graph] = true;
        stack.pop_back();
        continue;
      }
      const Op& call = *top.calls[top.next++];
      const Op* callee = find(callee_symbol(call));
      const auto seen = finished.find(callee);
      if (seen != finished.end() && !seen->second) {
        refuse({&module, top.graph}, call, "recursion", "a graph calls itself, directly or through others");
      }
      if (seen == finished.end()) stack.push_back(open(callee));
    }
  }
}

}  // namespace coreai::ir
