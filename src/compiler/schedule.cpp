#include "compiler/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/passes.h"
#include "compiler/shapes.h"
#include "compiler/views.h"
#include "coreai/base/error.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

constexpr std::size_t kMaxCopyRank = 16;

bool is_same_array(const std::optional<NDArray>& a, const std::optional<NDArray>& b) {
  if (!a || !b) return !a && !b;
  return a->dtype() == b->dtype() && a->shape() == b->shape() && std::ranges::equal(a->bytes(), b->bytes());
}

// Large data is one array or two, not compared; the little beside it may have been made twice.
bool is_same_weight(const WeightSource& a, const WeightSource& b) {
  return a.data.bytes().data() == b.data.bytes().data() && a.data.dtype() == b.data.dtype() &&
         a.data.shape() == b.data.shape() && a.transposed == b.transposed && a.first_row == b.first_row &&
         a.rows == b.rows && a.columns == b.columns && is_same_array(a.scale, b.scale) &&
         is_same_array(a.zero, b.zero) && is_same_array(a.offset, b.offset) && is_same_array(a.table, b.table);
}

class Scheduler {
 public:
  Scheduler(Graph graph, const ScheduleOptions& options) : g_(std::move(graph)), options_(options) {}

  Plan run() {
    check_states();
    views_.resize(g_.values.size());
    for (std::size_t i = 0; i < g_.inputs.size(); ++i) {
      const ValueId v = g_.inputs[i];
      views_[static_cast<std::size_t>(v)] = contiguous_view(
          g_.exprs, new_buffer(Buffer::Kind::kInput, g_.value(v).dtype, elements(v), i), g_.value(v).shape);
    }
    if (g_.plain_states) place_states();
    for (const NodeId id : g_.order()) emit(g_.node(id));
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

 private:
  // ---- states ----

  [[noreturn]] static void refuse_states(const char* reason) {
    throw NotPlannable{reason, {}, NotPlannable::Remedy::kPlainStates};
  }

  // A content must not be read after the store that replaces it, and the last content must be what the state keeps.
  void check_states() {
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

  Expr elements(ValueId v) {
    Expr n = g_.exprs.constant(1);
    for (Expr e : g_.value(v).shape) n = g_.exprs.mul(n, e);
    return n;
  }

  int new_buffer(Buffer::Kind kind, DType dtype, Expr count, std::size_t index = 0) {
    plan_.buffers.push_back({kind, dtype, index, count, -1});
    return static_cast<int>(plan_.buffers.size() - 1);
  }

  DType buffer_dtype(int buffer) const { return plan_.buffers[static_cast<std::size_t>(buffer)].dtype; }

  std::optional<View> find_view(ValueId v) {
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

  View view(ValueId v) {
    if (const auto found = find_view(v)) return *found;
    if (g_.value(v).constant || g_.value(v).host) return constant_buffer(v);
    throw NotPlannable{fmt::format("value %{} is used before it is made", v)};
  }

  View constant_buffer(ValueId v) {
    const Value& value = g_.value(v);
    if (!value.constant || is_subbyte(value.dtype)) {
      throw NotPlannable{fmt::format("a constant of {} is an operand without a kernel", dtype_name(value.dtype))};
    }
    const int buffer = new_buffer(Buffer::Kind::kConstant, value.dtype, elements(v));
    plan_.buffers.back().constant = value.constant;
    views_[static_cast<std::size_t>(v)] = contiguous_view(g_.exprs, buffer, value.shape);
    return *views_[static_cast<std::size_t>(v)];
  }

  View contiguous_copy(const View& from, DType dtype) {
    if (from.extents.size() > kMaxCopyRank) throw NotPlannable{"a copy of a rank above 16"};
    Expr n = g_.exprs.constant(1);
    for (Expr e : from.extents) n = g_.exprs.mul(n, e);
    const View to = contiguous_view(g_.exprs, new_buffer(Buffer::Kind::kArena, dtype, n), from.extents);
    add_step(CopyStep{from, to}, "copy", n);
    return to;
  }

  // The value as rows of its last axis, in f32.
  Rows rows_of(ValueId v) {
    View view = this->view(v);
    auto rows = buffer_dtype(view.buffer) == DType::kF32 ? as_rows(view) : std::nullopt;
    if (!rows) rows = as_rows(contiguous_copy(view, DType::kF32));
    COREAI_INVARIANT(rows.has_value());
    return *rows;
  }

  std::optional<Rows> as_rows(const View& view) {
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

  Expr row_count(ValueId v) {
    Expr n = g_.exprs.constant(1);
    const auto& shape = g_.value(v).shape;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) n = g_.exprs.mul(n, shape[i]);
    return n;
  }

  // A fresh f32 buffer for a value, row-major; its rows.
  Rows new_rows(ValueId v) {
    const int buffer = new_buffer(Buffer::Kind::kArena, DType::kF32, elements(v));
    views_[static_cast<std::size_t>(v)] = contiguous_view(g_.exprs, buffer, g_.value(v).shape);
    const auto width = g_.exprs.as_constant(g_.value(v).shape.back());
    COREAI_INVARIANT(width.has_value());
    return {buffer, g_.exprs.constant(0), *width, *width};
  }

  void add_step(StepBody body, std::string name, Expr rows) {
    plan_.steps.push_back({std::move(body), std::move(name), rows, false});
  }

  // Layers share a packed matrix only when every part of it is the same.
  int add_weight(std::vector<WeightSource> sources, bool gated, bool stacked = false) {
    for (std::size_t i = 0; i < plan_.weights.size(); ++i) {
      const bool fits = plan_.weight_gated[i] == gated && plan_.weight_stacked[i] == stacked;
      if (fits && std::ranges::equal(plan_.weights[i], sources, is_same_weight)) return static_cast<int>(i);
    }
    plan_.weights.push_back(std::move(sources));
    plan_.weight_gated.push_back(gated);
    plan_.weight_stacked.push_back(stacked);
    return static_cast<int>(plan_.weights.size() - 1);
  }

  // ---- nodes ----

  void emit(const Node& node) {
    switch (node.kind) {
      case NodeKind::kEmbedding:
        return emit_embedding(node);
      case NodeKind::kRmsNorm:
        return emit_norm(node);
      case NodeKind::kLayerNorm:
        return emit_layer_norm(node);
      case NodeKind::kLinear:
        return emit_linear(node);
      case NodeKind::kExperts:
        return emit_experts(node);
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

  void emit_embedding(const Node& node) {
    const auto& p = std::get<EmbeddingParams>(node.params);
    View ids = view(node.inputs[0]);
    if (!is_contiguous(g_.exprs, ids)) ids = contiguous_copy(ids, g_.value(node.inputs[0]).dtype);
    EmbeddingStep step;
    step.ids = ids.buffer;
    step.ids_offset = ids.offset;
    step.ids_dtype = buffer_dtype(ids.buffer);
    step.weight = add_weight({p.weight}, false);
    step.scale = p.scale;
    step.out = new_rows(node.outputs[0]);
    add_step(step, "embedding", row_count(node.outputs[0]));
  }

  void emit_norm(const Node& node) {
    const auto& p = std::get<NormParams>(node.params);
    NormStep step;
    step.eps = p.eps;
    const auto scale = float_elements(g_, node.inputs[1]);
    const auto width = g_.exprs.as_constant(g_.value(node.inputs[0]).shape.back());
    if (!scale || !width || static_cast<std::int64_t>(scale->size()) != *width) {
      throw NotPlannable{"a norm whose scale is no vector of the last axis", node.composite_symbol};
    }
    step.scale = *scale;
    step.in = rows_of(node.inputs[0]);
    if (p.add_residual) step.residual = rows_of(node.inputs[2]);
    step.out = new_rows(node.outputs[0]);
    add_step(step, "rms_norm", row_count(node.outputs[0]));
  }

  void emit_layer_norm(const Node& node) {
    const auto& p = std::get<LayerNormParams>(node.params);
    const auto& shape = g_.value(node.inputs[0]).shape;
    const auto scale = float_elements(g_, node.inputs[1]), bias = float_elements(g_, node.inputs[2]);
    std::optional<std::int64_t> width = g_.exprs.as_constant(shape.back());
    LayerNormStep step;
    step.eps = p.eps;
    Expr rows = row_count(node.inputs[0]);
    if (p.groups > 0) {
      Expr spread = g_.exprs.constant(1);
      for (std::size_t i = 2; i < shape.size(); ++i) spread = g_.exprs.mul(spread, shape[i]);
      width = g_.exprs.as_constant(g_.exprs.mul(spread, shape[1]));  // of all groups
      step.spread = g_.exprs.as_constant(spread).value_or(0);
      step.period = p.groups;
      rows = g_.exprs.mul(shape[0], g_.exprs.constant(p.groups));
    }
    const std::int64_t weights = width && step.spread > 0 ? *width / step.spread : -1;
    if (!scale || !bias || std::ssize(*scale) != weights || std::ssize(*bias) != weights) {
      throw NotPlannable{"a norm whose extents are not known or whose scales are no vector", node.composite_symbol};
    }
    step.scale = *scale;
    step.bias = *bias;
    if (p.groups == 0) {
      step.in = rows_of(node.inputs[0]), step.out = new_rows(node.outputs[0]);
    } else {
      View from = view(node.inputs[0]);
      if (buffer_dtype(from.buffer) != DType::kF32 || !is_contiguous(g_.exprs, from))
        from = contiguous_copy(from, DType::kF32);
      const int buffer = new_buffer(Buffer::Kind::kArena, DType::kF32, elements(node.inputs[0]));
      views_[static_cast<std::size_t>(node.outputs[0])] = contiguous_view(g_.exprs, buffer, shape);
      const std::int64_t group = *width / p.groups;
      step.in = {from.buffer, from.offset, group, group};
      step.out = {buffer, g_.exprs.constant(0), group, group};
    }
    add_step(step, p.groups ? "group_norm" : "layer_norm", rows);
  }

  void emit_linear(const Node& node) {
    const auto& p = std::get<LinearParams>(node.params);
    LinearStep step;
    step.in = rows_of(node.inputs[0]);
    step.activation = p.activation;
    step.gated = p.gated;
    if (p.add_residual) step.residual = rows_of(node.inputs[1]);
    step.weight = add_weight(p.weights, p.gated);
    bool any_bias = false;
    for (const auto& b : p.biases) any_bias = any_bias || b.has_value();
    std::int64_t total = 0;
    for (std::size_t i = 0; i < p.weights.size(); ++i) {
      total += p.weights[i].rows;
      if (!any_bias) continue;
      std::vector<double> bias(static_cast<std::size_t>(p.weights[i].rows), 0.0);
      if (p.biases[i]) read_as_f64(*p.biases[i], bias);
      step.bias.insert(step.bias.end(), bias.begin(), bias.end());
    }
    if (p.gated) total /= 2;
    const Expr rows = row_count(node.inputs[0]);
    const int buffer = new_buffer(Buffer::Kind::kArena, DType::kF32, g_.exprs.mul(rows, g_.exprs.constant(total)));
    step.out = {buffer, g_.exprs.constant(0), total, total};
    std::int64_t column = 0;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      // Results are columns of one buffer.
      View v = contiguous_view(g_.exprs, buffer, g_.value(node.outputs[i]).shape);
      v.offset = g_.exprs.constant(column);
      Expr stride = g_.exprs.constant(total);
      for (std::size_t d = v.extents.size() - 1; d-- > 0;) {
        v.strides[d] = stride;
        stride = g_.exprs.mul(stride, v.extents[d]);
      }
      views_[static_cast<std::size_t>(node.outputs[i])] = v;
      column += p.weights[i].rows;
    }
    add_step(step, p.gated ? "linear gated" : "linear", rows);
  }

  void emit_experts(const Node& node) {
    const auto& p = std::get<ExpertsParams>(node.params);
    if (p.weights.empty()) throw NotPlannable{"experts whose matrices are no packable constant", node.composite_symbol};
    const DType type = g_.value(node.inputs[1]).dtype;
    if (type != DType::kSI32 && type != DType::kUI16 && type != DType::kSI16 && type != DType::kUI8 &&
        type != DType::kSI8) {
      throw NotPlannable{fmt::format("experts named by {}", dtype_name(type)), node.composite_symbol};
    }
    ExpertStep step;
    step.in = rows_of(node.inputs[0]);
    step.choices = p.choices;
    View at = view(node.inputs[1]);
    if (!is_contiguous(g_.exprs, at)) at = contiguous_copy(at, type);
    step.indices = at.buffer;
    step.indices_offset = at.offset;
    step.indices_dtype = buffer_dtype(at.buffer);
    step.weight = add_weight(p.weights, p.gated, true);
    step.experts = p.experts;
    step.activation = p.activation;
    step.gated = p.gated;
    step.out = new_rows(node.outputs[0]);
    add_step(step, p.gated ? "experts gated" : "experts", row_count(node.outputs[0]));
  }

  int rope_table(ValueId positions, const RopeParams& rope, Expr rows) {
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

  // Heads of a projection as rows: [1, h, q, d] whose heads follow each other within a row.
  Rows head_rows(View at, std::int64_t first_head, std::int64_t head_dim, std::int64_t heads) {
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
    return {at.buffer, x.add(at.offset, x.constant(first_head * head_dim)), *x.as_constant(at.strides[2]),
            heads * head_dim};
  }

  void emit_heads(const Node& node) {
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
      task.in = head_rows(view(node.inputs[t.input]), t.first_head, t.head_dim, t.heads);
      task.state = t.state;
      task.layer = t.layer;
      task.position = t.position;
      if (t.state < 0) task.out = head_buffer(node.outputs[i], t.heads, t.head_dim, rows);
      step.tasks.push_back(std::move(task));
    }
    add_step(std::move(step), "heads", rows);
  }

  // A buffer [q][h][d] for a value of any shape over (h, q, d).
  Rows head_buffer(ValueId v, std::int64_t heads, std::int64_t head_dim, Expr rows) {
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

  std::vector<float> sinks_of(const Node& node, std::int64_t heads) const {
    const auto& p = std::get<AttentionParams>(node.params);
    if (p.sinks < 0) return {};
    auto sinks = float_elements(g_, node.inputs[static_cast<std::size_t>(p.sinks)]);
    if (!sinks || static_cast<std::int64_t>(sinks->size()) != heads)
      throw NotPlannable{"sinks that are no constant of a value per head", node.composite_symbol};
    return *sinks;
  }

  struct BatchedMask {
    ScoreMask first;  // of batch 0
    Expr batch_stride = 0;
  };

  // The mask of an attention as f32 rows without gaps.
  std::optional<BatchedMask> score_mask(const Node& node, Expr batch, Expr heads, Expr rows, Expr keys) {
    const auto& p = std::get<AttentionParams>(node.params);
    if (p.mask < 0) return std::nullopt;
    ExprPool& x = g_.exprs;
    View at = view(node.inputs[static_cast<std::size_t>(p.mask)]);
    const Expr one = x.constant(1);
    while (at.extents.size() < 4) {
      at.extents.insert(at.extents.begin(), one);
      at.strides.insert(at.strides.begin(), x.constant(0));
    }
    const Expr wanted[] = {batch, heads, rows, keys};
    for (std::size_t i = 0; i < 4; ++i) {
      if (at.extents[i] == wanted[i]) continue;
      if (at.extents.size() != 4 || at.extents[i] != one)
        throw NotPlannable{"a mask that does not broadcast to the scores", node.composite_symbol};
      at.strides[i] = x.constant(0);
      if (i == 3) at.extents[i] = keys;
    }
    // What the caller gives may be gone before a late thread has read it.
    const bool given = plan_.buffers[static_cast<std::size_t>(at.buffer)].kind == Buffer::Kind::kInput;
    if (given || buffer_dtype(at.buffer) != DType::kF32 || at.strides[3] != one) at = mask_copy(at);
    for (std::size_t i = 0; i < 3; ++i) {
      if (at.extents[i] == one) at.strides[i] = x.constant(0);
    }
    return BatchedMask{{at.buffer, at.offset, at.strides[2], at.strides[1]}, at.strides[0]};
  }

  // Layers share it.
  View mask_copy(const View& at) {
    for (const auto& [from, copy] : mask_copies_) {
      if (from == at) return copy;
    }
    mask_copies_.emplace_back(at, contiguous_copy(at, DType::kF32));
    return mask_copies_.back().second;
  }

  // Attention over plain values, one step per batch.
  void emit_plain_attention(const Node& node) {
    const auto& p = std::get<AttentionParams>(node.params);
    ExprPool& x = g_.exprs;
    const auto &q = g_.value(node.inputs[0]).shape, &k = g_.value(node.inputs[1]).shape,
               &v = g_.value(node.inputs[2]).shape;
    const auto refuse = [&](const char* reason) { throw NotPlannable{reason, node.composite_symbol}; };
    if (q.size() != 4 || k.size() != 4 || v.size() != 4) refuse("an attention of another form");
    const auto batch = x.as_constant(q[0]), heads = x.as_constant(q[1]), kv_heads = x.as_constant(k[1]),
               head_dim = x.as_constant(q[3]), value_dim = x.as_constant(v[3]);
    const bool fits = batch && heads && kv_heads && head_dim && value_dim && *batch >= 1 && *batch <= kMaxPlainBatch &&
                      *kv_heads >= 1 && *heads % *kv_heads == 0 && *head_dim >= 1 && *head_dim <= kMaxPlainHeadDim &&
                      *value_dim >= 1 && *value_dim <= kMaxPlainHeadDim;
    if (!fits || k[0] != q[0] || v[0] != q[0] || v[1] != k[1] || k[3] != q[3] || v[2] != k[2])
      refuse("an attention whose extents do not fit or are not known");
    const auto mask = score_mask(node, q[0], q[1], q[2], k[2]);
    const Expr width = x.constant(*heads * *value_dim), each = x.mul(q[2], width);
    View out = contiguous_view(x, new_buffer(Buffer::Kind::kArena, DType::kF32, x.mul(q[0], each)),
                               g_.value(node.outputs[0]).shape);
    // Rows hold their heads side by side; axes before the last two are batch and heads, or heads of one batch.
    if (out.extents.size() != 4 && *batch != 1) refuse("an attention over several batches in another form");
    const std::size_t rank = out.extents.size();
    out.strides[rank - 2] = width;
    Expr stride = x.constant(*value_dim);
    for (std::size_t i = rank - 2; i-- > 0; stride = x.mul(stride, out.extents[i])) out.strides[i] = stride;
    if (rank == 4 && *batch != 1) out.strides[0] = each;
    const View whole_q = view(node.inputs[0]), whole_k = view(node.inputs[1]), whole_v = view(node.inputs[2]);
    const auto part = [&](View of, std::int64_t b) {
      of.offset = x.add(of.offset, x.mul(of.strides[0], x.constant(b)));
      of.extents[0] = x.constant(1);
      return of;
    };
    for (std::int64_t b = 0; b < *batch; ++b) {
      AttentionStep step;
      step.heads = *heads, step.kv_heads = *kv_heads, step.head_dim = *head_dim, step.value_dim = *value_dim;
      step.query = head_rows(part(whole_q, b), 0, *head_dim, *heads);
      step.keys = head_rows(part(whole_k, b), 0, *head_dim, *kv_heads);
      step.values = head_rows(part(whole_v, b), 0, *value_dim, *kv_heads);
      step.length = k[2];
      step.scale = p.scale, step.causal = p.causal, step.window = p.window;
      step.sinks = sinks_of(node, *heads);
      if (mask) {
        step.mask = mask->first;
        step.mask->offset = x.add(mask->first.offset, x.mul(mask->batch_stride, x.constant(b)));
      }
      step.out = {out.buffer, x.mul(each, x.constant(b)), *heads * *value_dim, *heads * *value_dim};
      add_step(std::move(step), "attention", q[2]);
    }
    views_[static_cast<std::size_t>(node.outputs[0])] = out;
  }

  void emit_attention(const Node& node) {
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

  // The query is a buffer made by head_buffer.
  std::optional<Rows> as_head_rows(const View& q) {
    const auto stride = g_.exprs.as_constant(q.strides[q.strides.size() - 2]);
    COREAI_INVARIANT(stride.has_value());
    return Rows{q.buffer, q.offset, *stride, *stride};
  }

  void check_cache_slice(const Node& node, const StateSlice& s) {
    ExprPool& x = g_.exprs;
    const auto& full = g_.value(g_.state_initial[static_cast<std::size_t>(s.state)]).shape;
    const bool fits = s.extent.size() == 5 && x.as_constant(s.start[0]) && x.is_constant(s.extent[0], 1) &&
                      x.is_constant(s.start[2], 0) && s.extent[2] == full[2] && x.as_constant(full[2]) &&
                      x.is_constant(s.start[3], 0) && x.is_constant(s.start[4], 0) && s.extent[4] == full[4] &&
                      x.as_constant(full[4]);
    if (!fits) throw NotPlannable{"keys or values are a part of a state that no kernel reads", node.composite_symbol};
  }

  // ---- chains of element-wise operations ----

  void emit_elementwise(const Node& node) {
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

  ElementwiseOperand elementwise_operand(ValueId v, const std::vector<Expr>& extents) {
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

  void place_states() {
    for (std::size_t i = 0; i < g_.state_initial.size(); ++i) {
      const ValueId v = g_.state_initial[i];
      if (is_subbyte(g_.value(v).dtype)) throw NotPlannable{"a state of packed elements"};
      const int buffer = new_buffer(Buffer::Kind::kState, g_.value(v).dtype, elements(v), i);
      views_[static_cast<std::size_t>(v)] = contiguous_view(g_.exprs, buffer, g_.value(v).shape);
    }
  }

  // In place: the new content is the old one's memory.
  void emit_store(const Node& node) {
    const auto& p = std::get<StoreParams>(node.params);
    const View whole = view(node.inputs[0]), update = view(node.inputs[1]);
    View part = whole;
    for (std::size_t i = 0; i < part.extents.size(); ++i) {
      part.offset = g_.exprs.add(part.offset, g_.exprs.mul(p.start[i], part.strides[i]));
      part.extents[i] = p.extent[i];
    }
    if (part.extents.size() > kMaxCopyRank) throw NotPlannable{"a state of a rank above 16"};
    views_[static_cast<std::size_t>(node.outputs[0])] = whole;
    add_step(CopyStep{update, part}, "store", elements(node.inputs[1]));
  }

  // States that end with a value of their own, after everything that reads the old content.
  void write_whole_states() {
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

  void emit_op(const Node& node) {
    if (is_movement(node) || node.code == OpCode::kCast) {
      // Readers look at the state itself.
      if (!g_.plain_states && !node.inputs.empty() && trace_state(g_, node.inputs[0])) return;
      bool all_views = options_.views || !node.source;
      for (ValueId v : node.outputs) all_views = all_views && find_view(v).has_value();
      if (all_views) return;
    }
    if (g_.value(node.outputs[0]).constant) return;
    COREAI_INVARIANT(node.source != nullptr);
    GenericStep step;
    step.op = node.source;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      step.inputs.push_back(generic_operand(node.inputs[i], node.source->operand_type(i)->dtype()));
    Expr count = g_.exprs.constant(0);
    for (ValueId v : node.outputs) {
      GenericOperand out;
      out.dtype = g_.value(v).dtype;
      out.shape = g_.value(v).shape;
      count = g_.exprs.add(count, elements(v));
      out.buffer = new_buffer(Buffer::Kind::kArena, out.dtype, elements(v));
      views_[static_cast<std::size_t>(v)] = contiguous_view(g_.exprs, out.buffer, out.shape);
      step.outputs.push_back(std::move(out));
    }
    add_step(std::move(step), fmt::format("op {}", ir::op_info(node.code).text_name), count);
  }

  GenericOperand generic_operand(ValueId v, DType declared) {
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

  // ---- outputs ----

  void emit_outputs() {
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

  Expr row_count_or_one(ValueId v) { return g_.value(v).shape.empty() ? g_.exprs.constant(1) : row_count(v); }

  int read_by_steps(int buffer) const {
    int count = 0;
    for (const Step& s : plan_.steps) {
      const StepBuffers b = buffers_of(s);
      count += static_cast<int>(std::count(b.reads.begin(), b.reads.end(), buffer));
    }
    return count;
  }

  struct RopeTable {
    int buffer;
    Expr offset;
    std::vector<float> frequencies;
    int table;
  };

  Graph g_;
  ScheduleOptions options_;
  Plan plan_;
  std::vector<std::optional<View>> views_;
  std::vector<RopeTable> tables_;
  std::vector<std::pair<View, View>> mask_copies_;
  std::set<int> keys_, values_;
};

}  // namespace

Plan schedule(Graph graph, const ScheduleOptions& options) {
  return Scheduler(std::move(graph), options).run();
}

}  // namespace coreai::compiler
