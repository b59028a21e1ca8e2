// Convolutions with one tap, [n, c, h, w] with channels before positions, as linear layers on [n, w, h, c]. The
// transposes that this needs are views; they move behind element-wise operations and vanish in pairs.
#include <algorithm>
#include <array>
#include <map>

#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// Its own inverse.
constexpr std::array<std::int64_t, 4> kTurn = {0, 3, 2, 1};

class Pointwise {
 public:
  explicit Pointwise(Graph& g) : g_(g) {}

  void run() {
    bool any = false;
    for (const NodeId id : g_.order()) any = form(id) || any;
    if (!any) return;
    for (const NodeId id : g_.order()) {
      cancel(id);
      skip_unit_moves(id);
      move_behind(id);
    }
    g_.sweep();
  }

 private:
  std::vector<Expr> turned(const std::vector<Expr>& shape) const { return {shape[0], shape[3], shape[2], shape[1]}; }

  // Transposes of this pass have no operation in the file: the scheduler takes them as views.
  ValueId turn_constant() {
    if (turn_ == kNoValue) {
      turn_ = g_.new_value(DType::kUI32, {g_.exprs.constant(4)});
      std::vector<Expr> elements;
      elements.reserve(kTurn.size());
      for (const std::int64_t axis : kTurn) elements.push_back(g_.exprs.constant(axis));
      g_.value(turn_).host = std::move(elements);
    }
    return turn_;
  }

  Node turn_node(ValueId in, ValueId out, double position) {
    Node node;
    node.code = OpCode::kTranspose;
    node.inputs = {in, turn_constant()};
    node.outputs = {out};
    node.position = position;
    return node;
  }

  // What a value is the turned form of, by a transpose of the file or of this pass.
  std::optional<ValueId> turned_input(ValueId v) const {
    const Node* p = g_.producer(v);
    if (!p || p->kind != NodeKind::kOp || p->code != OpCode::kTranspose) return std::nullopt;
    const auto perm = constant_elements(g_, p->inputs[1]);
    return perm && std::ranges::equal(*perm, kTurn) ? std::optional(p->inputs[0]) : std::nullopt;
  }

  ValueId turned_value(ValueId v, double position) {
    if (const auto inner = turned_input(v)) return *inner;
    const auto known = turned_.find(v);
    if (known != turned_.end()) return known->second;
    const ValueId out = g_.new_value(g_.value(v).dtype, turned(g_.value(v).shape));
    g_.append(turn_node(v, out, position));
    turned_[v] = out;
    return out;
  }

  // Whether operand i is a constant of ones.
  bool all_ones(const Node& node, std::size_t i) const {
    const auto elements = constant_elements(g_, node.inputs[i]);
    return elements && std::ranges::all_of(*elements, [](std::int64_t e) { return e == 1; });
  }

  bool form(NodeId id) {
    const Node node = g_.node(id);
    if (node.kind != NodeKind::kOp || node.code != OpCode::kConv2d || node.inputs.size() != 5) return false;
    const auto& x = g_.value(node.inputs[0]).shape;
    const auto& filter = g_.value(node.inputs[1]).shape;
    if (x.size() != 4 || filter.size() != 4 || !all_ones(node, 2) || !all_ones(node, 3) || !all_ones(node, 4))
      return false;
    auto w = weight_of(g_, node.inputs[1]);
    if (!w || w->transposed || !g_.exprs.is_constant(x[1], w->columns) || g_.value(node.inputs[0]).constant)
      return false;
    // On images the kernel of convolutions reads channels where they lie.
    if (!g_.exprs.is_constant(x[2], 1) && !w->table && !w->scale) return false;
    const ValueId in = turned_value(node.inputs[0], node.position - 0.25), out = node.outputs[0];
    const ValueId y = g_.new_value(g_.value(out).dtype, turned(g_.value(out).shape));
    LinearParams params;
    params.weights.push_back(std::move(*w));
    params.biases.emplace_back();
    Node& linear = g_.node(id);
    linear.kind = NodeKind::kLinear;
    linear.inputs = {in};
    linear.outputs = {y};
    linear.params = std::move(params);
    g_.value(y).producer = id;
    g_.append(turn_node(y, out, node.position + 0.25));
    return true;
  }

  // turn(turn(x)) is x.
  void cancel(NodeId id) {
    const Node& node = g_.node(id);
    if (node.kind != NodeKind::kOp || node.code != OpCode::kTranspose) return;
    const auto inner = turned_input(node.outputs[0]);
    const auto twice = inner ? turned_input(*inner) : std::nullopt;
    if (twice) g_.replace_uses(node.outputs[0], *twice);
  }

  // A reshape of turn(y) that keeps the order of elements is one of y.
  void skip_unit_moves(NodeId id) {
    Node& node = g_.node(id);
    if (node.kind != NodeKind::kOp || node.code != OpCode::kReshape) return;
    const auto inner = turned_input(node.inputs[0]);
    if (inner && only_moves_unit_axes(g_, *inner, node.inputs[0])) node.inputs[0] = *inner;
  }

  // The operand of an element-wise operation before it is turned: something turned, a scalar, or values of channels.
  std::optional<ValueId> before_turn(ValueId v, bool& any) {
    if (const auto inner = turned_input(v)) {
      any = true;
      return inner;
    }
    const auto& constant = g_.value(v).constant;
    if (!constant) return std::nullopt;
    if (constant->element_count() == 1) return v;
    const Shape& s = constant->shape();
    if (s.rank() != 4 || s[0] != 1 || s[2] != 1 || s[3] != 1) return std::nullopt;
    const ValueId out = g_.new_value(constant->dtype(), turned(g_.value(v).shape));
    g_.value(out).constant = constant->reshaped(Shape{1, 1, 1, s[1]});
    return out;
  }

  static bool is_elementwise(const Node& node) {
    switch (node.code) {
      case OpCode::kAdd:
      case OpCode::kBroadcastingAdd:
      case OpCode::kMul:
      case OpCode::kBroadcastingMul:
      case OpCode::kSilu:
      case OpCode::kGelu:
      case OpCode::kRelu:
      case OpCode::kSigmoid:
        return true;
      default:
        return false;
    }
  }

  // op(turn(a), turn(b)) is turn(op(a, b)).
  void move_behind(NodeId id) {
    const Node node = g_.node(id);
    if (node.kind != NodeKind::kOp || !is_elementwise(node) || node.outputs.size() != 1) return;
    const ValueId out = node.outputs[0];
    if (g_.value(out).shape.size() != 4) return;
    bool any = false;
    std::vector<ValueId> inputs;
    for (const ValueId v : node.inputs) {
      const auto inner = before_turn(v, any);
      if (!inner) return;
      inputs.push_back(*inner);
    }
    if (!any) return;
    const ValueId y = g_.new_value(g_.value(out).dtype, turned(g_.value(out).shape));
    g_.node(id).inputs = std::move(inputs);
    g_.node(id).outputs = {y};
    g_.value(y).producer = id;
    g_.append(turn_node(y, out, node.position + 0.25));
  }

  Graph& g_;
  ValueId turn_ = kNoValue;
  std::map<ValueId, ValueId> turned_;
};

}  // namespace

void form_pointwise_layers(Graph& graph) {
  Pointwise(graph).run();
}

}  // namespace coreai::compiler
