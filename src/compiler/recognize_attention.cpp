// Causal attention that an exporter wrote out op by op: softmax(q k^T * scale + mask) v with grouped heads.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "compiler/attention_mask.h"
#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/recognize.h"
#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

constexpr std::int64_t kMaxHeads = 4096;

// A tensor [heads.., rows, columns] as heads of another: head h is head source[h] of `base`, times `scale`.
struct HeadsOf {
  ValueId base = kNoValue;
  std::vector<std::int64_t> source;
  std::int64_t base_heads = 0;
  bool transposed = false;  // rows and columns exchanged
  float scale = 1;

  // Whether this is all of `base`.
  bool in_order() const {
    if (static_cast<std::int64_t>(source.size()) != base_heads) return false;
    for (std::size_t h = 0; h < source.size(); ++h) {
      if (source[h] != static_cast<std::int64_t>(h)) return false;
    }
    return !transposed;
  }
};

// Extents before the last two, when all are constants of a sane product.
std::optional<std::vector<std::int64_t>> leading_extents(const Graph& g, ValueId id) {
  const auto& shape = g.value(id).shape;
  if (shape.size() < 2) return std::nullopt;
  std::vector<std::int64_t> out;
  std::int64_t count = 1;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) {
    const auto n = g.exprs.as_constant(shape[i]);
    if (!n || *n < 1 || *n > kMaxHeads) return std::nullopt;
    count *= *n;
    if (count > kMaxHeads) return std::nullopt;
    out.push_back(*n);
  }
  return out;
}

std::int64_t product_of(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

// For each element of a tensor of extents `out`: the element of `in` that it is when `in` is broadcast.
std::optional<std::vector<std::int64_t>> broadcast_map(const std::vector<std::int64_t>& in,
                                                       const std::vector<std::int64_t>& out) {
  if (in.size() > out.size()) return std::nullopt;
  const std::size_t shift = out.size() - in.size();
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] != 1 && in[i] != out[shift + i]) return std::nullopt;
  }
  std::vector<std::int64_t> map(static_cast<std::size_t>(product_of(out)));
  for (std::size_t n = 0; n < map.size(); ++n) {
    std::int64_t rest = static_cast<std::int64_t>(n), at = 0, stride = 1;
    for (std::size_t i = out.size(); i-- > 0; rest /= out[i]) {
      if (i < shift) continue;
      if (in[i - shift] != 1) at += stride * (rest % out[i]);
      stride *= in[i - shift];
    }
    map[n] = at;
  }
  return map;
}

bool same_last_axes(const Graph& g, ValueId a, ValueId b) {
  const auto& x = g.value(a).shape;
  const auto& y = g.value(b).shape;
  return x.size() >= 2 && y.size() >= 2 && std::equal(x.end() - 2, x.end(), y.end() - 2);
}

// The constant behind operations that only repeat it, when it differs along that axis alone: its elements.
std::optional<std::vector<std::int64_t>> repeated_constant(const Graph& g, ValueId id, std::size_t axis) {
  const std::size_t rank = g.value(id).shape.size();
  while (const Node* p = g.producer(id)) {
    const bool repeats = p->kind == NodeKind::kOp && (p->code == OpCode::kBroadcastInDims ||
                                                      p->code == OpCode::kBroadcastTo || p->code == OpCode::kCast);
    if (!repeats || !is_integer(g.value(id).dtype)) return std::nullopt;
    id = p->inputs[0];
  }
  const auto array = constant_array(g, id);
  if (!array || !is_integer(array->dtype()) || array->shape().rank() != rank || array->element_count() > kMaxHeads ||
      array->shape()[axis] != array->element_count()) {
    return std::nullopt;
  }
  std::vector<double> wide(static_cast<std::size_t>(array->element_count()));
  read_as_f64(*array, wide);
  return std::vector<std::int64_t>(wide.begin(), wide.end());
}

class Tracer {
 public:
  explicit Tracer(Graph& g) : g_(g) {}

