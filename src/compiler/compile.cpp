#include "coreai/compiler/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/lower.h"
#include "compiler/passes.h"
#include "compiler/schedule.h"
#include "coreai/base/error.h"

namespace coreai::compiler {
namespace {

constexpr std::array<std::string_view, 9> kPassNames = {"resolve",     "fold",  "linear", "recognize", "fusion",
                                                        "elementwise", "views", "rows",   "memory"};

Plan compile_once(const ir::Module& module, const ir::Graph& function, const OpEvaluator& evaluator,
                  const CompileOptions& options, const std::set<std::string>& inlined) {
  const auto on = [&](std::string_view name) { return !options.disabled_passes.contains(name); };
  Graph graph = lower(module, function, {on("resolve"), inlined});
  if (on("fold")) fold_constants(graph, evaluator);
  if (on("linear")) form_linear_layers(graph);
  if (on("recognize")) recognize_composites(graph);
  graph.sweep();
  form_states(graph);
  if (on("fusion")) fuse(graph);
  if (on("elementwise")) form_elementwise(graph);
  Plan plan = schedule(std::move(graph), {on("views")});
  if (on("rows")) limit_rows(plan);
  find_lifetimes(plan, on("memory"));
  return plan;
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
  std::set<std::string> inlined;
  while (true) {
    try {
      return {compile_once(module, function, evaluator, options, inlined), {}};
    } catch (const NotPlannable& e) {
      // A composite that no kernel takes runs by its body.
      if (e.composite_symbol.empty() || !inlined.insert(e.composite_symbol).second) return {std::nullopt, e.reason};
    } catch (const Error& e) {
      return {std::nullopt, e.what()};
    }
  }
}

}  // namespace coreai::compiler
