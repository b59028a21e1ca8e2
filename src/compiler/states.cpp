#include <algorithm>

#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// slice_update of a state's content becomes a store.
void form_store(Graph& g, NodeId id) {
  Node node = g.node(id);
  const int state = g.value(node.inputs[0]).state;
  if (state < 0) return;
  StoreParams params;
  params.state = state;
  const auto& update_shape = g.value(node.inputs[4]).shape;
  const auto ranges = slice_ranges(g, node);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].stride != 1) return;
    params.start.push_back(ranges[i].start);
    params.extent.push_back(ranges[i].extent);
    if (i >= update_shape.size() || update_shape[i] != ranges[i].extent) return;
  }
  Node& target = g.node(id);
  target.kind = NodeKind::kStore;
  target.inputs = {node.inputs[0], node.inputs[4]};
  target.params = std::move(params);
  g.value(target.outputs[0]).state = state;
}

// What leads to one side of an attention or a store: a range of heads of a projection, normed and rotated.
struct HeadTrace {
  ValueId base = kNoValue;
  std::int64_t first_head = 0, heads = 0, head_dim = 0;
  std::vector<float> norm_scale;
  float eps = 0;
  ValueId positions = kNoValue;
  RopeParams rope;
};

// Repeats a norm's scale [d] or [h, 1, d] for heads [first, first + heads).
std::optional<std::vector<float>> head_scales(const Graph& g, const Node& norm, std::int64_t first, std::int64_t heads,
                                              std::int64_t head_dim) {
  const auto scale = float_elements(g, norm.inputs[1]);
  if (!scale) return std::nullopt;
  std::vector<float> out;
  for (std::int64_t h = first; h < first + heads; ++h) {
    const std::int64_t row = static_cast<std::int64_t>(scale->size()) == head_dim ? 0 : h;
    if ((row + 1) * head_dim > static_cast<std::int64_t>(scale->size())) return std::nullopt;
    out.insert(out.end(), scale->begin() + row * head_dim, scale->begin() + (row + 1) * head_dim);
  }
  return out;
}

// Follows a value [1, h, q, d] (unit axes apart) back to the projection it is made of.
std::optional<HeadTrace> trace_heads(Graph& g, ValueId id) {
  HeadTrace trace;
  const auto& shape = g.value(id).shape;
  if (shape.size() < 3) return std::nullopt;
  const auto dim = g.exprs.as_constant(shape.back());
  const Expr rows = shape[shape.size() - 2];
  std::int64_t heads = 1;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) {
    const auto n = g.exprs.as_constant(shape[i]);
    if (!n) return std::nullopt;
    heads *= *n;
  }
  if (!dim) return std::nullopt;
  trace.heads = heads;
  trace.head_dim = *dim;
  while (Node* p = g.producer(id)) {
    if (p->kind == NodeKind::kRope) {
      if (trace.positions != kNoValue || !trace.norm_scale.empty()) return std::nullopt;
      trace.positions = p->inputs[1];
      trace.rope = std::get<RopeParams>(p->params);
      id = p->inputs[0];
    } else if (p->kind == NodeKind::kRmsNorm && !std::get<NormParams>(p->params).add_residual) {
      if (!trace.norm_scale.empty()) return std::nullopt;
      const auto scales = head_scales(g, *p, trace.first_head, trace.heads, trace.head_dim);
      if (!scales || g.value(p->inputs[0]).shape.size() != 4) break;
      trace.norm_scale = *scales;
      trace.eps = std::get<NormParams>(p->params).eps;
      id = p->inputs[0];
    } else if (p->kind != NodeKind::kOp) {
      break;
    } else if (p->code == OpCode::kCast && strip_casts(g, id) != id) {
      id = p->inputs[0];
    } else if (p->code == OpCode::kExpandDims || p->code == OpCode::kShrinkDims || p->code == OpCode::kReshape) {
      // Axes before the last two may be split or joined: heads stay in their order.
      const auto& in = g.value(p->inputs[0]).shape;
      if (in.size() < 3 || in.back() != shape.back() || in[in.size() - 2] != rows) break;
      id = p->inputs[0];
    } else if (p->code == OpCode::kSlice) {
      const Node node = *p;
      const auto& in = g.value(node.inputs[0]).shape;
      const auto ranges = slice_ranges(g, node);
      if (in.size() != 4 || !g.exprs.is_constant(in[0], 1) || ranges[1].stride != 1) break;
      const auto first = g.exprs.as_constant(ranges[1].start);
      if (!first || ranges[2].extent != in[2] || ranges[3].extent != in[3]) break;
      trace.first_head += *first;
      id = node.inputs[0];
    } else {
      break;
    }
  }
  if (g.value(id).shape.size() != 4 || g.value(id).shape[2] != rows || g.value(id).constant) return std::nullopt;
  trace.base = id;
  return trace;
}

HeadsParams::Task task_of(Node& node, const HeadTrace& trace) {
  HeadsParams::Task task;
  task.input = node.inputs.size();
  node.inputs.push_back(trace.base);
  task.first_head = trace.first_head;
  task.heads = trace.heads;
  task.head_dim = trace.head_dim;
  task.norm_scale = trace.norm_scale;
  task.eps = trace.eps;
  task.rope = trace.rope;
  if (trace.positions != kNoValue) {
    task.positions = node.inputs.size();
    node.inputs.push_back(trace.positions);
  }
  return task;
}

[[noreturn]] void refuse(const Node& node, const std::string& why) {
  throw NotPlannable{why, node.composite_symbol, NotPlannable::Remedy::kPlainStates};
}

