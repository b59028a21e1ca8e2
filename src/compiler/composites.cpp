#include "compiler/composites.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// [c, 1, ..] for values of that rank with channels on axis 1.
ValueId per_channel(Graph& g, const std::vector<double>& values, std::size_t rank) {
  std::vector<std::int64_t> dims(rank - 1, 1);
  dims[0] = std::ssize(values);
  NDArray array(DType::kF32, Shape(dims));
  write_from_f64(array, values);
  std::vector<Expr> shape;
  shape.reserve(dims.size());
  for (const std::int64_t d : dims) shape.push_back(g.exprs.constant(d));
  const ValueId v = g.new_value(DType::kF32, std::move(shape));
  g.value(v).constant = std::move(array);
  return v;
}

std::vector<double> wide(const NDArray& array) {
  std::vector<double> values(static_cast<std::size_t>(array.element_count()));
  read_as_f64(array, values);
  return values;
}

class Composites {
 public:
  Composites(Graph& g, const ir::CompositeDecl& decl, const std::string& symbol, const ir::Op& call,
             const std::vector<ValueId>& inputs)
      : g_(g), decl_(decl), symbol_(symbol), call_(call), inputs_(inputs) {}

  std::vector<ValueId> lower() {
    if (decl_.name == "rope_cached_cos_sin_gather") return gathered_angles();
    if (decl_.name == "fused_interleaved_embedding_gather_dequant_reshape") return gathered_embeddings();
    const std::optional<ValueId> result = lower_float();
    return result ? std::vector{*result} : std::vector<ValueId>{};
  }

 private:
  std::optional<ValueId> lower_float() {
    if (inputs_.empty() || !is_working_float(g_.value(inputs_[0]).dtype) || call_.results.size() != 1)
      return std::nullopt;
    dtype_ = call_.results[0]->type->dtype();
    if (dtype_ != g_.value(inputs_[0]).dtype) return std::nullopt;
    if (decl_.name == "pixel_shuffle") return pixel_shuffle();
    if (decl_.name == "batch_norm") return batch_norm();
    if (decl_.name == "log_softmax") return log_softmax();
    if (decl_.name == "linalg_vector_norm") return vector_norm();
    if (decl_.name == "avg_pool_2d") return average_pool(2);
    if (decl_.name == "avg_pool_3d") return average_pool(3);
    return std::nullopt;
  }

  std::vector<Expr> shape() const { return g_.value(inputs_[0]).shape; }

  bool declared(const std::vector<Expr>& result) { return require_declared(g_, call_.results[0]->type, result); }

  ValueId indices(const std::vector<std::int64_t>& values) {
    const ValueId v = g_.new_value(DType::kUI32, {g_.exprs.constant(std::ssize(values))});
    std::vector<Expr> elements;
    elements.reserve(values.size());
    for (const std::int64_t value : values) elements.push_back(g_.exprs.constant(value));
    g_.value(v).host = std::move(elements);
    return v;
  }

  // A movement that no operation of the file stands for.
  ValueId moved(OpCode code, std::vector<ValueId> inputs, std::vector<Expr> shape) {
    Node node;
    node.code = code;
    node.composite_symbol = symbol_;
    node.inputs = std::move(inputs);
    node.outputs = {g_.new_value(dtype_, std::move(shape))};
    const ValueId out = node.outputs[0];
    g_.append(std::move(node));
    return out;
  }

