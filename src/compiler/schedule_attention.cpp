// Steps of an attention: tables of angles, heads, masks, the attention itself.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/scheduler.h"
#include "compiler/shapes.h"
#include "compiler/views.h"
#include "coreai/base/error.h"

namespace coreai::compiler {

int Scheduler::rope_table(ValueId positions, const RopeParams& rope, Expr rows) {
  View at = view(positions);
  if (!is_contiguous(g_.exprs, at)) at = contiguous_copy(at, g_.value(positions).dtype);
  for (const RopeTable& t : tables_) {
    if (t.buffer == at.buffer && t.offset == at.offset && t.frequencies == rope.inverse_frequencies) return t.table;
  }
  RopeTableStep step;
  step.positions = at.buffer;
  step.position_offset = at.offset;
  step.positions_dtype = buffer_dtype(at.buffer);
  step.inverse_frequencies = rope.inverse_frequencies;
  const auto pairs = static_cast<std::int64_t>(rope.inverse_frequencies.size());
  step.table = new_buffer(Buffer::Kind::kArena, DType::kF32, g_.exprs.mul(rows, g_.exprs.constant(2 * pairs)));
  tables_.push_back({at.buffer, at.offset, rope.inverse_frequencies, step.table});
  add_step(step, "rope_table", rows);
  return tables_.back().table;
}

Scheduler::HeadRows Scheduler::head_rows(View at, std::int64_t first_head, std::int64_t head_dim, std::int64_t heads) {
  ExprPool& x = g_.exprs;
  const auto fits = [&](const View& w) {
    return w.extents.size() == 4 && x.is_constant(w.strides[3], 1) && x.as_constant(w.strides[2]) &&
           (x.is_constant(w.extents[1], 1) || x.is_constant(w.strides[1], head_dim)) &&
           buffer_dtype(w.buffer) == DType::kF32;
  };
  if (!fits(at)) {
    View rows_first{at.buffer,
                    at.offset,
                    {at.extents[0], at.extents[2], at.extents[1], at.extents[3]},
                    {at.strides[0], at.strides[2], at.strides[1], at.strides[3]}};
    const View copy = contiguous_copy(rows_first, DType::kF32);
    at = {copy.buffer, copy.offset, at.extents, {copy.strides[0], copy.strides[2], copy.strides[1], copy.strides[3]}};
  }
  return {
      {at.buffer, x.add(at.offset, x.constant(first_head * head_dim)), *x.as_constant(at.strides[2]), heads * head_dim},
      at.strides[0]};
}

void Scheduler::emit_heads(const Node& node) {
  const auto& p = std::get<HeadsParams>(node.params);
  HeadsStep step;
  const Expr rows = g_.value(node.inputs[p.tasks[0].input]).shape[2];
  for (std::size_t i = 0; i < p.tasks.size(); ++i) {
    const auto& t = p.tasks[i];
    HeadTask task;
    task.heads = t.heads;
    task.head_dim = t.head_dim;
    task.norm_scale = t.norm_scale;
    task.eps = t.eps;
    task.interleaved = t.rope.interleaved;
    if (t.positions) {
      task.rope_table = rope_table(node.inputs[*t.positions], t.rope, rows);
      task.rope_dims = 2 * static_cast<std::int64_t>(t.rope.inverse_frequencies.size());
    }
    task.in = head_rows(view(node.inputs[t.input]), t.first_head, t.head_dim, t.heads).rows;
    task.state = t.state;
    task.layer = t.layer;
    task.position = t.position;
    if (t.state < 0) task.out = head_buffer(node.outputs[i], t.heads, t.head_dim, rows);
    step.tasks.push_back(std::move(task));
  }
  add_step(std::move(step), "heads", rows);
}

Rows Scheduler::head_buffer(ValueId v, std::int64_t heads, std::int64_t head_dim, Expr rows) {
  ExprPool& x = g_.exprs;
  const std::int64_t width = heads * head_dim;
  const int buffer = new_buffer(Buffer::Kind::kArena, DType::kF32, x.mul(rows, x.constant(width)));
  View at{buffer, x.constant(0), g_.value(v).shape, {}};
  at.strides.assign(at.extents.size(), x.constant(0));
  const std::size_t rank = at.extents.size();
  at.strides[rank - 1] = x.constant(1);
  at.strides[rank - 2] = x.constant(width);
  Expr stride = x.constant(head_dim);
  for (std::size_t i = rank - 2; i-- > 0;) {
    at.strides[i] = stride;
    stride = x.mul(stride, at.extents[i]);
  }
  views_[static_cast<std::size_t>(v)] = at;
  return {buffer, x.constant(0), width, width};
}

std::vector<float> Scheduler::sinks_of(const Node& node, std::int64_t heads) const {
  const auto& p = std::get<AttentionParams>(node.params);
  if (p.sinks < 0) return {};
  auto sinks = float_elements(g_, node.inputs[static_cast<std::size_t>(p.sinks)]);
  if (!sinks || static_cast<std::int64_t>(sinks->size()) != heads)
    throw NotPlannable{"sinks that are no constant of a value per head", node.composite_symbol};
  return *sinks;
}

std::optional<Scheduler::BatchedMask> Scheduler::score_mask(const Node& node, Expr batch, Expr heads, Expr rows,
                                                            Expr keys) {
  const auto& p = std::get<AttentionParams>(node.params);
  if (p.mask < 0) return std::nullopt;
  ExprPool& x = g_.exprs;
  View at = view(node.inputs[static_cast<std::size_t>(p.mask)]);
  const Expr one = x.constant(1);
  while (at.extents.size() < 4) {
    at.extents.insert(at.extents.begin(), one);
    at.strides.insert(at.strides.begin(), x.constant(0));
  }
  if (at.extents.size() != 4) throw NotPlannable{"a mask of more than four axes", node.composite_symbol};
  const Expr wanted[] = {batch, heads, rows, keys};
  Expr spread[4];  // 0 where the mask has one element for all of an axis, else 1: known when a call is
  for (std::size_t i = 0; i < 4; ++i) {
    spread[i] = x.constant(at.extents[i] == one ? 0 : 1);
    if (at.extents[i] == one || at.extents[i] == wanted[i]) continue;
    if (x.as_constant(at.extents[i]) && x.as_constant(wanted[i]))
      throw NotPlannable{"a mask that does not broadcast to the scores", node.composite_symbol};
    spread[i] = x.min(x.sub(at.extents[i], one), one);
    const Expr short_of = x.mul(spread[i], x.sub(wanted[i], at.extents[i]));
    require_equal(g_, short_of, x.constant(0), "a mask that broadcasts to the scores");
  }
  at.extents[3] = keys;
  at.strides[3] = x.mul(at.strides[3], spread[3]);
  // What the caller gives may be gone before a late thread has read it.
  const bool given = plan_.buffers[static_cast<std::size_t>(at.buffer)].kind == Buffer::Kind::kInput;
  if (given || buffer_dtype(at.buffer) != DType::kF32 || at.strides[3] != one) at = mask_copy(at);
  for (std::size_t i = 0; i < 3; ++i) at.strides[i] = x.mul(at.strides[i], spread[i]);
  return BatchedMask{{at.buffer, at.offset, at.strides[2], at.strides[1]}, at.strides[0]};
}

View Scheduler::mask_copy(const View& at) {
  for (const auto& [from, copy] : mask_copies_) {
    if (from == at) return copy;
  }
  mask_copies_.emplace_back(at, contiguous_copy(at, DType::kF32));
  return mask_copies_.back().second;
}

void Scheduler::emit_plain_attention(const Node& node) {
  const auto& p = std::get<AttentionParams>(node.params);
  ExprPool& x = g_.exprs;
  const auto &q = g_.value(node.inputs[0]).shape, &k = g_.value(node.inputs[1]).shape,
             &v = g_.value(node.inputs[2]).shape;
  const auto refuse = [&](const char* reason) { throw NotPlannable{reason, node.composite_symbol}; };
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) refuse("an attention of another form");
  const auto heads = x.as_constant(q[1]), kv_heads = x.as_constant(k[1]), head_dim = x.as_constant(q[3]),
             value_dim = x.as_constant(v[3]);
  const bool known = heads && kv_heads && head_dim && value_dim && *kv_heads >= 1 && *heads % *kv_heads == 0 &&
                     *head_dim >= 1 && *head_dim <= kMaxPlainHeadDim && *value_dim >= 1 &&
                     *value_dim <= kMaxPlainHeadDim && v[1] == k[1] && k[3] == q[3];
  // As many keys as values: a product of the program says so too.
  if (!known || !require_equal(g_, k[2], v[2], "as many values as keys") ||
      !require_equal(g_, k[0], q[0], "one batch of queries and keys") ||
      !require_equal(g_, v[0], q[0], "one batch of queries and values"))
    refuse("an attention whose extents do not fit or are not known");
  const bool one_batch = x.is_constant(q[0], 1);
  const auto mask = score_mask(node, q[0], q[1], q[2], k[2]);
  const std::int64_t width = *heads * *value_dim;
  const Expr each = x.mul(q[2], x.constant(width));
  View out = contiguous_view(x, new_buffer(Buffer::Kind::kArena, DType::kF32, x.mul(q[0], each)),
                             g_.value(node.outputs[0]).shape);
  // Rows hold their heads side by side; axes before the last two are batch and heads, or heads of one batch.
  if (out.extents.size() != 4 && !one_batch) refuse("an attention over several batches in another form");
  const std::size_t rank = out.extents.size();
  out.strides[rank - 2] = x.constant(width);
  Expr stride = x.constant(*value_dim);
  for (std::size_t i = rank - 2; i-- > 0; stride = x.mul(stride, out.extents[i])) out.strides[i] = stride;
  if (!one_batch) out.strides[0] = each;
  const HeadRows query = head_rows(view(node.inputs[0]), 0, *head_dim, *heads),
                 key = head_rows(view(node.inputs[1]), 0, *head_dim, *kv_heads),
                 value = head_rows(view(node.inputs[2]), 0, *value_dim, *kv_heads);
  AttentionStep step;
  step.heads = *heads, step.kv_heads = *kv_heads, step.head_dim = *head_dim, step.value_dim = *value_dim;
  step.query = query.rows, step.keys = key.rows, step.values = value.rows;
  step.length = k[2];
  step.scale = p.scale, step.causal = p.causal, step.window = p.window;
  step.sinks = sinks_of(node, *heads);
  if (mask) step.mask = mask->first;
  step.out = {out.buffer, x.constant(0), width, width};
  if (!one_batch) {
    step.batches = AttentionBatches{
        q[0], query.batch_stride, key.batch_stride, value.batch_stride, mask ? mask->batch_stride : x.constant(0),
        each};
  }
  add_step(std::move(step), "attention", x.mul(q[0], q[2]));
  views_[static_cast<std::size_t>(node.outputs[0])] = out;
}

