#include "compiler/matchers.h"

#include "compiler/passes.h"
#include "compiler/shapes.h"

namespace coreai::compiler {

using ir::OpCode;

bool is_working_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::optional<std::array<ValueId, 2>> match_binary(const Graph& g, ValueId id, OpCode plain, OpCode broadcasting) {
  const Node* p = g.producer(id);
  if (!p || p->kind != NodeKind::kOp || (p->code != plain && p->code != broadcasting)) return std::nullopt;
  return std::array<ValueId, 2>{p->inputs[0], p->inputs[1]};
}
std::optional<std::array<ValueId, 2>> match_product(const Graph& g, ValueId id) {
  return match_binary(g, id, OpCode::kMul, OpCode::kBroadcastingMul);
}
std::optional<std::array<ValueId, 2>> match_sum(const Graph& g, ValueId id) {
  return match_binary(g, id, OpCode::kAdd, OpCode::kBroadcastingAdd);
}
std::optional<std::array<ValueId, 2>> match_difference(const Graph& g, ValueId id) {
  return match_binary(g, id, OpCode::kSub, OpCode::kBroadcastingSub);
}

std::optional<float> scalar_constant(const Graph& g, ValueId id) {
  const auto elements = float_elements(g, id);
  if (!elements || elements->size() != 1) return std::nullopt;
  return (*elements)[0];
}

std::optional<ValueId> operand_of(const Graph& g, ValueId id, OpCode code) {
  if (!g.is_op(id, code)) return std::nullopt;
  return g.producer(id)->inputs[0];
}

bool names_last_axis(const Graph& g, const Node& node, std::size_t operand) {
  const auto axes = constant_elements(g, node.inputs[operand]);
  const auto rank = static_cast<std::int64_t>(g.value(node.inputs[0]).shape.size());
  return axes && axes->size() == 1 && ((*axes)[0] == -1 || (*axes)[0] == rank - 1);
}

bool only_moves_unit_axes(const Graph& g, ValueId from, ValueId to) {
  const auto wide = [&](ValueId id) {
    std::vector<Expr> out;
    for (Expr e : g.value(id).shape) {
      if (!g.exprs.is_constant(e, 1)) out.push_back(e);
    }
    return out;
  };
  return wide(from) == wide(to);
}

}  // namespace coreai::compiler