  // Follows a value to the heads that it is made of; scalar factors on the way are gathered where `scaling` allows.
  std::optional<HeadsOf> heads_of(ValueId id, bool scaling) {
    const auto leading = leading_extents(g_, id);
    if (!leading) return std::nullopt;
    HeadsOf out;
    out.base = id;
    out.source.resize(static_cast<std::size_t>(product_of(*leading)));
    std::iota(out.source.begin(), out.source.end(), 0);
    while (step(out, scaling)) {
    }
    out.base_heads = product_of(*leading_extents(g_, out.base));
    return out;
  }

 private:
  // One operation further back; false where what follows is not a head of something else.
  bool step(HeadsOf& at, bool scaling) {
    const Node* p = g_.producer(at.base);
    if (!p || p->kind != NodeKind::kOp) return false;
    const Node node = *p;
    switch (node.code) {
      case OpCode::kCast: {
        const bool floats =
            is_working_float(g_.value(at.base).dtype) && is_working_float(g_.value(node.inputs[0]).dtype);
        if (!floats) return false;
        at.base = node.inputs[0];
        return true;
      }
      case OpCode::kReshape:
      case OpCode::kExpandDims:
      case OpCode::kShrinkDims:
        return regrouped(at, node);
      case OpCode::kBroadcastTo:
      case OpCode::kBroadcastInDims:
        return repeated(at, node);
      case OpCode::kGatherAlongAxis:
        return gathered(at, node);
      case OpCode::kTranspose:
        return transposed(at, node);
      case OpCode::kMul:
      case OpCode::kBroadcastingMul:
        return scaling && scaled(at, node);
      default:
        return false;
    }
  }

  // Axes of heads split or joined: their order stays.
  bool regrouped(HeadsOf& at, const Node& node) {
    const auto in = leading_extents(g_, node.inputs[0]), out = leading_extents(g_, at.base);
    if (!in || !out || product_of(*in) != product_of(*out) || !same_last_axes(g_, node.inputs[0], at.base))
      return false;
    at.base = node.inputs[0];
    return true;
  }

  bool repeated(HeadsOf& at, const Node& node) {
    const auto in = leading_extents(g_, node.inputs[0]), out = leading_extents(g_, at.base);
    if (!in || !out || !same_last_axes(g_, node.inputs[0], at.base)) return false;
    return follow(at, node.inputs[0], broadcast_map(*in, *out));
  }

  // gather_along_axis with one constant index per head.
  bool gathered(HeadsOf& at, const Node& node) {
    const auto in = leading_extents(g_, node.inputs[0]), out = leading_extents(g_, at.base);
    const auto axis = constant_elements(g_, node.inputs[2]);
    if (!in || !out || !axis || axis->size() != 1 || in->size() != out->size()) return false;
    if (!same_last_axes(g_, node.inputs[0], at.base)) return false;
    const std::int64_t rank = static_cast<std::int64_t>(in->size()) + 2;
    const std::int64_t along = (*axis)[0] < 0 ? (*axis)[0] + rank : (*axis)[0];
    if (along < 0 || along >= rank - 2) return false;
    const auto head_axis = static_cast<std::size_t>(along);
    if ((*in)[head_axis] != product_of(*in) || (*out)[head_axis] != product_of(*out)) return false;
    const auto index = repeated_constant(g_, node.inputs[1], head_axis);
    if (!index || index->size() != static_cast<std::size_t>(product_of(*out))) return false;
    for (const std::int64_t i : *index) {
      if (i < 0 || i >= (*in)[head_axis]) return false;
    }
    return follow(at, node.inputs[0], index);
  }

  bool transposed(HeadsOf& at, const Node& node) {
    const auto permutation = constant_elements(g_, node.inputs[1]);
    if (!permutation || permutation->size() < 2) return false;
    std::vector<std::int64_t> swap(permutation->size());
    std::iota(swap.begin(), swap.end(), 0);
    std::swap(swap[swap.size() - 2], swap[swap.size() - 1]);
    if (*permutation != swap) return false;
    at.transposed = !at.transposed;
    at.base = node.inputs[0];
    return true;
  }