void Scheduler::emit_attention(const Node& node) {
  const auto& p = std::get<AttentionParams>(node.params);
  if (!p.of_states) return emit_plain_attention(node);
  AttentionStep step;
  const auto key = trace_state(g_, node.inputs[1]), value = trace_state(g_, node.inputs[2]);
  const auto refuse = [&](const char* why) { throw NotPlannable{why, node.composite_symbol}; };
  if (!key || !value) throw NotPlannable{"an attention that reads no states", node.composite_symbol};
  check_cache_slice(node, *key);
  check_cache_slice(node, *value);
  step.key_state = key->state;
  step.value_state = value->state;
  keys_.insert(key->state);
  values_.insert(value->state);
  step.layer = *g_.exprs.as_constant(key->start[0]);
  step.value_layer = *g_.exprs.as_constant(value->start[0]);
  if (step.layer != step.value_layer) refuse("keys and values of different layers");
  for (std::size_t axis : {2, 3, 4}) {
    if (key->extent[axis] != value->extent[axis]) refuse("keys and values of different extents");
  }
  step.length = key->extent[3];
  step.kv_heads = *g_.exprs.as_constant(key->extent[2]);
  step.head_dim = step.value_dim = *g_.exprs.as_constant(key->extent[4]);
  const View q = view(node.inputs[0]);
  const Rows query = *as_head_rows(q);
  step.query = query;
  step.heads = query.width / step.head_dim;
  if (step.heads % step.kv_heads) refuse("query heads are no multiple of key heads");
  step.scale = p.scale;
  step.causal = p.causal;
  step.window = p.window;
  step.sinks = sinks_of(node, step.heads);
  const auto& shape = g_.value(node.outputs[0]).shape;
  const Expr rows = shape[shape.size() - 2];
  const auto mask = score_mask(node, g_.exprs.constant(1), g_.exprs.constant(step.heads), rows, step.length);
  if (mask) step.mask = mask->first;
  step.out = head_buffer(node.outputs[0], step.heads, step.head_dim, rows);
  add_step(std::move(step), "attention", rows);
}

std::optional<Rows> Scheduler::as_head_rows(const View& q) {
  const auto stride = g_.exprs.as_constant(q.strides[q.strides.size() - 2]);
  COREAI_INVARIANT(stride.has_value());
  return Rows{q.buffer, q.offset, *stride, *stride};
}

void Scheduler::check_cache_slice(const Node& node, const StateSlice& s) {
  ExprPool& x = g_.exprs;
  const auto& full = g_.value(g_.state_initial[static_cast<std::size_t>(s.state)]).shape;
  const bool fits = s.extent.size() == 5 && x.as_constant(s.start[0]) && x.is_constant(s.extent[0], 1) &&
                    x.is_constant(s.start[2], 0) && s.extent[2] == full[2] && x.as_constant(full[2]) &&
                    x.is_constant(s.start[3], 0) && x.is_constant(s.start[4], 0) && s.extent[4] == full[4] &&
                    x.as_constant(full[4]);
  if (!fits) throw NotPlannable{"keys or values are a part of a state that no kernel reads", node.composite_symbol};
}

}  // namespace coreai::compiler