  // [.., c r r, h, w] to [.., c, h r, w r].
  std::optional<ValueId> pixel_shuffle() {
    const ir::AttrRef factor = decl_.attribute("upscale_factor");
    std::vector<Expr> s = shape();
    const std::size_t n = s.size();
    if (!factor || n < 3) return std::nullopt;
    const std::int64_t r = factor->as_int();
    const auto channels = g_.exprs.as_constant(s[n - 3]);
    if (r < 1 || r > 4096 || !channels || *channels % (r * r)) return std::nullopt;
    ExprPool& x = g_.exprs;
    const Expr rx = x.constant(r), c = x.constant(*channels / (r * r)), h = s[n - 2], w = s[n - 1];
    std::vector<Expr> split(s.begin(), s.end() - 3), turned = split, joined = split;
    split.insert(split.end(), {c, rx, rx, h, w});
    turned.insert(turned.end(), {c, h, rx, w, rx});
    joined.insert(joined.end(), {c, x.mul(h, rx), x.mul(w, rx)});
    if (!declared(joined)) return std::nullopt;
    std::vector<std::int64_t> order(n + 2);
    std::iota(order.begin(), order.end(), 0);
    const std::int64_t last = std::ssize(order);
    order[n - 2] = last - 2, order[n - 1] = last - 4, order[n] = last - 1, order[n + 1] = last - 3;
    const ValueId parts = moved(OpCode::kReshape, {inputs_[0]}, split);
    const ValueId by_place = moved(OpCode::kTranspose, {parts, indices(order)}, turned);
    return moved(OpCode::kReshape, {by_place}, joined);
  }

  // (x - mean) / sqrt(variance + eps) * gamma + beta, of [n, c, ..].
  std::optional<ValueId> batch_norm() {
    const ir::AttrRef eps = decl_.attribute("eps");
    const std::vector<Expr> s = shape();
    if (!eps || inputs_.size() != 5 || s.size() < 2 || s.size() > ElementwiseStep::kMaxRank) return std::nullopt;
    std::vector<std::vector<float>> parts;  // gamma, beta, mean, variance
    for (std::size_t i = 1; i < 5; ++i) {
      auto part = float_elements(g_, inputs_[i]);
      if (!part || part->empty() || !g_.exprs.is_constant(s[1], std::ssize(*part))) return std::nullopt;
      parts.push_back(std::move(*part));
    }
    if (!declared(s)) return std::nullopt;
    std::vector<double> scale, shift;
    for (std::size_t c = 0; c < parts[0].size(); ++c) {
      scale.push_back(parts[0][c] / std::sqrt(static_cast<double>(parts[3][c]) + eps->as_float()));
      shift.push_back(parts[1][c] - parts[2][c] * scale.back());
    }
    Node node;
    node.kind = NodeKind::kElementwise;
    node.composite_symbol = symbol_;
    node.inputs = {inputs_[0], per_channel(g_, scale, s.size()), per_channel(g_, shift, s.size())};
    node.outputs = {g_.new_value(dtype_, s)};
    node.params = ElementwiseParams{{{ScalarOp::kFma, 0, 1, 2}}};
    const ValueId out = node.outputs[0];
    g_.append(std::move(node));
    return out;
  }

  // A node that stands for the call, or for a part of it.
  ValueId made(NodeKind kind, decltype(Node::params) params, std::vector<ValueId> inputs, DType dtype,
               std::vector<Expr> shape) {
    Node node;
    node.kind = kind;
    node.source = &call_;
    node.code = call_.code;
    node.composite_symbol = symbol_;
    node.inputs = std::move(inputs);
    node.params = std::move(params);
    node.outputs = {g_.new_value(dtype, std::move(shape))};
    const ValueId out = node.outputs[0];
    g_.append(std::move(node));
    return out;
  }

  std::optional<ValueId> rowwise(Rowwise kind, std::vector<std::int64_t> axes, std::vector<Expr> out_shape) {
    const std::int64_t rank = std::ssize(shape());
    for (std::int64_t& axis : axes) {
      if (axis < -rank || axis >= rank) return std::nullopt;
      if (axis < 0) axis += rank;
      if (!g_.exprs.as_constant(shape()[static_cast<std::size_t>(axis)])) return std::nullopt;
    }
    std::ranges::sort(axes);
    if (axes.empty() || std::ranges::adjacent_find(axes) != axes.end() || !declared(out_shape)) return std::nullopt;
    return made(NodeKind::kRowwise, RowwiseParams{kind, axes}, {inputs_[0]}, dtype_, std::move(out_shape));
  }

