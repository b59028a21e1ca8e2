// Normalisation, rotation and causal attention that an exporter wrote out op by op.
#include <algorithm>
#include <array>
#include <cmath>

#include "compiler/passes.h"
#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// Operands of a binary operation under either of its names; nothing for other values.
std::optional<std::array<ValueId, 2>> binary(const Graph& g, ValueId id, OpCode plain, OpCode broadcasting) {
  const Node* p = g.producer(id);
  if (!p || p->kind != NodeKind::kOp || (p->code != plain && p->code != broadcasting)) return std::nullopt;
  return std::array<ValueId, 2>{p->inputs[0], p->inputs[1]};
}
auto product(const Graph& g, ValueId id) {
  return binary(g, id, OpCode::kMul, OpCode::kBroadcastingMul);
}
auto sum(const Graph& g, ValueId id) {
  return binary(g, id, OpCode::kAdd, OpCode::kBroadcastingAdd);
}
auto difference(const Graph& g, ValueId id) {
  return binary(g, id, OpCode::kSub, OpCode::kBroadcastingSub);
}

std::optional<float> scalar_constant(const Graph& g, ValueId id) {
  const auto elements = float_elements(g, id);
  if (!elements || elements->size() != 1) return std::nullopt;
  return (*elements)[0];
}

// The one operand of an operation of that code.
std::optional<ValueId> operand_of(const Graph& g, ValueId id, OpCode code) {
  if (!g.is_op(id, code)) return std::nullopt;
  return g.producer(id)->inputs[0];
}

bool reduces_last_axis(const Graph& g, const Node& node) {
  const auto axes = constant_elements(g, node.inputs[1]);
  const auto rank = static_cast<std::int64_t>(g.value(node.inputs[0]).shape.size());
  return axes && axes->size() == 1 && ((*axes)[0] == -1 || (*axes)[0] == rank - 1);
}

// rsqrt(mean(x * x) + eps) of x; returns eps.
std::optional<float> reciprocal_rms(const Graph& g, ValueId id, ValueId x) {
  const auto inside = operand_of(g, id, OpCode::kRsqrt);
  const auto terms = inside ? sum(g, *inside) : std::nullopt;
  if (!terms) return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    const ValueId mean = (*terms)[static_cast<std::size_t>(i)];
    const auto eps = scalar_constant(g, (*terms)[static_cast<std::size_t>(1 - i)]);
    if (!eps || !g.is_op(mean, OpCode::kReduceMean) || !reduces_last_axis(g, *g.producer(mean))) continue;
    const auto squares = product(g, g.producer(mean)->inputs[0]);
    if (squares && (*squares)[0] == (*squares)[1] && strip_casts(g, (*squares)[0]) == strip_casts(g, x)) return eps;
  }
  return std::nullopt;
}

// y = (x * rsqrt(...)) * w with w a constant.
bool recognize_rms_norm(Graph& g, Node& node) {
  if (node.code != OpCode::kMul && node.code != OpCode::kBroadcastingMul) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const ValueId weight = node.inputs[1 - i];
    const auto factors = product(g, strip_casts(g, node.inputs[i]));
    if (!factors || !float_elements(g, weight)) continue;
    for (std::size_t k = 0; k < 2; ++k) {
      const ValueId x = (*factors)[k];
      const auto eps = reciprocal_rms(g, (*factors)[1 - k], x);
      if (!eps) continue;
      node.kind = NodeKind::kRmsNorm;
      node.inputs = {strip_casts(g, x), weight};
      node.params = NormParams{*eps, false};
      return true;
    }
  }
  return false;
}

// slice of the last axis only: returns its first element and input.
struct LastAxisSlice {
  ValueId input;
  std::int64_t begin, extent;
};
std::optional<LastAxisSlice> last_axis_slice(Graph& g, ValueId id) {
  if (!g.is_op(id, OpCode::kSlice)) return std::nullopt;
  const Node node = *g.producer(id);
  const auto& in = g.value(node.inputs[0]).shape;
  const auto& out = g.value(id).shape;
  for (std::size_t i = 0; i + 1 < in.size(); ++i) {
    if (in[i] != out[i]) return std::nullopt;
  }
  const auto ranges = slice_ranges(g, node);
  const auto begin = g.exprs.as_constant(ranges.back().start), extent = g.exprs.as_constant(ranges.back().extent);
  if (!begin || !extent || ranges.back().stride != 1) return std::nullopt;
  return LastAxisSlice{node.inputs[0], *begin, *extent};
}

