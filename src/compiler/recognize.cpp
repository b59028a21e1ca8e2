// Normalisation and rotation that an exporter wrote out op by op; attention: recognize_attention.cpp.
#include "compiler/recognize.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// ---- normalisation ----

std::optional<std::array<ValueId, 2>> match_quotient(const Graph& g, ValueId id) {
  return match_binary(g, id, OpCode::kDivide, OpCode::kBroadcastingDivide);
}

// The base of base ** exponent with that constant exponent.
std::optional<ValueId> power_of(const Graph& g, ValueId id, float exponent) {
  const auto operands = match_binary(g, id, OpCode::kPow, OpCode::kBroadcastingPow);
  return operands && scalar_constant(g, (*operands)[1]) == exponent ? std::optional((*operands)[0]) : std::nullopt;
}

// mean(x * x over the last axis) + eps; returns eps.
std::optional<float> mean_square(const Graph& g, ValueId id, ValueId x) {
  const auto terms = match_sum(g, id);
  if (!terms) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    const ValueId mean = (*terms)[i];
    const auto eps = scalar_constant(g, (*terms)[1 - i]);
    if (!eps || !g.is_op(mean, OpCode::kReduceMean) || !names_last_axis(g, *g.producer(mean), 1)) continue;
    const ValueId squares = g.producer(mean)->inputs[0];
    const auto factors = match_product(g, squares);
    const auto base = factors && (*factors)[0] == (*factors)[1] ? (*factors)[0] : power_of(g, squares, 2.0f);
    if (base && strip_casts(g, *base) == strip_casts(g, x)) return eps;
  }
  return std::nullopt;
}

// 1 / sqrt(mean square of x + eps); returns eps.
std::optional<float> reciprocal_rms(const Graph& g, ValueId id, ValueId x) {
  if (const auto inside = operand_of(g, id, OpCode::kRsqrt)) return mean_square(g, *inside, x);
  if (const auto inside = power_of(g, id, -0.5f)) return mean_square(g, *inside, x);
  const auto quotient = match_quotient(g, id);
  const auto root = quotient ? operand_of(g, (*quotient)[1], OpCode::kSqrt) : std::nullopt;
  if (!root || scalar_constant(g, (*quotient)[0]) != 1.0f) return std::nullopt;
  return mean_square(g, *root, x);
}

struct Normed {
  ValueId x = kNoValue;
  float eps = 0;
};

// x divided by its root mean square.
std::optional<Normed> normed(const Graph& g, ValueId id) {
  if (const auto factors = match_product(g, id)) {
    for (std::size_t k = 0; k < 2; ++k) {
      if (const auto eps = reciprocal_rms(g, (*factors)[1 - k], (*factors)[k])) return Normed{(*factors)[k], *eps};
    }
  }
  const auto quotient = match_quotient(g, id);
  const auto root = quotient ? operand_of(g, (*quotient)[1], OpCode::kSqrt) : std::nullopt;
  const auto eps = root ? mean_square(g, *root, (*quotient)[0]) : std::nullopt;
  return eps ? std::optional(Normed{(*quotient)[0], *eps}) : std::nullopt;
}

// A constant of one element per column of x, [d], or per head and column of x [1, h, q, d], [h, 1, d].
bool scales_columns(const Graph& g, ValueId weight, ValueId x) {
  const auto& w = g.value(weight).shape;
  const auto& shape = g.value(x).shape;
  if (!float_elements(g, weight) || w.empty() || w.size() > shape.size() || w.back() != shape.back()) return false;
  for (std::size_t back = 2; back <= w.size(); ++back) {
    const Expr extent = w[w.size() - back];
    const bool per_head = back == 3 && shape.size() == 4 && extent == shape[1] && g.exprs.is_constant(shape[0], 1);
    if (!g.exprs.is_constant(extent, 1) && !per_head) return false;
  }
  return g.exprs.as_constant(shape.back()).has_value();
}

}  // namespace

// y = x / rms(x) * w with w a constant.
bool recognize_rms_norm(Graph& g, Node& node) {
  if (node.code != OpCode::kMul && node.code != OpCode::kBroadcastingMul) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const ValueId weight = node.inputs[1 - i];
    const auto inner = normed(g, strip_casts(g, node.inputs[i]));
    if (!inner || g.value(inner->x).shape != g.value(node.outputs[0]).shape || !scales_columns(g, weight, inner->x))
      continue;
    node.kind = NodeKind::kRmsNorm;
    node.inputs = {strip_casts(g, inner->x), weight};
    node.params = NormParams{inner->eps, false};
    return true;
  }
  return false;
}

