// Steps on rows: embeddings, norms, linear layers, experts.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/scheduler.h"
#include "compiler/views.h"
#include "coreai/base/error.h"

namespace coreai::compiler {
namespace {

bool is_same_array(const std::optional<NDArray>& a, const std::optional<NDArray>& b) {
  if (!a || !b) return !a && !b;
  return a->dtype() == b->dtype() && a->shape() == b->shape() && std::ranges::equal(a->bytes(), b->bytes());
}

// Large data is one array or two, not compared; the little beside it may have been made twice.
bool is_same_weight(const WeightSource& a, const WeightSource& b) {
  return a.data.bytes().data() == b.data.bytes().data() && a.data.dtype() == b.data.dtype() &&
         a.data.shape() == b.data.shape() && a.transposed == b.transposed && a.rounded == b.rounded &&
         a.first_row == b.first_row && a.rows == b.rows && a.columns == b.columns && is_same_array(a.scale, b.scale) &&
         is_same_array(a.zero, b.zero) && is_same_array(a.offset, b.offset) && is_same_array(a.table, b.table);
}
}  // namespace

int Scheduler::add_weight(std::vector<WeightSource> sources, bool gated, bool stacked) {
  for (std::size_t i = 0; i < plan_.weights.size(); ++i) {
    const bool fits = plan_.weight_gated[i] == gated && plan_.weight_stacked[i] == stacked;
    if (fits && std::ranges::equal(plan_.weights[i], sources, is_same_weight)) return static_cast<int>(i);
  }
  plan_.weights.push_back(std::move(sources));
  plan_.weight_gated.push_back(gated);
  plan_.weight_stacked.push_back(stacked);
  return static_cast<int>(plan_.weights.size() - 1);
}

void Scheduler::emit_embedding(const Node& node) {
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

void Scheduler::emit_norm(const Node& node) {
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

void Scheduler::emit_layer_norm(const Node& node) {
  const auto& p = std::get<LayerNormParams>(node.params);
  const auto& shape = g_.value(node.inputs[0]).shape;
  const auto scale = float_elements(g_, node.inputs[1]), bias = float_elements(g_, node.inputs[2]);
  std::optional<std::int64_t> width = g_.exprs.as_constant(shape.back());
  LayerNormStep step;
  step.eps = p.eps;
  Expr rows = row_count(node.inputs[0]);
  if (p.groups > 0) {
    const Expr spread = g_.exprs.product(std::span(shape).subspan(2));
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

void Scheduler::emit_rowwise(const Node& node) {
  const auto& p = std::get<RowwiseParams>(node.params);
  ExprPool& x = g_.exprs;
  // Rows lie behind the other axes.
  const View at = view(node.inputs[0]);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < at.extents.size(); ++i) {
    if (std::ranges::find(p.axes, static_cast<std::int64_t>(i)) == p.axes.end()) order.push_back(i);
  }
  const std::size_t outer = order.size();
  for (const std::int64_t axis : p.axes) order.push_back(static_cast<std::size_t>(axis));
  View turned = at;
  constexpr std::int64_t kMaxWidth = std::numeric_limits<std::int32_t>::max();  // elements; products stay in 64 bits
  std::int64_t width = 1;
  Expr rows = x.constant(1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    turned.extents[i] = at.extents[order[i]];
    turned.strides[i] = at.strides[order[i]];
    if (i < outer) rows = x.mul(rows, turned.extents[i]);
    if (i >= outer)
      width = std::min(width, kMaxWidth + 1) *
              std::clamp<std::int64_t>(x.as_constant(turned.extents[i]).value_or(0), 0, kMaxWidth);
  }
  if (width <= 0 || width > kMaxWidth)
    throw NotPlannable{"a function of empty or very long rows", node.composite_symbol};
  RowwiseStep step;
  step.kind = p.kind;
  const auto in = p.axes.size() == 1 && buffer_dtype(at.buffer) == DType::kF32 ? as_rows(turned) : std::nullopt;
  step.in = in ? *in : Rows{contiguous_copy(turned, DType::kF32).buffer, x.constant(0), width, width};
  const bool whole = p.kind == Rowwise::kLogSoftmax;
  step.out = {new_buffer(Buffer::Kind::kArena, DType::kF32, whole ? x.mul(rows, x.constant(width)) : rows),
              x.constant(0), whole ? width : 1, whole ? width : 1};
  View out = contiguous_view(x, step.out.buffer, whole ? turned.extents : g_.value(node.outputs[0]).shape);
  if (whole) {
    const View made = out;
    for (std::size_t i = 0; i < order.size(); ++i) {
      out.extents[order[i]] = made.extents[i];
      out.strides[order[i]] = made.strides[i];
    }
  }
  views_[static_cast<std::size_t>(node.outputs[0])] = out;
  add_step(step, whole ? "log_softmax" : "vector_norm", rows);
}

void Scheduler::emit_average_pool(const Node& node) {
  const auto& p = std::get<AveragePoolParams>(node.params);
  AveragePoolStep step{p.window, p.stride, p.padding, p.divisor, {}, {}};
  step.inputs = {generic_operand(node.inputs[0], g_.value(node.inputs[0]).dtype)};
  step.outputs = {generic_result(node.outputs[0])};
  add_step(std::move(step), "average_pool", elements(node.outputs[0]));
}

void Scheduler::emit_gather_rows(const Node& node) {
  GatherRowsStep step{std::get<GatherRowsParams>(node.params).scale, {}, {}};
  for (const ValueId v : node.inputs) step.inputs.push_back(generic_operand(v, g_.value(v).dtype));
  step.outputs = {generic_result(node.outputs[0])};
  add_step(std::move(step), "gather_rows", elements(node.inputs[1]));
}

void Scheduler::emit_linear(const Node& node) {
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

void Scheduler::emit_experts(const Node& node) {
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

}  // namespace coreai::compiler
