#include "coreai/compiler/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "compiler/composites.h"
#include "compiler/lower.h"
#include "compiler/passes.h"
#include "compiler/schedule.h"
#include "coreai/base/error.h"

namespace coreai::compiler {
namespace {

constexpr std::array<std::string_view, 9> kPassNames = {"resolve",     "fold",  "linear", "recognize", "fusion",
                                                        "elementwise", "views", "rows",   "memory"};

// Marks what the compiler computed itself and what nobody reads, before later passes join nodes.
void trace_folded(Graph& graph) {
  Graph swept = graph;
  swept.sweep();
  for (Origin& origin : graph.origins) {
    if (origin.node == kNoNode) continue;
    const Node& node = graph.node(origin.node);
    const bool folded = node.kind == NodeKind::kDead && !node.outputs.empty() && graph.value(node.outputs[0]).constant;
    if (folded) {
      origin.traced.fate = OpFate::kFolded;
    } else if (swept.node(origin.node).kind == NodeKind::kDead) {
      origin.traced.fate = OpFate::kUnused;
    }
  }
}

// The rest is inside a step, but for those that have a GenericStep of their own.
std::vector<TracedOp> finished_trace(const std::vector<Origin>& origins, const Plan& plan) {
  std::unordered_map<const ir::Op*, int> generic;
  for (const Step& step : plan.steps) {
    if (const auto* body = std::get_if<GenericStep>(&step.body)) ++generic[body->op];
  }
  std::vector<TracedOp> trace;
  trace.reserve(origins.size());
  for (const Origin& origin : origins) {
    trace.push_back(origin.traced);
    if (origin.traced.fate != OpFate::kStep) continue;
    const auto found = generic.find(origin.traced.op);
    if (found != generic.end() && found->second-- > 0) trace.back().fate = OpFate::kGeneric;
  }
  return trace;
}

// What an attempt does otherwise than the first, which a NotPlannable asked for.
struct Attempt {
  std::set<std::string> inlined;
  bool value_inputs = false, plain_states = false;

  // Whether there is something new to try.
  bool learn(const NotPlannable& e) {
    if (e.remedy == NotPlannable::Remedy::kValueInputs && !value_inputs) return value_inputs = true;
    if (e.remedy == NotPlannable::Remedy::kPlainStates && !plain_states) return plain_states = true;
    return !e.composite_symbol.empty() && inlined.insert(e.composite_symbol).second;
  }
};

CompileResult compile_once(const ir::Module& module, const ir::Graph& function, const OpEvaluator& evaluator,
                           const CompileOptions& options, const Attempt& attempt) {
  const auto on = [&](std::string_view name) { return !options.disabled_passes.contains(name); };
  Graph graph = lower(module, function, {on("resolve"), attempt.inlined, options.trace, attempt.value_inputs});
  graph.plain_states = attempt.plain_states;
  if (on("fold")) fold_constants(graph, evaluator);
  if (options.trace) trace_folded(graph);
  if (on("fusion")) fold_channel_scales(graph);
  if (on("linear")) form_linear_layers(graph);
  if (on("recognize")) recognize_composites(graph, attempt.inlined);
  graph.sweep();
  form_states(graph);
  if (on("fusion")) fuse(graph);
  if (on("elementwise")) form_elementwise(graph);
  const std::vector<Origin> origins = std::move(graph.origins);
  Plan plan = schedule(std::move(graph), {on("views")});
  if (on("rows")) limit_rows(plan);
  find_lifetimes(plan, on("memory"));
  std::vector<TracedOp> trace;
  if (options.trace) trace = finished_trace(origins, plan);
  return {std::move(plan), std::move(trace), {}};
}

}  // namespace

std::span<const std::string_view> pass_names() {
  return kPassNames;
}

CompileResult compile(const ir::Module& module, const ir::Graph& function, const OpEvaluator& evaluator,
                      const CompileOptions& options) {
  for (const std::string& name : options.disabled_passes) {
    if (std::find(kPassNames.begin(), kPassNames.end(), name) == kPassNames.end()) {
      throw InvalidArgumentError(fmt::format("there is no pass '{}'", name), "disabled_passes",
                                 fmt::format("The passes are: {}", fmt::join(kPassNames, ", ")));
    }
  }
  Attempt attempt;
  while (true) {
    try {
      return compile_once(module, function, evaluator, options, attempt);
    } catch (const NotPlannable& e) {
      if (!attempt.learn(e)) return {std::nullopt, {}, e.reason};
    } catch (const Error& e) {
      return {std::nullopt, {}, e.what()};
    }
  }
}

}  // namespace coreai::compiler