namespace {

// x of x - mean(x over the last axis).
std::optional<ValueId> centred(const Graph& g, ValueId id) {
  const auto terms = match_difference(g, strip_casts(g, id));
  if (!terms) return std::nullopt;
  const ValueId mean = strip_casts(g, (*terms)[1]), x = strip_casts(g, (*terms)[0]);
  if (!g.is_op(mean, OpCode::kReduceMean) || !names_last_axis(g, *g.producer(mean), 1)) return std::nullopt;
  return strip_casts(g, g.producer(mean)->inputs[0]) == x ? std::optional(x) : std::nullopt;
}

// A constant of one element per column, whatever the rank of x.
bool is_row_of(const Graph& g, ValueId weight, ValueId x) {
  const auto elements = float_elements(g, weight);
  const auto width = g.exprs.as_constant(g.value(x).shape.back());
  return elements && width && static_cast<std::int64_t>(elements->size()) == *width && scales_columns(g, weight, x);
}

}  // namespace

// y = norm(x - mean(x)) + b, the norm recognised before.
bool recognize_layer_norm(Graph& g, Node& node) {
  if (node.code != OpCode::kAdd && node.code != OpCode::kBroadcastingAdd) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const Node* norm = g.producer(strip_casts(g, node.inputs[i]));
    if (!norm || norm->kind != NodeKind::kRmsNorm || norm->inputs.size() != 2) continue;
    const ValueId scale = norm->inputs[1], bias = node.inputs[1 - i];
    const auto x = centred(g, norm->inputs[0]);
    if (!x || g.value(*x).shape != g.value(node.outputs[0]).shape) continue;
    if (!is_row_of(g, scale, *x) || !is_row_of(g, bias, *x)) continue;
    node.kind = NodeKind::kLayerNorm;
    node.params = LayerNormParams{std::get<NormParams>(norm->params).eps, 0};
    node.inputs = {*x, scale, bias};
    return true;
  }
  return false;
}

// ---- rotation ----

namespace {

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
  if (in.empty()) return std::nullopt;
  for (std::size_t i = 0; i + 1 < in.size(); ++i) {
    if (in[i] != out[i]) return std::nullopt;
  }
  const auto ranges = slice_ranges(g, node);
  const auto begin = g.exprs.as_constant(ranges.back().start), extent = g.exprs.as_constant(ranges.back().extent);
  if (!begin || !extent || ranges.back().stride != 1) return std::nullopt;
  return LastAxisSlice{node.inputs[0], *begin, *extent};
}

// Whether a value is columns [begin, end of the last axis) of x.
bool is_rest_of(Graph& g, ValueId id, ValueId x, std::int64_t begin) {
  const auto rest = last_axis_slice(g, strip_casts(g, id));
  return rest && rest->input == x && rest->begin == begin &&
         g.exprs.is_constant(g.value(x).shape.back(), begin + rest->extent);
}

// The product of a half of the rotated tensor with cos or sin of the angles.
struct RotatedHalf {
  LastAxisSlice half;
  bool cosine;
  ValueId angle;
};
std::optional<RotatedHalf> rotated_half(Graph& g, ValueId id) {
  const auto factors = match_product(g, strip_casts(g, id));
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

// si32 positions, one per row, behind what only moves axes, widens, or scales them.
struct Positions {
  ValueId value = kNoValue;
  float scale = 1;
};
std::optional<Positions> positions_of(const Graph& g, ValueId id, Expr rows) {
  const auto& shape = g.value(id).shape;
  // One column; rows on the axis before it.
  if (shape.size() < 2 || !g.exprs.is_constant(shape.back(), 1) || shape[shape.size() - 2] != rows) return std::nullopt;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) {
    if (!g.exprs.is_constant(shape[i], 1)) return std::nullopt;
  }
  Positions out{id, 1};
  while (const Node* p = g.producer(out.value)) {
    if (p->kind != NodeKind::kOp) break;
    const bool moves = p->code == OpCode::kExpandDims || p->code == OpCode::kShrinkDims || p->code == OpCode::kReshape;
    if (moves) {
      if (!only_moves_unit_axes(g, p->inputs[0], out.value)) return std::nullopt;
      out.value = p->inputs[0];
    } else if (p->code == OpCode::kCast) {
      const DType to = g.value(out.value).dtype;
      if (to != DType::kF32 && to != DType::kSI32 && to != DType::kSI64) return std::nullopt;
      out.value = p->inputs[0];
    } else if (const auto factors = match_product(g, out.value)) {
      const std::size_t i = scalar_constant(g, (*factors)[0]) ? 0 : 1;
      const auto factor = scalar_constant(g, (*factors)[i]);
      if (!factor || !only_moves_unit_axes(g, (*factors)[1 - i], out.value)) return std::nullopt;
      out.scale *= *factor;
      out.value = (*factors)[1 - i];
    } else {
      break;
    }
  }
  return g.value(out.value).dtype == DType::kSI32 ? std::optional(out) : std::nullopt;
}