// The product of a half of the rotated tensor with cos or sin of the angles.
struct RotatedHalf {
  LastAxisSlice half;
  bool cosine;
  ValueId angle;
};
std::optional<RotatedHalf> rotated_half(Graph& g, ValueId id) {
  const auto factors = product(g, strip_casts(g, id));
  if (!factors) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    const ValueId wave = strip_casts(g, (*factors)[1 - i]);
    const auto half = last_axis_slice(g, strip_casts(g, (*factors)[i]));
    if (!half) continue;
    if (const auto angle = operand_of(g, wave, OpCode::kCos)) return RotatedHalf{*half, true, *angle};
    if (const auto angle = operand_of(g, wave, OpCode::kSin)) return RotatedHalf{*half, false, *angle};
  }
  return std::nullopt;
}

// Positions [1, q] behind the casts, expansions and reshapes of an angle's factor.
ValueId positions_behind(const Graph& g, ValueId id) {
  while (const Node* p = g.producer(id)) {
    if (p->kind != NodeKind::kOp) break;
    if (p->code != OpCode::kExpandDims && p->code != OpCode::kCast && p->code != OpCode::kReshape &&
        p->code != OpCode::kShrinkDims) {
      break;
    }
    id = p->inputs[0];
  }
  return id;
}

// concat(a cos - b sin, b cos + a sin) over halves a, b of one tensor.
bool recognize_rope(Graph& g, Node& node) {
  if (node.code != OpCode::kConcat || node.inputs.size() != 3) return false;
  const auto& shape = g.value(node.outputs[0]).shape;
  const auto axis = constant_elements(g, node.inputs[0]);
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (!axis || rank != 4 || ((*axis)[0] != -1 && (*axis)[0] != rank - 1)) return false;
  const auto first = difference(g, strip_casts(g, node.inputs[1])), second = sum(g, strip_casts(g, node.inputs[2]));
  if (!first || !second) return false;
  const auto a_cos = rotated_half(g, (*first)[0]), b_sin = rotated_half(g, (*first)[1]);
  auto b_cos = rotated_half(g, (*second)[0]), a_sin = rotated_half(g, (*second)[1]);
  if (!a_cos || !b_sin || !b_cos || !a_sin) return false;
  if (!b_cos->cosine) std::swap(b_cos, a_sin);
  if (!a_cos->cosine || b_sin->cosine || !b_cos->cosine || a_sin->cosine) return false;
  const std::int64_t half = a_cos->half.extent;
  const ValueId x = a_cos->half.input;
  for (const auto& part : {*b_sin, *b_cos, *a_sin}) {
    if (part.half.input != x || part.half.extent != half || part.angle != a_cos->angle) return false;
  }
  if (a_cos->half.begin != 0 || a_sin->half.begin != 0 || b_sin->half.begin != half || b_cos->half.begin != half)
    return false;
  if (!g.exprs.is_constant(shape.back(), 2 * half)) return false;
  const auto factors = product(g, a_cos->angle);
  if (!factors) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto frequencies = float_elements(g, (*factors)[1 - i]);
    if (!frequencies || static_cast<std::int64_t>(frequencies->size()) != half) continue;
    const ValueId positions = positions_behind(g, (*factors)[i]);
    if (g.value(positions).dtype != DType::kSI32) return false;
    node.kind = NodeKind::kRope;
    node.inputs = {x, positions};
    node.params = RopeParams{*frequencies, false};
    return true;
  }
  return false;
}