  bool scaled(HeadsOf& at, const Node& node) {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto factor = scalar_constant(g_, node.inputs[1 - i]);
      if (!factor || g_.value(node.inputs[i]).shape != g_.value(at.base).shape) continue;
      at.scale *= *factor;
      at.base = node.inputs[i];
      return true;
    }
    return false;
  }

  static bool follow(HeadsOf& at, ValueId inner, const std::optional<std::vector<std::int64_t>>& map) {
    if (!map) return false;
    for (std::int64_t& h : at.source) h = (*map)[static_cast<std::size_t>(h)];
    at.base = inner;
    return true;
  }

  Graph& g_;
};

// A product of matrices, its operands as heads; head h of the result reads head h of both after their maps.
struct Product {
  HeadsOf left, right;
};
std::optional<Product> product_of_heads(Graph& g, ValueId id, bool scaling) {
  const auto operands = match_binary(g, id, OpCode::kBatchMatmul, OpCode::kBroadcastingBatchMatmul);
  const auto out = leading_extents(g, id);
  if (!operands || !out) return std::nullopt;
  std::array<HeadsOf, 2> sides;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto in = leading_extents(g, (*operands)[i]);
    const auto map = in ? broadcast_map(*in, *out) : std::nullopt;
    const auto heads = Tracer(g).heads_of((*operands)[i], scaling);
    if (!map || !heads) return std::nullopt;
    sides[i] = *heads;
    sides[i].source.clear();
    for (const std::int64_t h : *map) sides[i].source.push_back(heads->source[static_cast<std::size_t>(h)]);
  }
  return Product{sides[0], sides[1]};
}

// Head h reads head h / (heads / count) of `count`.
bool grouped(const std::vector<std::int64_t>& source, std::int64_t count) {
  const auto heads = static_cast<std::int64_t>(source.size());
  if (count < 1 || heads % count) return false;
  for (std::int64_t h = 0; h < heads; ++h) {
    if (source[static_cast<std::size_t>(h)] != h / (heads / count)) return false;
  }
  return true;
}

struct MaskedScores {
  ValueId scores = kNoValue;
  std::optional<CausalMask> causal;
  ValueId mask = kNoValue;  // else added to the scores, or none
};

// scores + bias, or where(mask, scores, very negative) either way round: bias or mask a causal one.
std::optional<MaskedScores> causal_scores(Graph& g, ValueId id) {
  const auto& shape = g.value(id).shape;
  const Expr keys = shape[shape.size() - 1], queries = shape[shape.size() - 2];
  const auto keeps_shape = [&](ValueId v) { return g.value(v).shape == g.value(id).shape; };
  if (const auto terms = match_sum(g, id)) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (!keeps_shape((*terms)[i])) continue;
      if (const auto mask = read_causal_bias(g, (*terms)[1 - i], queries, keys))
        return MaskedScores{(*terms)[i], mask, kNoValue};
    }
    return std::nullopt;
  }
  if (!g.is_op(id, OpCode::kWhere) && !g.is_op(id, OpCode::kBroadcastingWhere)) return std::nullopt;
  const std::vector<ValueId> inputs = g.producer(id)->inputs;
  for (std::size_t i = 1; i < 3; ++i) {
    const auto hidden = scalar_constant(g, inputs[3 - i]);
    if (!hidden || !hides_a_key(*hidden) || !keeps_shape(inputs[i])) continue;
    if (const auto mask = read_causal_mask(g, inputs[0], i == 1, queries, keys))
      return MaskedScores{inputs[i], mask, kNoValue};
  }
  return std::nullopt;
}