// angle[.., row, i] = position[row] * frequency[i] in f32.
struct Angles {
  ValueId positions = kNoValue;
  std::vector<float> frequencies;
};
std::optional<Angles> angles_of(const Graph& g, ValueId id, Expr rows, std::int64_t half) {
  const auto factors = match_product(g, id);
  if (!factors || g.value(id).dtype != DType::kF32) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    auto frequencies = float_elements(g, (*factors)[1 - i]);
    const auto& shape = g.value((*factors)[1 - i]).shape;
    if (!frequencies || static_cast<std::int64_t>(frequencies->size()) != half || shape.empty() ||
        !g.exprs.is_constant(shape.back(), half)) {
      continue;
    }
    const auto positions = positions_of(g, (*factors)[i], rows);
    if (!positions) return std::nullopt;
    for (float& f : *frequencies) f *= positions->scale;
    return Angles{positions->value, std::move(*frequencies)};
  }
  return std::nullopt;
}

bool joins_last_axis(const Graph& g, const Node& node) {
  if (node.code != OpCode::kConcat || node.inputs.size() < 3) return false;
  const auto axis = constant_elements(g, node.inputs[0]);
  const auto rank = static_cast<std::int64_t>(g.value(node.outputs[0]).shape.size());
  return axis && axis->size() == 1 && rank == 4 && ((*axis)[0] == -1 || (*axis)[0] == rank - 1);
}

// concat(rope(first columns of x), other columns of x): a rotation of the first.
bool extend_rope(Graph& g, Node& node) {
  const Node* inner = g.producer(strip_casts(g, node.inputs[1]));
  if (!inner || inner->kind != NodeKind::kRope || node.inputs.size() != 3) return false;
  const RopeParams params = std::get<RopeParams>(inner->params);
  const ValueId positions = inner->inputs[1];
  const auto rotated = last_axis_slice(g, strip_casts(g, inner->inputs[0]));
  const auto width = 2 * static_cast<std::int64_t>(params.inverse_frequencies.size());
  if (!rotated || rotated->begin != 0 || rotated->extent != width) return false;
  if (!is_rest_of(g, node.inputs[2], rotated->input, width)) return false;
  node.kind = NodeKind::kRope;
  node.inputs = {rotated->input, positions};
  node.params = params;
  return true;
}

}  // namespace

// concat(a cos - b sin, b cos + a sin [, rest]) over halves a, b of the rotated columns of one tensor.
bool recognize_rope(Graph& g, Node& node) {
  if (node.kind != NodeKind::kOp || !joins_last_axis(g, node)) return false;
  if (extend_rope(g, node)) return true;
  const auto first = match_difference(g, strip_casts(g, node.inputs[1])),
             second = match_sum(g, strip_casts(g, node.inputs[2]));
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
  const auto& shape = g.value(x).shape;
  if (shape != g.value(node.outputs[0]).shape) return false;
  const bool whole = node.inputs.size() == 3 && g.exprs.is_constant(shape.back(), 2 * half);
  if (!whole && !(node.inputs.size() == 4 && is_rest_of(g, node.inputs[3], x, 2 * half))) return false;
  auto angles = angles_of(g, a_cos->angle, shape[shape.size() - 2], half);
  if (!angles) return false;
  node.kind = NodeKind::kRope;
  node.inputs = {x, angles->positions};
  node.params = RopeParams{std::move(angles->frequencies), false};
  return true;
}

std::string written_key(const Node& node) {
  return fmt::format("written at {}", node.position);
}

void recognize_composites(Graph& g, const std::set<std::string>& kept) {
  for (const NodeId id : g.order()) {
    if (g.node(id).kind != NodeKind::kOp) continue;
    Node node = g.node(id);  // matching may add expressions, never nodes
    if (kept.contains(written_key(node))) continue;
    if (!recognize_rms_norm(g, node) && !recognize_layer_norm(g, node) && !recognize_rope(g, node) &&
        !recognize_attention(g, node)) {
      continue;
    }
    node.composite_symbol = written_key(node);
    g.node(id) = node;
  }
  g.sweep();
}

}  // namespace coreai::compiler