  std::optional<ValueId> log_softmax() {
    const ir::AttrRef axis = decl_.attribute("axis");
    if (!axis || inputs_.size() != 1) return std::nullopt;
    return rowwise(Rowwise::kLogSoftmax, {axis->as_int()}, shape());
  }

  std::optional<ValueId> vector_norm() {
    const ir::AttrRef axes = decl_.attribute("axes"), order = decl_.attribute("ord"),
                      keep = decl_.attribute("keep_dim");
    if (!axes || !order || inputs_.size() != 1) return std::nullopt;
    const double wanted =
        order->is(ir::AttrCode::kSerializationInteger) ? static_cast<double>(order->as_int()) : order->as_float();
    if (wanted != 2) return std::nullopt;
    std::vector<std::int64_t> list;
    if (axes->is(ir::AttrCode::kSerializationArray)) {
      for (const ir::AttrRef axis : axes->as_array()) list.push_back(axis->as_int());
    } else {
      list.push_back(axes->as_int());
    }
    const bool keeps = keep && keep->as_bool();
    std::vector<Expr> out;
    for (std::int64_t i = 0; i < std::ssize(shape()); ++i) {
      const bool gone =
          std::ranges::any_of(list, [&](std::int64_t a) { return a == i || a + std::ssize(shape()) == i; });
      if (!gone) out.push_back(shape()[static_cast<std::size_t>(i)]);
      if (gone && keeps) out.push_back(g_.exprs.constant(1));
    }
    return rowwise(Rowwise::kVectorNorm, std::move(list), std::move(out));
  }

  // The elements of an operand that describes the composite.
  std::optional<std::vector<double>> known(std::size_t i) const {
    const auto array = constant_array(g_, inputs_[i]);
    if (!array || array->element_count() > kMaxDescribing) return std::nullopt;
    return wide(*array);
  }
  std::optional<std::vector<double>> known(std::size_t i, std::size_t count, double least) const {
    auto values = known(i);
    const auto fits = [&](double v) { return v >= least && v <= kMaxWindow && v == std::floor(v); };
    return values && values->size() == count && std::ranges::all_of(*values, fits) ? values : std::nullopt;
  }

  // Operands: x, window, stride, padding, ceil_mode, count_include_pad, divisor_override (0: elements of the window).
  // The bodies that exporters write round extents down and count the padding, whatever these say: where it would
  // matter, the body is what runs.
  std::optional<ValueId> average_pool(std::size_t axes) {
    std::vector<Expr> s = shape();
    if (inputs_.size() != 7 || s.size() != axes + 2) return std::nullopt;
    const auto window = known(1, axes, 1), stride = known(2, axes, 1), padding = known(3, axes, 0), up = known(4, 1, 0),
               counted = known(5, 1, 0), divisor = known(6, 1, 0);
    if (!window || !stride || !padding || !up || !counted || !divisor || (*up)[0] != 0) return std::nullopt;
    const bool padded = std::ranges::any_of(*padding, [](double v) { return v != 0; });
    if (padded && (*counted)[0] == 0) return std::nullopt;
    AveragePoolParams p;
    ExprPool& x = g_.exprs;
    for (std::size_t i = 0; i < axes; ++i) {
      const std::size_t at = 3 - axes + i;
      p.window[at] = static_cast<std::int64_t>((*window)[i]), p.stride[at] = static_cast<std::int64_t>((*stride)[i]);
      p.padding[at] = static_cast<std::int64_t>((*padding)[i]);
      p.divisor *= (*window)[i];
      const Expr extent = x.add(s[2 + i], x.constant(2 * p.padding[at]));
      const auto count = windows_in(g_, extent, x.constant(p.window[at]), p.stride[at], false);
      if (!count) return std::nullopt;
      s[2 + i] = *count;
    }
    if ((*divisor)[0] > 0) p.divisor = (*divisor)[0];
    if (!declared(s)) return std::nullopt;
    return made(NodeKind::kAveragePool, p, {inputs_[0]}, dtype_, std::move(s));
  }