// What may be scores under a mask, the likeliest first.
std::vector<MaskedScores> masked_scores(Graph& g, ValueId id) {
  if (const auto causal = causal_scores(g, id)) return {*causal};
  std::vector<MaskedScores> out;
  const auto terms = match_sum(g, id);
  for (std::size_t i = 0; terms && i < 2; ++i) {
    const ValueId scores = (*terms)[i], mask = (*terms)[1 - i];
    const bool fits = g.value(scores).shape == g.value(id).shape && g.value(scores).shape.size() == 4 &&
                      is_working_float(g.value(mask).dtype) && !g.value(mask).host;
    if (fits) out.push_back({scores, std::nullopt, mask});
  }
  out.push_back({id, std::nullopt, kNoValue});
  return out;
}

struct Factors {
  HeadsOf query, key;
  float scale = 1;
};

// scores = scale * query key^T.
std::optional<Factors> factors_of(Graph& g, ValueId id) {
  const auto scores = Tracer(g).heads_of(id, true);
  if (!scores || !scores->in_order()) return std::nullopt;
  const auto product = product_of_heads(g, scores->base, true);
  if (!product || !product->left.in_order() || !product->right.transposed) return std::nullopt;
  return Factors{product->left, product->right, scores->scale * product->left.scale * product->right.scale};
}

// Plain values of a form that the kernel takes, [b, h, ., d] with one b.
bool plain_values(const Graph& g, ValueId q, ValueId k, ValueId v) {
  const auto &a = g.value(q).shape, &b = g.value(k).shape, &c = g.value(v).shape;
  if (a.size() != 4 || b.size() != 4 || c.size() != 4 || a[0] != b[0] || a[0] != c[0]) return false;
  const auto width = g.exprs.as_constant(a[3]), values = g.exprs.as_constant(c[3]);
  return width && *width <= kMaxPlainHeadDim && values && *values <= kMaxPlainHeadDim;
}

}  // namespace

bool recognize_attention(Graph& g, Node& node) {
  if (node.code != OpCode::kBroadcastingBatchMatmul && node.code != OpCode::kBatchMatmul) return false;
  const auto mixed = product_of_heads(g, node.outputs[0], false);
  if (!mixed || !mixed->left.in_order() || mixed->right.transposed) return false;
  const ValueId weights = mixed->left.base;
  if (!g.is_op(weights, OpCode::kSoftmax) || !names_last_axis(g, *g.producer(weights), 1)) return false;
  const auto biased = Tracer(g).heads_of(g.producer(weights)->inputs[0], false);
  if (!biased || !biased->in_order()) return false;
  std::optional<Factors> factors;
  MaskedScores masked;
  for (const MaskedScores& form : masked_scores(g, biased->base)) {
    factors = factors_of(g, form.scores);
    masked = form;
    if (factors) break;
  }
  if (!factors) return false;
  const HeadsOf &key = factors->key, &value = mixed->right;
  if (key.base_heads != value.base_heads || !grouped(key.source, key.base_heads) ||
      !grouped(value.source, value.base_heads)) {
    return false;
  }
  const ValueId query = factors->query.base;
  if (!masked.causal && !plain_values(g, query, key.base, value.base)) return false;
  AttentionParams params;
  params.scale = factors->scale;
  params.causal = masked.causal.has_value();
  params.window = masked.causal ? masked.causal->window : 0;
  node.inputs = {query, key.base, value.base};
  if (masked.mask != kNoValue) {
    // The mask's axes are those of the scores, which must be those of the query.
    const auto &scores = g.value(masked.scores).shape, &rows = g.value(query).shape;
    if (!std::equal(scores.begin(), scores.end() - 1, rows.begin(), rows.end() - 1)) return false;
    params.mask = 3;
    node.inputs.push_back(masked.mask);
  }
  node.kind = NodeKind::kAttention;
  node.params = params;
  if (!masked.causal) return true;
  for (const std::size_t input : masked.causal->increasing_inputs) {
    const bool known = std::any_of(g.increasing.begin(), g.increasing.end(),
                                   [&](const IncreasingGuard& guard) { return guard.input == input; });
    if (!known) g.increasing.push_back({input});
  }
  return true;
}

}  // namespace coreai::compiler