// One store [1, 1, heads, q, d] at (layer, 0, 0.., position.., 0).
void add_store(Graph& g, Node& heads, HeadsParams& params, Node& store) {
  const StoreParams& s = std::get<StoreParams>(store.params);
  const auto& full = g.value(g.state_initial[static_cast<std::size_t>(s.state)]).shape;
  const auto layer = g.exprs.as_constant(s.start[0]);
  const bool fits = full.size() == 5 && layer && g.exprs.is_constant(s.extent[0], 1) &&
                    g.exprs.is_constant(s.start[1], 0) && g.exprs.is_constant(full[1], 1) &&
                    g.exprs.is_constant(s.start[2], 0) && s.extent[2] == full[2] &&
                    g.exprs.is_constant(s.start[4], 0) && s.extent[4] == full[4];
  if (!fits) refuse(store, "a state is updated in a form that no kernel stores");
  const auto trace = trace_heads(g, store.inputs[1]);
  if (!trace) refuse(store, "what a state takes in is not made of heads");
  HeadsParams::Task task = task_of(heads, *trace);
  task.state = s.state;
  task.layer = *layer;
  task.position = s.start[3];
  params.tasks.push_back(std::move(task));
  heads.outputs.push_back(store.outputs[0]);
  heads.inputs.push_back(store.inputs[0]);  // the old content: stores of one state keep their order
}

// The attention's query and the stores whose content it reads become one node in front of it.
void form_heads(Graph& g, NodeId attention_id) {
  const Node attention = g.node(attention_id);
  const auto key = trace_state(g, attention.inputs[1]), value = trace_state(g, attention.inputs[2]);
  if (!key && !value) {
    std::get<AttentionParams>(g.node(attention_id).params).of_states = false;
    return;
  }
  if (!key || !value) refuse(attention, "of keys and values one comes from a state");
  Node heads;
  heads.kind = NodeKind::kHeads;
  heads.position = attention.position - 0.5;
  HeadsParams params;
  std::vector<NodeId> stores;
  for (const StateSlice* slice : {&*key, &*value}) {
    const NodeId producer = g.value(slice->content).producer;
    if (producer < 0 || g.node(producer).kind != NodeKind::kStore) continue;
    if (std::find(stores.begin(), stores.end(), producer) != stores.end()) continue;
    stores.push_back(producer);
  }
  const auto query = trace_heads(g, attention.inputs[0]);
  if (!query) refuse(attention, "the query is not made of heads");
  params.tasks.push_back(task_of(heads, *query));
  const auto dim = g.exprs.constant(query->head_dim);
  const auto& shape = g.value(attention.inputs[0]).shape;
  const ValueId rotated =
      g.new_value(DType::kF32, {g.exprs.constant(1), g.exprs.constant(query->heads), shape[shape.size() - 2], dim});
  heads.outputs.push_back(rotated);
  for (NodeId s : stores) {
    add_store(g, heads, params, g.node(s));
    g.node(s).kind = NodeKind::kDead;
  }
  heads.params = std::move(params);
  g.append(std::move(heads));
  g.node(attention_id).inputs[0] = rotated;
}

// Programs move what they read of a state a few times; a longer chain is none of theirs.
constexpr int kMaxMovements = 64;

std::optional<StateSlice> trace_state(Graph& g, ValueId id, int movements) {
  id = strip_casts(g, id);
  if (g.value(id).state >= 0) {
    StateSlice out;
    out.content = id;
    out.state = g.value(id).state;
    out.extent = g.value(id).shape;
    out.start.assign(out.extent.size(), g.exprs.constant(0));
    return out;
  }
  const Node* p = g.producer(id);
  if (!p || p->kind != NodeKind::kOp || movements == kMaxMovements) return std::nullopt;
  const Node node = *p;
  const bool moves =
      node.code == OpCode::kExpandDims || node.code == OpCode::kShrinkDims || node.code == OpCode::kReshape;
  if (!moves && node.code != OpCode::kSlice) return std::nullopt;
  auto out = trace_state(g, node.inputs[0], movements + 1);
  if (!out) return std::nullopt;
  if (moves) return only_moves_unit_axes(g, node.inputs[0], id) ? out : std::nullopt;
  // Axes of the value that are wide belong, in order, to the wide axes of the state's part.
  const auto ranges = slice_ranges(g, node);
  const auto& in = g.value(node.inputs[0]).shape;
  if (in.size() == out->extent.size()) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].stride != 1 || in[i] != out->extent[i]) return std::nullopt;
      out->start[i] = g.exprs.add(out->start[i], ranges[i].start);
      out->extent[i] = ranges[i].extent;
    }
    return out;
  }
  return std::nullopt;
}

}  // namespace

std::optional<StateSlice> trace_state(Graph& graph, ValueId value) {
  return trace_state(graph, value, 0);
}

void form_states(Graph& g) {
  for (const NodeId id : g.order()) {
    if (g.node(id).kind == NodeKind::kOp && g.node(id).code == OpCode::kSliceUpdate) form_store(g, id);
  }
  if (g.plain_states) {
    for (Node& n : g.nodes) {
      if (n.kind == NodeKind::kAttention) std::get<AttentionParams>(n.params).of_states = false;
    }
    return g.sweep();
  }
  for (const NodeId id : g.order()) {
    if (g.node(id).kind == NodeKind::kAttention) form_heads(g, id);
  }
  g.sweep();
  for (const NodeId id : g.order()) {
    if (g.node(id).kind == NodeKind::kStore) refuse(g.node(id), "a state is updated that no attention reads");
  }
}

}  // namespace coreai::compiler