  // Rows of a table by ids; nothing where result `i` is declared with other extents.
  std::optional<std::vector<Expr>> gathered_shape(ValueId table, ValueId ids, std::size_t i) {
    const auto& rows = g_.value(table).shape;
    std::vector<Expr> s = g_.value(ids).shape;
    if (rows.empty()) return std::nullopt;
    s.insert(s.end(), rows.begin() + 1, rows.end());
    return require_declared(g_, call_.results[i]->type, s) ? std::optional(s) : std::nullopt;
  }

  // Positions, a table of cosines, one of sines.
  std::vector<ValueId> gathered_angles() {
    if (inputs_.size() != 3 || call_.results.size() != 2) return {};
    const DType ids = g_.value(inputs_[0]).dtype;
    if (ids != DType::kSI32 && ids != DType::kUI16) return {};
    std::vector<std::vector<Expr>> shapes;
    for (std::size_t i = 0; i < 2; ++i) {
      const DType dtype = g_.value(inputs_[1 + i]).dtype;
      const auto s = gathered_shape(inputs_[1 + i], inputs_[0], i);
      if (!s || !is_working_float(dtype) || dtype != call_.results[i]->type->dtype()) return {};
      shapes.push_back(*s);
    }
    const auto rows = [&](std::size_t i) {
      return made(NodeKind::kGatherRows, GatherRowsParams{}, {inputs_[1 + i], inputs_[0]},
                  g_.value(inputs_[1 + i]).dtype, shapes[i]);
    };
    const ValueId first = rows(0);
    return {first, rows(1)};
  }

  // A table of integers, ids, the scale in every element of a constant, the extents of the result. The bodies that
  // exporters write take the scale's first element.
  std::vector<ValueId> gathered_embeddings() {
    if (inputs_.size() != 4 || call_.results.size() != 1) return {};
    const DType table = g_.value(inputs_[0]).dtype, out = call_.results[0]->type->dtype();
    const bool fits = (table == DType::kSI8 || table == DType::kUI8) && g_.value(inputs_[1]).dtype == DType::kSI32 &&
                      is_working_float(out) && g_.value(inputs_[2]).dtype == out;
    const auto scale = fits ? float_elements(g_, inputs_[2]) : std::nullopt;
    if (!scale || scale->empty() || std::ranges::any_of(*scale, [&](float s) { return s != scale->front(); }))
      return {};
    const auto s = gathered_shape(inputs_[0], inputs_[1], 0);
    if (!s || g_.value(inputs_[3]).host != s) return {};
    return {made(NodeKind::kGatherRows, GatherRowsParams{scale->front()}, {inputs_[0], inputs_[1]}, out, *s)};
  }

  static constexpr std::int64_t kMaxDescribing = 16;           // elements
  static constexpr double kMaxWindow = std::int64_t{1} << 20;  // products of a few stay exact

  Graph& g_;
  const ir::CompositeDecl& decl_;
  const std::string& symbol_;
  const ir::Op& call_;
  const std::vector<ValueId>& inputs_;
  DType dtype_ = DType::kF32;
};

