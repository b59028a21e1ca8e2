// Steps of the gated delta rule, which change a state in place where nothing
// else needs its old content.
#include <algorithm>

#include "compiler/matchers.h"
#include "compiler/scheduler.h"
#include "compiler/views.h"

namespace coreai::compiler {

View Scheduler::dense_view(ValueId v, std::size_t dense, bool any) {
  ExprPool& x = g_.exprs;
  View at = view(v);
  const DType type = buffer_dtype(at.buffer);
  bool fits = any ? is_working_float(type) : type == DType::kF32;
  Expr stride = x.constant(1);
  for (std::size_t i = at.extents.size(); dense > 0 && i-- > 0; --dense) {
    fits = fits && (x.is_constant(at.extents[i], 1) || at.strides[i] == stride);
    stride = x.mul(stride, at.extents[i]);
  }
  return fits ? at : contiguous_copy(at, DType::kF32);
}

bool Scheduler::is_same_memory(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset == b.offset && g_.exprs.product(a.extents) == g_.exprs.product(b.extents) &&
         is_contiguous(g_.exprs, a) && is_contiguous(g_.exprs, b);
}

View Scheduler::stored_part(const Node& store) {
  const auto& p = std::get<StoreParams>(store.params);
  View part = view(store.inputs[0]);
  for (std::size_t i = 0; i < part.extents.size(); ++i) {
    part.offset = g_.exprs.add(part.offset, g_.exprs.mul(p.start[i], part.strides[i]));
    part.extents[i] = p.extent[i];
  }
  return part;
}

bool Scheduler::read_later(const Node& node, const Node* but, ValueId content) const {
  bool after = false;
  for (const NodeId id : g_.order()) {
    const Node& n = g_.nodes[static_cast<std::size_t>(id)];
    const bool reads = std::ranges::any_of(n.inputs, [&](ValueId v) { return v >= 0 && content_of(g_, v) == content; });
    if (after && &n != but && reads) return true;
    after = after || &n == &node;
  }
  return std::ranges::any_of(g_.outputs, [&](const GraphOutput& o) { return content_of(g_, o.value) == content; });
}

std::optional<View> Scheduler::state_in_place(const Node& reader, ValueId v, ValueId old) {
  const ValueId content = g_.plain_states ? content_of(g_, old) : kNoValue;
  if (content == kNoValue) return std::nullopt;
  const auto reads_it = [&](ValueId input) { return content_of(g_, input) == content; };
  if (std::ranges::count_if(reader.inputs, reads_it) != 1) return std::nullopt;
  const std::vector<int> counts = g_.use_counts();
  while (counts[static_cast<std::size_t>(v)] == 1) {
    const auto kept = std::ranges::find(g_.state_final, v);
    const auto user = std::ranges::find_if(g_.nodes, [&](const Node& n) {
      return n.kind != NodeKind::kDead && std::ranges::find(n.inputs, v) != n.inputs.end();
    });
    const bool stored = user != g_.nodes.end() && user->kind == NodeKind::kStore;
    if (kept != g_.state_final.end() || stored) {
      if (stored && (user->inputs[1] != v || user->inputs[0] != content)) return std::nullopt;
      const View to =
          stored ? stored_part(*user) : view(g_.state_initial[static_cast<std::size_t>(kept - g_.state_final.begin())]);
      View from = view(old);
      if (!is_same_memory(from, to) || read_later(reader, stored ? &*user : nullptr, content)) return std::nullopt;
      return from;
    }
    const bool reshaped = user != g_.nodes.end() && user->kind == NodeKind::kOp &&
                          (user->code == ir::OpCode::kReshape || user->code == ir::OpCode::kExpandDims ||
                           user->code == ir::OpCode::kShrinkDims);
    if (!reshaped || user->inputs[0] != v) return std::nullopt;
    v = user->outputs[0];
  }
  return std::nullopt;
}

void Scheduler::emit_delta_rule(const Node& node) {
  const auto& p = std::get<DeltaRuleParams>(node.params);
  ExprPool& x = g_.exprs;
  DeltaRuleStep step;
  step.norm_eps = p.norm_eps;
  step.scale = p.scale;
  const ValueId rows = node.outputs[0], next = node.outputs[1];
  if (!x.as_constant(g_.value(node.inputs[0]).shape[3]) || !x.as_constant(g_.value(rows).shape[3]))
    throw NotPlannable{"a delta rule whose head extents are not known", node.composite_symbol};
  step.query = dense_view(node.inputs[0], 1), step.key = dense_view(node.inputs[1], 1);
  step.value = dense_view(node.inputs[2], 1);
  step.decay = dense_view(node.inputs[3], 0), step.beta = dense_view(node.inputs[4], 0);
  step.state_in = dense_view(node.inputs[5], 2, true);
  const View out =
      contiguous_view(x, new_buffer(Buffer::Kind::kArena, DType::kF32, elements(rows)), g_.value(rows).shape);
  views_[static_cast<std::size_t>(rows)] = out;
  step.out = out;
  std::swap(step.out.extents[1], step.out.extents[2]);
  std::swap(step.out.strides[1], step.out.strides[2]);
  const auto in_place = state_in_place(node, next, node.inputs[5]);
  step.state_out = in_place ? *in_place
                            : contiguous_view(x, new_buffer(Buffer::Kind::kArena, DType::kF32, elements(next)),
                                              g_.value(next).shape);
  views_[static_cast<std::size_t>(next)] = step.state_out;
  const Expr heads = x.mul(step.query.extents[0], step.query.extents[1]);
  add_step(std::move(step), "gated_delta", x.mul(heads, g_.value(rows).shape[1]));
}

}  // namespace coreai::compiler