// where(key position > query position, very negative, 0): returns the input that holds the positions.
std::optional<std::size_t> causal_bias(Graph& g, ValueId id) {
  const Node* where = g.producer(strip_casts(g, id));
  if (!where || where->kind != NodeKind::kOp) return std::nullopt;
  if (where->code != OpCode::kWhere && where->code != OpCode::kBroadcastingWhere) return std::nullopt;
  const auto masked = scalar_constant(g, where->inputs[1]), open = scalar_constant(g, where->inputs[2]);
  // -1e4 is below every f16 score that matters; the weight of a masked key is then exactly 0 in f32.
  if (!masked || !open || *masked > -1e4f || *open != 0.0f) return std::nullopt;
  const auto compared = binary(g, where->inputs[0], OpCode::kGreater, OpCode::kBroadcastingGreater);
  if (!compared) return std::nullopt;
  const ValueId keys = positions_behind(g, (*compared)[0]), queries = positions_behind(g, (*compared)[1]);
  const int input = g.value(keys).input;
  if (input < 0 || !g.is_op(queries, OpCode::kSlice) || g.producer(queries)->inputs[0] != keys) return std::nullopt;
  // Queries are the last ones: the slice ends at the end.
  const Node slice = *g.producer(queries);
  const auto ranges = slice_ranges(g, slice);
  const auto& extents = g.value(keys).shape;
  if (g.exprs.add(ranges.back().start, ranges.back().extent) != extents.back()) return std::nullopt;
  // Key axis last, query axis before it.
  const auto& k = g.value((*compared)[0]).shape;
  const auto& q = g.value((*compared)[1]).shape;
  if (k.size() < 2 || q.size() < 2 || k.back() != extents.back() || q[q.size() - 2] != ranges.back().extent)
    return std::nullopt;
  return static_cast<std::size_t>(input);
}

// softmax(q k^T * scale + bias) v with grouped heads.
bool recognize_attention(Graph& g, Node& node) {
  if (node.code != OpCode::kBroadcastingBatchMatmul && node.code != OpCode::kBatchMatmul) return false;
  if (!g.is_op(node.inputs[0], OpCode::kSoftmax)) return false;
  const Node& softmax = *g.producer(node.inputs[0]);
  const auto rank = static_cast<std::int64_t>(g.value(node.inputs[0]).shape.size());
  const auto axis = constant_elements(g, softmax.inputs[1]);
  if (!axis || rank != 5 || ((*axis)[0] != -1 && (*axis)[0] != rank - 1)) return false;
  const auto biased = sum(g, softmax.inputs[0]);
  if (!biased) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto scaled = product(g, (*biased)[i]);
    if (!scaled) continue;
    const auto input = causal_bias(g, (*biased)[1 - i]);
    if (!input) continue;
    for (std::size_t k = 0; k < 2; ++k) {
      const auto scale = scalar_constant(g, (*scaled)[1 - k]);
      const auto scores = binary(g, (*scaled)[k], OpCode::kBatchMatmul, OpCode::kBroadcastingBatchMatmul);
      if (!scale || !scores || !g.is_op((*scores)[1], OpCode::kTranspose)) continue;
      const Node& transpose = *g.producer((*scores)[1]);
      if (constant_elements(g, transpose.inputs[1]) != std::vector<std::int64_t>{0, 1, 2, 4, 3}) continue;
      AttentionParams params;
      params.scale = *scale;
      params.causal = true;
      params.grouped = true;
      node.kind = NodeKind::kAttention;
      node.inputs = {(*scores)[0], transpose.inputs[0], node.inputs[1]};
      node.params = params;
      const bool known = std::any_of(g.increasing.begin(), g.increasing.end(),
                                     [&](const IncreasingGuard& guard) { return guard.input == *input; });
      if (!known) g.increasing.push_back({*input});
      return true;
    }
  }
  return false;
}

}  // namespace

void recognize_composites(Graph& g) {
  for (const NodeId id : g.order()) {
    if (g.node(id).kind != NodeKind::kOp) continue;
    Node node = g.node(id);  // matching may add expressions, never nodes
    if (recognize_rms_norm(g, node) || recognize_rope(g, node) || recognize_attention(g, node)) g.node(id) = node;
  }
  g.sweep();
}

}  // namespace coreai::compiler
