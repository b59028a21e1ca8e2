#include "compiler/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/scheduler.h"
#include "compiler/shapes.h"
#include "compiler/views.h"
#include "coreai/base/error.h"

namespace coreai::compiler {

using ir::OpCode;

Plan Scheduler::run() {
  check_states();
  views_.resize(g_.values.size());
  for (std::size_t i = 0; i < g_.inputs.size(); ++i) {
    const ValueId v = g_.inputs[i];
    views_[static_cast<std::size_t>(v)] = contiguous_view(
        g_.exprs, new_buffer(Buffer::Kind::kInput, g_.value(v).dtype, elements(v), i), g_.value(v).shape);
  }
  if (g_.plain_states) place_states();
  for (const NodeId id : g_.order()) emit(g_.node(id));
  composite_symbol_.clear();
  emit_outputs();
  if (g_.plain_states) write_whole_states();
  plan_.states.resize(g_.state_initial.size());
  for (std::size_t i = 0; i < plan_.states.size(); ++i)
    plan_.states[i] = {i, keys_.contains(static_cast<int>(i)), values_.contains(static_cast<int>(i)),
                       g_.value(g_.state_initial[i]).dtype};
  plan_.exprs = std::move(g_.exprs);
  plan_.guards = std::move(g_.guards);
  plan_.increasing = std::move(g_.increasing);
  plan_.symbols = std::move(g_.symbols);
  return std::move(plan_);
}

// ---- states ----

void Scheduler::refuse_states(const char* reason) {
  throw NotPlannable{reason, {}, NotPlannable::Remedy::kPlainStates};
}

void Scheduler::check_states() {
  if (g_.plain_states) return check_plain_states(g_);
  std::map<ValueId, double> replaced;  // content -> position of the store that overwrites it
  for (const NodeId id : g_.order()) {
    const Node& n = g_.node(id);
    if (n.kind != NodeKind::kHeads) continue;
    for (ValueId v : n.inputs) {
      if (g_.value(v).state >= 0) replaced[v] = n.position;
    }
  }
  for (const NodeId id : g_.order()) {
    const Node& n = g_.node(id);
    if (n.kind == NodeKind::kHeads) continue;
    for (ValueId v : n.inputs) {
      const auto slice = trace_state(g_, v);
      if (!slice) continue;
      const auto it = replaced.find(slice->content);
      if (it != replaced.end() && n.position > it->second)
        refuse_states("an old content of a state is read after its update");
      if (n.kind != NodeKind::kAttention && n.kind != NodeKind::kOp)
        refuse_states("a state is read in a form that no kernel takes");
      if (n.kind == NodeKind::kOp && !is_movement(n))
        refuse_states("a state is read by an operation without a kernel for its layout");
    }
  }
  for (std::size_t i = 0; i < g_.state_final.size(); ++i) {
    const ValueId v = g_.state_final[i];
    if (v == g_.state_initial[i]) continue;
    const Node* p = g_.producer(v);
    if (!p || p->kind != NodeKind::kHeads || replaced.contains(v))
      refuse_states("a state ends with a value that is no store");
  }
}

// ---- buffers and views ----

Expr Scheduler::elements(ValueId v) {
  return g_.exprs.product(g_.value(v).shape);
}

int Scheduler::new_buffer(Buffer::Kind kind, DType dtype, Expr count, std::size_t index) {
  plan_.buffers.push_back({kind, dtype, index, count, -1});
  return static_cast<int>(plan_.buffers.size() - 1);
}

std::optional<View> Scheduler::find_view(ValueId v) {
  auto& known = views_[static_cast<std::size_t>(v)];
  if (known) return known;
  if (g_.value(v).constant || g_.value(v).host) return std::nullopt;
  const Node* p = g_.producer(v);
  if (!p || p->kind != NodeKind::kOp || (!options_.views && p->source)) return std::nullopt;
  const Node node = *p;
  if (!is_movement(node) && node.code != OpCode::kCast) return std::nullopt;
  if (node.inputs.empty()) return std::nullopt;
  if (is_subbyte(g_.value(node.inputs[0]).dtype)) return std::nullopt;  // packed: no element has an address
  // What a pass made moves constants too: no operation of the file could.
  const auto input = node.source ? find_view(node.inputs[0]) : view(node.inputs[0]);
  if (!input) return std::nullopt;
  auto view = view_of_movement(g_, node, static_cast<std::size_t>(g_.value(v).result), *input);
  views_[static_cast<std::size_t>(v)] = view;
  return view;
}

View Scheduler::view(ValueId v) {
  if (const auto found = find_view(v)) return *found;
  if (g_.value(v).constant || g_.value(v).host) return constant_buffer(v);
  throw NotPlannable{fmt::format("value %{} is used before it is made", v)};
}

View Scheduler::constant_buffer(ValueId v) {
  const Value& value = g_.value(v);
  if (!value.constant || is_subbyte(value.dtype)) {
    throw NotPlannable{fmt::format("a constant of {} is an operand without a kernel", dtype_name(value.dtype))};
  }
  const int buffer = new_buffer(Buffer::Kind::kConstant, value.dtype, elements(v));
  plan_.buffers.back().constant = value.constant;
  views_[static_cast<std::size_t>(v)] = contiguous_view(g_.exprs, buffer, value.shape);
  return *views_[static_cast<std::size_t>(v)];
}

View Scheduler::contiguous_copy(const View& from, DType dtype) {
  if (from.extents.size() > kMaxCopyRank) throw NotPlannable{"a copy of a rank above 16", composite_symbol_};
  const Expr n = g_.exprs.product(from.extents);
  const View to = contiguous_view(g_.exprs, new_buffer(Buffer::Kind::kArena, dtype, n), from.extents);
  add_step(CopyStep{from, to}, "copy", n);
  return to;
}

Rows Scheduler::rows_of(ValueId v) {
  View view = this->view(v);
  auto rows = buffer_dtype(view.buffer) == DType::kF32 ? as_rows(view) : std::nullopt;
  if (!rows) rows = as_rows(contiguous_copy(view, DType::kF32));
  COREAI_INVARIANT(rows.has_value());
  return *rows;
}

std::optional<Rows> Scheduler::as_rows(const View& view) {
  ExprPool& x = g_.exprs;
  if (view.extents.empty()) return std::nullopt;
  const auto width = x.as_constant(view.extents.back());
  if (!width || (*width != 1 && !x.is_constant(view.strides.back(), 1))) return std::nullopt;
  Rows rows{view.buffer, view.offset, *width, *width};
  std::optional<Expr> stride;  // of the outer axes joined
  for (std::size_t i = view.extents.size() - 1; i-- > 0;) {
    if (x.is_constant(view.extents[i], 1)) continue;
    if (!stride) {
      const auto s = x.as_constant(view.strides[i]);
      if (!s) return std::nullopt;
      rows.row_stride = *s;
    } else if (view.strides[i] != *stride) {
      return std::nullopt;
    }
    stride = x.mul(view.strides[i], view.extents[i]);
  }
  return rows;
}

Expr Scheduler::row_count(ValueId v) {
  const std::span<const Expr> shape(g_.value(v).shape);
  return g_.exprs.product(shape.first(shape.empty() ? 0 : shape.size() - 1));
}

Rows Scheduler::new_rows(ValueId v) {
  const int buffer = new_buffer(Buffer::Kind::kArena, DType::kF32, elements(v));
  views_[static_cast<std::size_t>(v)] = contiguous_view(g_.exprs, buffer, g_.value(v).shape);
  const auto width = g_.exprs.as_constant(g_.value(v).shape.back());
  COREAI_INVARIANT(width.has_value());
  return {buffer, g_.exprs.constant(0), *width, *width};
}

void Scheduler::add_step(StepBody body, std::string name, Expr rows) {
  plan_.steps.push_back({std::move(body), std::move(name), rows, false});
}

// ---- nodes ----

void Scheduler::emit(const Node& node) {
  composite_symbol_ = node.composite_symbol;
  switch (node.kind) {
    case NodeKind::kEmbedding:
      return emit_embedding(node);
    case NodeKind::kRmsNorm:
      return emit_norm(node);
    case NodeKind::kLayerNorm:
      return emit_layer_norm(node);
    case NodeKind::kRowwise:
      return emit_rowwise(node);
    case NodeKind::kAveragePool:
      return emit_average_pool(node);
    case NodeKind::kGatherRows:
      return emit_gather_rows(node);
    case NodeKind::kLinear:
      return emit_linear(node);
    case NodeKind::kExperts:
      return emit_experts(node);
    case NodeKind::kDeltaRule:
      return emit_delta_rule(node);
    case NodeKind::kHeads:
      return emit_heads(node);
    case NodeKind::kAttention:
      return emit_attention(node);
    case NodeKind::kElementwise:
      return emit_elementwise(node);
    case NodeKind::kOp:
      return emit_op(node);
    case NodeKind::kRope:
      throw NotPlannable{"a rotation that leads to no attention", node.composite_symbol};
    case NodeKind::kStore:
      return emit_store(node);
    case NodeKind::kDead:
      return;
  }
}

// ---- chains of element-wise operations ----

void Scheduler::emit_elementwise(const Node& node) {
  const ValueId result = node.outputs[0];
  const auto& extents = g_.value(result).shape;
  ElementwiseStep step;
  step.code = std::get<ElementwiseParams>(node.params).code;
  for (ValueId v : node.inputs) step.operands.push_back(elementwise_operand(v, extents));
  const Expr count = elements(result);
  step.out = contiguous_view(g_.exprs, new_buffer(Buffer::Kind::kArena, g_.value(result).dtype, count), extents);
  views_[static_cast<std::size_t>(result)] = step.out;
  const std::size_t length = step.code.size();
  add_step(std::move(step), length > 1 ? fmt::format("elementwise {}", length) : "elementwise", count);
}

ElementwiseOperand Scheduler::elementwise_operand(ValueId v, const std::vector<Expr>& extents) {
  ElementwiseOperand out;
  View at;
  if (g_.value(v).constant) {
    out.constant = g_.value(v).constant;
    at = contiguous_view(g_.exprs, -1, g_.value(v).shape);
  } else {
    at = view(v);
  }
  out.view = {at.buffer, at.offset, extents, std::vector<Expr>(extents.size(), g_.exprs.constant(0))};
  const std::size_t missing = extents.size() - at.extents.size();
  for (std::size_t i = 0; i < at.extents.size(); ++i) {
    if (!g_.exprs.is_constant(at.extents[i], 1)) out.view.strides[missing + i] = at.strides[i];
  }
  return out;
}

// ---- states in their declared layout ----

void Scheduler::place_states() {
  for (std::size_t i = 0; i < g_.state_initial.size(); ++i) {
    const ValueId v = g_.state_initial[i];
    if (is_subbyte(g_.value(v).dtype)) throw NotPlannable{"a state of packed elements"};
    const int buffer = new_buffer(Buffer::Kind::kState, g_.value(v).dtype, elements(v), i);
    views_[static_cast<std::size_t>(v)] = contiguous_view(g_.exprs, buffer, g_.value(v).shape);
  }
}

void Scheduler::emit_store(const Node& node) {
  const View part = stored_part(node), update = view(node.inputs[1]);
  if (part.extents.size() > kMaxCopyRank) throw NotPlannable{"a state of a rank above 16"};
  views_[static_cast<std::size_t>(node.outputs[0])] = view(node.inputs[0]);
  if (is_same_memory(update, part)) return;  // made there
  add_step(CopyStep{update, part}, "store", elements(node.inputs[1]));
}

void Scheduler::write_whole_states() {
  for (std::size_t i = 0; i < g_.state_final.size(); ++i) {
    const ValueId v = g_.state_final[i];
    const View whole = view(g_.state_initial[i]), kept = view(v);
    if (kept.buffer == whole.buffer) continue;  // as it was, or stored in place
    if (kept.buffer >= 0 && plan_.buffers[static_cast<std::size_t>(kept.buffer)].kind == Buffer::Kind::kState)
      throw NotPlannable{"a state ends with the content of another"};
    if (g_.value(v).shape.size() > kMaxCopyRank) throw NotPlannable{"a state of a rank above 16"};
    add_step(CopyStep{kept, whole}, "store", elements(v));
  }
}

// ---- operations without a fused kernel ----

void Scheduler::emit_op(const Node& node) {
  if (is_movement(node) || node.code == OpCode::kCast) {
    // Readers look at the state itself.
    if (!g_.plain_states && !node.inputs.empty() && trace_state(g_, node.inputs[0])) return;
    bool all_views = options_.views || !node.source;
    for (ValueId v : node.outputs) all_views = all_views && find_view(v).has_value();
    if (all_views) return;
    const bool reshapes =
        node.code == OpCode::kReshape || node.code == OpCode::kExpandDims || node.code == OpCode::kShrinkDims;
    const Value& in = g_.value(node.inputs.at(0));
    const bool has_memory = (!in.host || in.constant) && !is_subbyte(in.dtype);
    if (reshapes && has_memory && (options_.views || !node.source)) return reshape(node);
  }
  if (g_.value(node.outputs[0]).constant) return;
  COREAI_INVARIANT(node.source != nullptr);
  GenericStep step;
  step.op = node.source;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    step.inputs.push_back(generic_operand(node.inputs[i], node.source->operand_type(i)->dtype()));
  Expr count = g_.exprs.constant(0);
  for (ValueId v : node.outputs) {
    count = g_.exprs.add(count, elements(v));
    step.outputs.push_back(generic_result(v));
  }
  add_step(std::move(step), fmt::format("op {}", ir::op_info(node.code).text_name), count);
}

void Scheduler::reshape(const Node& node) {
  View from = view(node.inputs[0]);
  if (!is_contiguous(g_.exprs, from)) from = contiguous_copy(from, buffer_dtype(from.buffer));
  View to = contiguous_view(g_.exprs, from.buffer, g_.value(node.outputs[0]).shape);
  to.offset = from.offset;
  views_[static_cast<std::size_t>(node.outputs[0])] = to;
}

GenericOperand Scheduler::generic_operand(ValueId v, DType declared) {
  GenericOperand out;
  out.dtype = declared;
  out.shape = g_.value(v).shape;
  if (g_.value(v).constant) {
    out.constant = g_.value(v).constant;
  } else if (g_.value(v).host) {
    out.host = *g_.value(v).host;
  } else {
    View at = view(v);
    if (!is_contiguous(g_.exprs, at) || !g_.exprs.is_constant(at.offset, 0) || buffer_dtype(at.buffer) != declared)
      at = contiguous_copy(at, declared);
    out.buffer = at.buffer;
  }
  return out;
}

GenericOperand Scheduler::generic_result(ValueId v) {
  GenericOperand out;
  out.dtype = g_.value(v).dtype;
  out.shape = g_.value(v).shape;
  out.buffer = new_buffer(Buffer::Kind::kArena, out.dtype, elements(v));
  views_[static_cast<std::size_t>(v)] = contiguous_view(g_.exprs, out.buffer, out.shape);
  return out;
}

// ---- outputs ----

void Scheduler::emit_outputs() {
  plan_.output_buffers.assign(g_.outputs.size(), -1);
  plan_.output_shapes.resize(g_.outputs.size());
  plan_.output_row_axis.assign(g_.outputs.size(), -1);
  for (const GraphOutput& o : g_.outputs) {
    plan_.output_shapes[o.index] = g_.value(o.value).shape;
    const View at = view(o.value);
    Buffer& made = plan_.buffers[static_cast<std::size_t>(at.buffer)];
    const bool whole = made.kind == Buffer::Kind::kArena && is_contiguous(g_.exprs, at) &&
                       g_.exprs.is_constant(at.offset, 0) && made.elements == elements(o.value);
    if (whole && made.dtype == o.dtype && read_by_steps(at.buffer) == 0) {
      made.kind = Buffer::Kind::kOutput;
      made.index = o.index;
      plan_.output_buffers[o.index] = at.buffer;
      continue;
    }
    const int buffer = new_buffer(Buffer::Kind::kOutput, o.dtype, elements(o.value), o.index);
    plan_.output_buffers[o.index] = buffer;
    add_step(CopyStep{at, contiguous_view(g_.exprs, buffer, g_.value(o.value).shape)}, "copy output",
             row_count_or_one(o.value));
  }
}

int Scheduler::read_by_steps(int buffer) const {
  int count = 0;
  for (const Step& s : plan_.steps) {
    const StepBuffers b = buffers_of(s);
    count += static_cast<int>(std::count(b.reads.begin(), b.reads.end(), buffer));
  }
  return count;
}

Plan schedule(Graph graph, const ScheduleOptions& options) {
  return Scheduler(std::move(graph), options).run();
}

}  // namespace coreai::compiler
