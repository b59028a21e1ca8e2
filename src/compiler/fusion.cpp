#include <algorithm>
#include <map>

#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

class Fusion {
 public:
  explicit Fusion(Graph& g) : g_(g) {}

  void run() {
    drop_float_casts();
    each([&](Node& n) { scale_embedding(n); });
    each([&](Node& n) { add_bias(n); });
    each([&](Node& n) { join_gated_pair(n); });
    each([&](Node& n) { add_residual(n); });
    join_linear_layers();
  }

 private:
  template <typename F>
  void each(F f) {
    uses_ = g_.use_counts();
    for (const NodeId id : g_.order()) {
      if (g_.node(id).kind != NodeKind::kDead) f(g_.node(id));
    }
    g_.sweep();
  }

  // Activations stay f32 between steps: rounding to a narrower type on the way is left out.
  void drop_float_casts() {
    each([&](Node& n) {
      if (n.kind != NodeKind::kOp || n.code != OpCode::kCast) return;
      if (!is_working_float(g_.value(n.outputs[0]).dtype) || !is_working_float(g_.value(n.inputs[0]).dtype)) return;
      if (g_.value(n.inputs[0]).producer < 0) return;
      g_.replace_uses(n.outputs[0], n.inputs[0]);
    });
  }

  bool used_once(ValueId v) const { return uses_[static_cast<std::size_t>(v)] == 1; }

  static bool is_add(const Node& n) {
    return n.kind == NodeKind::kOp && (n.code == OpCode::kAdd || n.code == OpCode::kBroadcastingAdd);
  }
  static bool is_mul(const Node& n) {
    return n.kind == NodeKind::kOp && (n.code == OpCode::kMul || n.code == OpCode::kBroadcastingMul);
  }

  // Moves the result of `inner` to where `outer` stood.
  void take_over(Node& outer, Node& inner) {
    inner.position = outer.position;
    const ValueId out = outer.outputs[0];
    outer.kind = NodeKind::kDead;
    outer.outputs.clear();
    const auto id = static_cast<NodeId>(&inner - g_.nodes.data());
    g_.value(out).producer = id;
    g_.value(out).result = 0;
    inner.outputs[0] = out;
  }

  void scale_embedding(Node& n) {
    if (!is_mul(n)) return;
    for (std::size_t i = 0; i < 2; ++i) {
      Node* p = g_.producer(n.inputs[i]);
      const auto factor = float_elements(g_, n.inputs[1 - i]);
      if (!p || p->kind != NodeKind::kEmbedding || !used_once(n.inputs[i]) || !factor || factor->size() != 1) continue;
      std::get<EmbeddingParams>(p->params).scale *= (*factor)[0];
      return take_over(n, *p);
    }
  }

  Node* plain_linear(ValueId v) {
    Node* p = g_.producer(v);
    if (!p || p->kind != NodeKind::kLinear || !used_once(v)) return nullptr;
    const auto& params = std::get<LinearParams>(p->params);
    return params.weights.size() == 1 && !params.gated && !params.add_residual ? p : nullptr;
  }

  void add_bias(Node& n) {
    if (!is_add(n)) return;
    for (std::size_t i = 0; i < 2; ++i) {
      Node* p = plain_linear(n.inputs[i]);
      const auto& bias = g_.value(strip_casts(g_, n.inputs[1 - i])).constant;
      if (!p || !bias || !is_float(bias->dtype())) continue;
      auto& params = std::get<LinearParams>(p->params);
      if (params.biases[0] || bias->shape().rank() == 0 || bias->element_count() != params.weights[0].rows ||
          bias->shape()[bias->shape().rank() - 1] != params.weights[0].rows) {
        continue;
      }
      params.biases[0] = *bias;
      return take_over(n, *p);
    }
  }

  static std::optional<Activation> activation(const Node& n) {
    if (n.kind != NodeKind::kOp) return std::nullopt;
    if (n.code == OpCode::kSilu) return Activation::kSilu;
    if (n.code != OpCode::kGelu || !n.source->attribute("approximate")) return std::nullopt;
    switch (n.source->attribute("approximate")->as_enum()) {
      case 0:
        return Activation::kGeluErf;
      case 1:
        return Activation::kGeluTanh;
      default:
        return std::nullopt;
    }
  }

  // One factor of a gated product: a linear layer, or one part of a layer that is split in two halves.
  struct Half {
    Node* linear = nullptr;
    std::int64_t first_row = 0, rows = 0;
  };
  std::optional<Half> half_of(ValueId v) {
    if (Node* p = plain_linear(v)) {
      const auto& w = std::get<LinearParams>(p->params).weights[0];
      return Half{p, 0, w.rows};
    }
    Node* split = g_.producer(v);
    if (!split || split->kind != NodeKind::kOp || split->code != OpCode::kSplit || split->outputs.size() != 2)
      return std::nullopt;
    if (!used_once(split->outputs[0]) || !used_once(split->outputs[1])) return std::nullopt;
    Node* p = plain_linear(split->inputs[0]);
    if (!p) return std::nullopt;
    const auto& shape = g_.value(split->outputs[0]).shape;
    const auto rows = g_.exprs.as_constant(shape.back());
    if (!rows || *rows * 2 != std::get<LinearParams>(p->params).weights[0].rows) return std::nullopt;
    return Half{p, g_.value(v).result == 0 ? 0 : *rows, *rows};
  }

