#include "compiler/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace coreai::compiler {

ValueId Graph::new_value(DType dtype, std::vector<Expr> shape) {
  Value v;
  v.dtype = dtype;
  v.shape = std::move(shape);
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size() - 1);
}

NodeId Graph::append(Node node) {
  const auto id = static_cast<NodeId>(nodes.size());
  if (node.position == 0) node.position = static_cast<double>(id) + 1;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    value(node.outputs[i]).producer = id;
    value(node.outputs[i]).result = static_cast<int>(i);
  }
  nodes.push_back(std::move(node));
  return id;
}

Node* Graph::producer(ValueId id) {
  if (id < 0 || value(id).producer < 0) return nullptr;
  return &node(value(id).producer);
}

const Node* Graph::producer(ValueId id) const {
  if (id < 0 || value(id).producer < 0) return nullptr;
  return &nodes[static_cast<std::size_t>(value(id).producer)];
}

bool Graph::is_op(ValueId id, ir::OpCode code) const {
  const Node* p = producer(id);
  return p && p->kind == NodeKind::kOp && p->code == code;
}

void Graph::require_nonnegative(Expr e, std::string reason, GuardKind kind) {
  if (exprs.known_nonnegative(e)) return;
  for (const Guard& g : guards) {
    if (g.nonnegative == e && g.kind == kind) return;
  }
  guards.push_back({e, kind, std::move(reason)});
}

std::optional<std::int64_t> Graph::static_extent(ValueId id, std::size_t axis) const {
  const auto& shape = value(id).shape;
  if (axis >= shape.size()) return std::nullopt;
  return exprs.as_constant(shape[axis]);
}

Shape Graph::declared_shape(ValueId id) const {
  std::vector<std::int64_t> dims;
  for (Expr e : value(id).shape) dims.push_back(exprs.as_constant(e).value_or(kDynamic));
  return Shape(dims);
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> counts(values.size(), 0);
  for (const Node& n : nodes) {
    if (n.kind == NodeKind::kDead) continue;
    for (ValueId v : n.inputs) {
      if (v >= 0) ++counts[static_cast<std::size_t>(v)];
    }
  }
  for (const GraphOutput& o : outputs) ++counts[static_cast<std::size_t>(o.value)];
  for (ValueId v : state_final) {
    if (v >= 0) ++counts[static_cast<std::size_t>(v)];
  }
  return counts;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  for (Node& n : nodes) std::replace(n.inputs.begin(), n.inputs.end(), from, to);
  for (GraphOutput& o : outputs) {
    if (o.value == from) o.value = to;
  }
  std::replace(state_final.begin(), state_final.end(), from, to);
}

std::vector<NodeId> Graph::order() const {
  // Readers of node i: readers[first[i]] up to readers[first[i + 1]], with one entry per operand.
  std::vector<int> waiting(nodes.size(), 0), first(nodes.size() + 1, 0);
  std::size_t live = 0;
  const auto each_edge = [&](auto&& visit) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].kind == NodeKind::kDead) continue;
      for (ValueId v : nodes[i].inputs) {
        if (v >= 0 && value(v).producer >= 0) visit(static_cast<std::size_t>(value(v).producer), i);
      }
    }
  };
  each_edge([&](std::size_t producer, std::size_t reader) { ++first[producer + 1], ++waiting[reader]; });
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<NodeId> readers(static_cast<std::size_t>(first.back()));
  std::vector<int> next(first.begin(), first.end() - 1);
  each_edge([&](std::size_t producer, std::size_t reader) {
    readers[static_cast<std::size_t>(next[producer]++)] = static_cast<NodeId>(reader);
  });
  using Ready = std::pair<double, NodeId>;
  std::vector<Ready> ready;  // a heap, the earliest position first
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::kDead) continue;
    ++live;
    if (waiting[i] == 0) ready.emplace_back(nodes[i].position, static_cast<NodeId>(i));
  }
  std::make_heap(ready.begin(), ready.end(), std::greater<>());
  std::vector<NodeId> out;
  out.reserve(live);
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), std::greater<>());
    const auto id = static_cast<std::size_t>(ready.back().second);
    ready.pop_back();
    out.push_back(static_cast<NodeId>(id));
    for (int i = first[id]; i < first[id + 1]; ++i) {
      const NodeId reader = readers[static_cast<std::size_t>(i)];
      if (--waiting[static_cast<std::size_t>(reader)] > 0) continue;
      ready.emplace_back(nodes[static_cast<std::size_t>(reader)].position, reader);
      std::push_heap(ready.begin(), ready.end(), std::greater<>());
    }
  }
  if (out.size() != live) throw NotPlannable{"values depend on each other in a circle"};
  return out;
}

bool Graph::is_state_extent(Expr e) const {
  if (exprs.as_constant(e)) return false;
  return std::any_of(state_initial.begin(), state_initial.end(), [&](ValueId v) {
    const auto& shape = value(v).shape;
    return std::find(shape.begin(), shape.end(), e) != shape.end();
  });
}

void Graph::sweep() {
  std::vector<int> counts = use_counts();
  const std::vector<NodeId> sorted = order();
  for (std::size_t i = sorted.size(); i-- > 0;) {  // readers come after what they read
    Node& n = node(sorted[i]);
    const bool used = std::any_of(n.outputs.begin(), n.outputs.end(),
                                  [&](ValueId v) { return counts[static_cast<std::size_t>(v)] > 0; });
    if (used) continue;
    n.kind = NodeKind::kDead;
    for (ValueId v : n.inputs) {
      if (v >= 0) --counts[static_cast<std::size_t>(v)];
    }
  }
}

namespace {

std::string node_name(const Node& n) {
  switch (n.kind) {
    case NodeKind::kOp:
      return std::string(ir::op_info(n.code).text_name);
    case NodeKind::kRmsNorm:
      return "rms_norm";
    case NodeKind::kLayerNorm:
      return "layer_norm";
    case NodeKind::kRowwise:
      return "rowwise";
    case NodeKind::kAveragePool:
      return "average_pool";
    case NodeKind::kGatherRows:
      return "gather_rows";
    case NodeKind::kRope:
      return "rope";
    case NodeKind::kAttention:
      return "attention";
    case NodeKind::kLinear:
      return "linear";
    case NodeKind::kExperts:
      return "experts";
    case NodeKind::kDeltaRule:
      return "gated_delta";
    case NodeKind::kEmbedding:
      return "embedding";
    case NodeKind::kStore:
      return "store";
    case NodeKind::kHeads:
      return "heads";
    case NodeKind::kElementwise:
      return "elementwise";
    case NodeKind::kDead:
      return "dead";
  }
  return "?";
}

}  // namespace

std::string Graph::text() const {
  std::string out;
  for (const NodeId id : order()) {
    const Node& n = nodes[static_cast<std::size_t>(id)];
    std::string line = "  ";
    for (std::size_t i = 0; i < n.outputs.size(); ++i) {
      std::string dims;
      for (Expr e : value(n.outputs[i]).shape) dims += fmt::format("{}x", exprs.text(e));
      line += fmt::format("{}%{}: {}{}", i ? ", " : "", n.outputs[i], dims, dtype_name(value(n.outputs[i]).dtype));
    }
    line += " = " + node_name(n);
    for (ValueId v : n.inputs) {
      if (v >= 0 && value(v).host) {
        line += " [";
        for (Expr e : *value(v).host) line += exprs.text(e) + ",";
        line += "]";
      } else {
        line += fmt::format(" %{}", v);
      }
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace coreai::compiler
