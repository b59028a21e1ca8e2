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

namespace {

using ir::OpCode;

// Dequantisations, transposes of matrices and widening casts stay: form_linear_layers reads the weight behind them as
// the file stores it.
bool stays_a_weight(const Graph& g, const Node& node) {
  switch (node.code) {
    case OpCode::kBlockwiseShiftScale:
    case OpCode::kDequantize:
    case OpCode::kLutToDense:
      return true;
    case OpCode::kTranspose:
      return is_float(g.value(node.outputs[0]).dtype) && g.value(node.outputs[0]).shape.size() == 2;
    case OpCode::kCast: {
      const DType from = g.value(node.inputs[0]).dtype;
      return (from == DType::kF16 || from == DType::kBF16) && g.value(node.outputs[0]).dtype == DType::kF32;
    }
    default:
      return false;
  }
}

// A constant operand, computed when it is a widening cast that was left in place.
std::optional<NDArray> operand_array(const Graph& g, const OpEvaluator& evaluator, ValueId id) {
  auto array = constant_array(g, id);
  if (array) return array;
  const Node* p = g.producer(id);
  if (!p || p->kind != NodeKind::kOp || p->code != OpCode::kCast || !p->source) return std::nullopt;
  array = constant_array(g, p->inputs[0]);
  if (!array || array->element_count() > kMaxFoldedElements) return std::nullopt;
  return evaluator.evaluate(*p->source, std::span(&*array, 1)).at(0);
}

}  // namespace

void fold_constants(Graph& graph, const OpEvaluator& evaluator) {
  for (const NodeId id : graph.order()) {
    Node& node = graph.node(id);
    // Movements of a composite stand for no operation of the file that could be evaluated.
    if (node.kind != NodeKind::kOp || !node.source || node.outputs.size() != 1 || !evaluator.supports(node.code))
      continue;
    const Shape shape = graph.declared_shape(node.outputs[0]);
    if (!shape.is_static() || shape.element_count() > kMaxFoldedElements || stays_a_weight(graph, node)) continue;
    std::vector<NDArray> operands;
    for (ValueId v : node.inputs) {
      auto array = operand_array(graph, evaluator, v);
      if (!array || array->element_count() > kMaxFoldedElements) break;
      operands.push_back(std::move(*array));
    }
    if (operands.size() != node.inputs.size()) continue;
    std::vector<NDArray> results;
    try {
      results = evaluator.evaluate(*node.source, operands);
    } catch (const Error&) {
      continue;  // the call says it, if it comes to this operation at all
    }
    COREAI_INVARIANT(results.size() == 1);
    graph.value(node.outputs[0]).constant = std::move(results[0]);
    graph.value(node.outputs[0]).producer = kNoNode;
    node.kind = NodeKind::kDead;
  }
}

}  // namespace coreai::compiler