// The convolution whose result, through axes of extent 1, is `v`; channels stay on axis 1.
NodeId convolution_of(const Graph& g, ValueId v, const std::vector<int>& uses, std::int64_t channels) {
  while (uses[static_cast<std::size_t>(v)] == 1) {
    const Node* p = g.producer(v);
    if (!p || p->kind != NodeKind::kOp) return kNoNode;
    const auto& s = g.value(v).shape;
    if (s.size() < 2 || !g.exprs.is_constant(s[1], channels)) return kNoNode;
    if (p->code == OpCode::kConv2d || p->code == OpCode::kConv3d) return g.value(v).producer;
    const bool moves = p->code == OpCode::kShrinkDims || p->code == OpCode::kExpandDims || p->code == OpCode::kReshape;
    if (!moves || !only_moves_unit_axes(g, p->inputs[0], v) || g.value(p->inputs[0]).shape[0] != s[0]) return kNoNode;
    v = p->inputs[0];
  }
  return kNoNode;
}

// A constant with one value per channel for values of that rank.
std::optional<std::vector<double>> channel_values(const Graph& g, ValueId v, std::size_t rank, std::int64_t channels) {
  const auto& constant = g.value(v).constant;
  if (!constant || !is_working_float(constant->dtype())) return std::nullopt;
  const Shape& s = constant->shape();
  if (s.rank() + 1 < rank || s.rank() > rank || constant->element_count() != channels) return std::nullopt;
  if (s[s.rank() + 1 - rank] != channels) return std::nullopt;
  return wide(*constant);
}

}  // namespace

std::vector<ValueId> lower_composite(Graph& graph, const ir::CompositeDecl& decl, const std::string& symbol,
                                     const ir::Op& call, const std::vector<ValueId>& inputs) {
  return Composites(graph, decl, symbol, call, inputs).lower();
}

void fold_channel_scales(Graph& g) {
  const std::vector<int> uses = g.use_counts();
  for (const NodeId id : g.order()) {
    Node& node = g.node(id);
    const auto* chain = std::get_if<ElementwiseParams>(&node.params);
    if (!chain || chain->code.size() != 1 || chain->code[0].op != ScalarOp::kFma || node.inputs.size() != 3) continue;
    const auto &scales = g.value(node.inputs[1]).constant, &shifts = g.value(node.inputs[2]).constant;
    if (!scales || !shifts || g.value(node.outputs[0]).dtype != DType::kF32) continue;
    const std::vector<double> scale = wide(*scales);
    if (scale.empty()) continue;
    std::vector<double> shift = wide(*shifts);
    const std::size_t rank = g.value(node.outputs[0]).shape.size();
    ValueId from = node.inputs[0];
    if (const auto sum = match_sum(g, from); sum && uses[static_cast<std::size_t>(from)] == 1) {
      for (std::size_t i = 0; i < 2; ++i) {
        const auto bias = channel_values(g, (*sum)[i], rank, std::ssize(scale));
        if (!bias || g.value((*sum)[1 - i]).shape != g.value(from).shape) continue;
        for (std::size_t c = 0; c < shift.size(); ++c) shift[c] += scale[c] * (*bias)[c];
        from = (*sum)[1 - i];
        break;
      }
    }
    const NodeId convolution = convolution_of(g, from, uses, std::ssize(scale));
    if (convolution == kNoNode) continue;
    const auto& weight = g.value(g.node(convolution).inputs[1]).constant;
    if (!weight || weight->dtype() != DType::kF32 || weight->shape()[0] != std::ssize(scale)) continue;
    NDArray array(DType::kF32, weight->shape());
    const std::span<const float> from_weight = weight->values<float>();
    const std::span<float> scaled = array.mutable_values<float>();
    const std::size_t each = scaled.size() / scale.size();
    for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] = static_cast<float>(from_weight[i] * scale[i / each]);
    const ValueId v = g.new_value(DType::kF32, g.value(g.node(convolution).inputs[1]).shape);
    g.value(v).constant = std::move(array);
    g.node(convolution).inputs[1] = v;
    const ValueId added = per_channel(g, shift, rank);
    g.node(id).inputs = {from, added};
    g.node(id).params = ElementwiseParams{{{ScalarOp::kAdd, 0, 1}}};
  }
  g.sweep();
}

}  // namespace coreai::compiler