  // The same rows by the same experts of two stacks.
  bool join_gated_experts(Node& n, Activation kind, ValueId gate, ValueId up) {
    const Node *a = g_.producer(gate), *b = g_.producer(up);
    if (!a || !b || a->kind != NodeKind::kExperts || b->kind != NodeKind::kExperts || a->inputs != b->inputs ||
        a->inputs.size() != 2 || !used_once(gate) || !used_once(up) || g_.value(gate).shape != g_.value(up).shape) {
      return false;
    }
    auto params = std::get<ExpertsParams>(a->params);
    const auto& other = std::get<ExpertsParams>(b->params);
    if (params.gated || other.gated || params.experts != other.experts || params.choices != other.choices ||
        params.weights[0].data.dtype() != other.weights[0].data.dtype()) {
      return false;
    }
    params.weights.insert(params.weights.end(), other.weights.begin(), other.weights.end());
    params.activation = kind;
    params.gated = true;
    n.kind = NodeKind::kExperts;
    n.composite_symbol = a->composite_symbol;
    n.source = nullptr;
    n.inputs = a->inputs;
    n.params = std::move(params);
    return true;
  }

  void join_gated_pair(Node& n) {
    if (!is_mul(n)) return;
    for (std::size_t i = 0; i < 2; ++i) {
      Node* act = g_.producer(n.inputs[i]);
      const auto kind = act ? activation(*act) : std::nullopt;
      if (!kind || !used_once(n.inputs[i])) continue;
      if (join_gated_experts(n, *kind, act->inputs[0], n.inputs[1 - i])) return;
      const auto gate = half_of(act->inputs[0]), up = half_of(n.inputs[1 - i]);
      if (!gate || !up || gate->rows != up->rows || gate->linear->inputs[0] != up->linear->inputs[0]) continue;
      LinearParams params;
      params.gated = true;
      params.activation = *kind;
      for (const Half* h : {&*gate, &*up}) {
        const auto& from = std::get<LinearParams>(h->linear->params);
        if (from.biases[0]) return;
        WeightSource w = from.weights[0];
        w.first_row += h->first_row;
        w.rows = h->rows;
        params.weights.push_back(std::move(w));
        params.biases.emplace_back();
      }
      n.kind = NodeKind::kLinear;
      n.source = nullptr;
      n.inputs = {gate->linear->inputs[0]};
      n.params = std::move(params);
      return;
    }
  }

  ValueId strip_unit_reshape(ValueId v) const {
    const Node* p = g_.producer(v);
    if (!p || p->kind != NodeKind::kOp || p->code != OpCode::kReshape || !used_once(v)) return v;
    std::vector<Expr> a, b;
    for (Expr e : g_.value(v).shape) {
      if (!g_.exprs.is_constant(e, 1)) a.push_back(e);
    }
    for (Expr e : g_.value(p->inputs[0]).shape) {
      if (!g_.exprs.is_constant(e, 1)) b.push_back(e);
    }
    return a == b ? p->inputs[0] : v;
  }

  bool same_elements(ValueId a, ValueId b) const {
    std::vector<Expr> x, y;
    for (Expr e : g_.value(a).shape) {
      if (!g_.exprs.is_constant(e, 1)) x.push_back(e);
    }
    for (Expr e : g_.value(b).shape) {
      if (!g_.exprs.is_constant(e, 1)) y.push_back(e);
    }
    return x == y;
  }

  void add_residual(Node& n) {
    if (!is_add(n)) return;
    for (std::size_t i = 2; i-- > 0;) {
      const ValueId inner = strip_unit_reshape(n.inputs[i]), other = n.inputs[1 - i];
      Node* p = g_.producer(inner);
      if (!p || !used_once(inner) || g_.value(other).constant || g_.value(other).host) continue;
      if (!same_elements(inner, other) || !same_elements(other, n.outputs[0]) || other == n.inputs[i]) continue;
      if (p->kind == NodeKind::kLinear && !std::get<LinearParams>(p->params).add_residual && p->outputs.size() == 1) {
        std::get<LinearParams>(p->params).add_residual = true;
      } else if (p->kind == NodeKind::kRmsNorm && !std::get<NormParams>(p->params).add_residual) {
        std::get<NormParams>(p->params).add_residual = true;
      } else {
        continue;
      }
      p->inputs.push_back(other);
      return take_over(n, *p);
    }
  }

  // q, k, v: layers of one input become one call over the joined matrix.
  void join_linear_layers() {
    std::map<ValueId, std::vector<NodeId>> by_input;
    for (const NodeId id : g_.order()) {
      const Node& n = g_.node(id);
      if (n.kind != NodeKind::kLinear) continue;
      const auto& p = std::get<LinearParams>(n.params);
      if (!p.gated && !p.add_residual && p.weights.size() == 1) by_input[n.inputs[0]].push_back(id);
    }
    for (const auto& [input, ids] : by_input) {
      if (ids.size() < 2) continue;
      Node& first = g_.node(ids[0]);
      auto& joined = std::get<LinearParams>(first.params);
      for (std::size_t i = 1; i < ids.size(); ++i) {
        Node& other = g_.node(ids[i]);
        const auto& p = std::get<LinearParams>(other.params);
        const WeightSource &a = p.weights[0], &b = joined.weights[0];
        if (a.data.dtype() != b.data.dtype() || a.table.has_value() != b.table.has_value())
          continue;  // its own packing
        joined.weights.push_back(p.weights[0]);
        joined.biases.push_back(p.biases[0]);
        const ValueId out = other.outputs[0];
        g_.value(out).producer = ids[0];
        g_.value(out).result = static_cast<int>(first.outputs.size());
        first.outputs.push_back(out);
        other.kind = NodeKind::kDead;
        other.outputs.clear();
      }
    }
    g_.sweep();
  }

  Graph& g_;
  std::vector<int> uses_;
};

}  // namespace

void fuse(Graph& graph) {
  Fusion(graph).run();
}

}  // namespace coreai::compiler
