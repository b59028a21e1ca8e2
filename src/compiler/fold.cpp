#include <fmt/format.h>

#include "compiler/passes.h"
#include "coreai/base/error.h"

namespace coreai::compiler {
namespace {

// Larger results stay operations: weights must remain mapped, and are handled by form_linear_layers.
constexpr std::int64_t kMaxFoldedElements = 65536;

}  // namespace

std::optional<NDArray> constant_array(const Graph& graph, ValueId id) {
  const Value& v = graph.value(id);
  if (v.constant) return v.constant;
  if (!v.host) return std::nullopt;
  std::vector<double> elements;
  for (Expr e : *v.host) {
    const auto c = graph.exprs.as_constant(e);
    if (!c) return std::nullopt;
    elements.push_back(static_cast<double>(*c));
  }
  NDArray array(v.dtype, graph.declared_shape(id));
  write_from_f64(array, elements);
  return array;
}

void fold_constants(Graph& graph, const OpEvaluator& evaluator) {
  for (const NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (node.kind != NodeKind::kOp || node.outputs.size() != 1 || !evaluator.supports(node.code)) continue;
    const Shape shape = graph.declared_shape(node.outputs[0]);
    if (!shape.is_static() || shape.element_count() > kMaxFoldedElements) continue;
    std::vector<NDArray> operands;
    for (ValueId v : node.inputs) {
      auto array = constant_array(graph, v);
      if (!array || array->element_count() > kMaxFoldedElements) break;
      operands.push_back(std::move(*array));
    }
    if (operands.size() != node.inputs.size()) continue;
    std::vector<NDArray> results = evaluator.evaluate(*node.source, operands);
    COREAI_INVARIANT(results.size() == 1);
    graph.value(node.outputs[0]).constant = std::move(results[0]);
    graph.value(node.outputs[0]).producer = kNoNode;
    node.kind = NodeKind::kDead;
  }
}

}  // namespace coreai::compiler
