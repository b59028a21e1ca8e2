#include "compiler/attention_mask.h"

#include <algorithm>
#include <map>

#include "compiler/matchers.h"
#include "compiler/passes.h"
#include "compiler/shapes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// A set of distances: whether it holds those below all of `flips`, which are sorted; each flip changes that.
struct Distances {
  bool first = false;
  std::vector<std::int64_t> flips;
  bool operator==(const Distances&) const = default;

  static Distances below(std::int64_t bound) { return {true, {bound}}; }
  static Distances at(std::int64_t d) { return {false, {d, d + 1}}; }
  Distances inverted() const { return {!first, flips}; }

  template <typename F>
  static Distances join(const Distances& a, const Distances& b, F f) {
    std::vector<std::int64_t> bounds(a.flips);
    bounds.insert(bounds.end(), b.flips.begin(), b.flips.end());
    std::sort(bounds.begin(), bounds.end());
    Distances out{f(a.first, b.first), {}};
    bool now = out.first;
    for (const std::int64_t bound : bounds) {
      if (f(a.holds(bound), b.holds(bound)) == now) continue;
      now = !now;
      out.flips.push_back(bound);
    }
    return out;
  }
  bool holds(std::int64_t d) const {
    const auto passed = std::upper_bound(flips.begin(), flips.end(), d) - flips.begin();
    return first != (passed % 2 == 1);
  }
};

// An integer tensor whose element is offset + sum of per_axis[k] * index[k]; with `ordinal`, the element of that input
// at this place.
struct Index {
  std::vector<std::int64_t> per_axis;
  Expr offset = 0;
  int ordinal = -1;
};

// A float tensor of two values.
struct TwoValued {
  float when_true = 0, when_false = 0;
  Distances where_true;
};

bool exact_index(DType dtype) {  // f32 counts exactly to 2^24
  return dtype == DType::kSI32 || dtype == DType::kSI64 || dtype == DType::kF32;
}

class MaskReader {
 public:
  MaskReader(Graph& g, Expr queries, Expr keys) : g_(g), queries_(queries), keys_(keys) {}

  std::optional<CausalMask> bias(ValueId id) {
    const auto two = two_valued(id, 0);
    if (!two) return std::nullopt;
    if (two->when_true == 0 && hides_a_key(two->when_false)) return causal(two->where_true);
    if (two->when_false == 0 && hides_a_key(two->when_true)) return causal(two->where_true.inverted());
    return std::nullopt;
  }

  std::optional<CausalMask> mask(ValueId id, bool seen) {
    const auto set = distances(id, 0);
    if (!set) return std::nullopt;
    return causal(seen ? *set : set->inverted());
  }

 private:
  static constexpr int kMaxDepth = 64;

  std::optional<CausalMask> causal(const Distances& seen) const {
    const bool bounded = seen.flips.size() == 2;
    if (seen.first || seen.flips.empty() || seen.flips.size() > 2 || seen.flips[0] != 0) return std::nullopt;
    return CausalMask{bounded ? seen.flips[1] : 0, ordinals_};
  }

  // The input of an operation that repeats or reshapes without touching the last two axes.
  std::optional<ValueId> behind_leading_axes(ValueId id, const Node& node) const {
    switch (node.code) {
      case OpCode::kReshape:
      case OpCode::kExpandDims:
      case OpCode::kShrinkDims:
      case OpCode::kBroadcastTo:
      case OpCode::kBroadcastInDims: {
        const auto& out = g_.value(id).shape;
        const auto& in = g_.value(node.inputs[0]).shape;
        const bool kept = in.size() >= 2 && out.size() >= 2 && std::equal(in.end() - 2, in.end(), out.end() - 2);
        return kept ? std::optional(node.inputs[0]) : std::nullopt;
      }
      default:
        return std::nullopt;
    }
  }

  std::optional<TwoValued> two_valued(ValueId id, int depth) {
    const Node* p = g_.producer(id);
    if (!p || p->kind != NodeKind::kOp || depth > kMaxDepth) return std::nullopt;
    const Node node = *p;
    if (const auto inner = behind_leading_axes(id, node)) return two_valued(*inner, depth + 1);
    switch (node.code) {
      case OpCode::kWhere:
      case OpCode::kBroadcastingWhere: {
        const auto a = scalar_constant(g_, node.inputs[1]), b = scalar_constant(g_, node.inputs[2]);
        const auto set = a && b ? distances(node.inputs[0], depth + 1) : std::nullopt;
        return set ? std::optional(TwoValued{*a, *b, *set}) : std::nullopt;
      }
      case OpCode::kCast: {
        if (!is_working_float(g_.value(id).dtype)) return std::nullopt;
        const DType from = g_.value(node.inputs[0]).dtype;
        if (is_working_float(from)) return two_valued(node.inputs[0], depth + 1);
        const auto set = from == DType::kI1 ? distances(node.inputs[0], depth + 1) : std::nullopt;
        return set ? std::optional(TwoValued{1, 0, *set}) : std::nullopt;
      }
      case OpCode::kMul:
      case OpCode::kBroadcastingMul:
        return mapped(node, depth, [](float x, float c) { return x * c; });
      case OpCode::kAdd:
      case OpCode::kBroadcastingAdd:
        return mapped(node, depth, [](float x, float c) { return x + c; });
      case OpCode::kSub:
      case OpCode::kBroadcastingSub:
        if (scalar_constant(g_, node.inputs[0])) return mapped(node, depth, [](float x, float c) { return c - x; });
        return mapped(node, depth, [](float x, float c) { return x - c; });
      default:
        return std::nullopt;
    }
  }

  // An operation on a two-valued tensor and a scalar constant.
  template <typename F>
  std::optional<TwoValued> mapped(const Node& node, int depth, F f) {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto constant = scalar_constant(g_, node.inputs[i]);
      if (!constant) continue;
      auto two = two_valued(node.inputs[1 - i], depth + 1);
      if (!two) return std::nullopt;
      two->when_true = f(two->when_true, *constant);
      two->when_false = f(two->when_false, *constant);
      return two;
    }
    return std::nullopt;
  }

  // Both are remembered: a chain that reads each value twice would else take exponential time.
  std::optional<Distances> distances(ValueId id, int depth) {
    const auto known = distances_.find(id);
    if (known != distances_.end()) return known->second;
    return distances_[id] = distances_of(id, depth);
  }

  std::optional<Distances> distances_of(ValueId id, int depth) {
    const Node* p = g_.producer(id);
    if (!p || p->kind != NodeKind::kOp || g_.value(id).dtype != DType::kI1 || depth > kMaxDepth) return std::nullopt;
    const Node node = *p;
    if (const auto inner = behind_leading_axes(id, node)) return distances(*inner, depth + 1);
    const auto joined = [&](auto f) -> std::optional<Distances> {
      const auto a = distances(node.inputs[0], depth + 1), b = distances(node.inputs[1], depth + 1);
      return a && b ? std::optional(Distances::join(*a, *b, f)) : std::nullopt;
    };
    switch (node.code) {
      case OpCode::kNot: {
        const auto inner = distances(node.inputs[0], depth + 1);
        return inner ? std::optional(inner->inverted()) : std::nullopt;
      }
      case OpCode::kLogicalXor:
      case OpCode::kBroadcastingLogicalXor:
      case OpCode::kBitwiseXor:
      case OpCode::kBroadcastingBitwiseXor:
        return joined([](bool a, bool b) { return a != b; });
      case OpCode::kLogicalAnd:
      case OpCode::kBroadcastingLogicalAnd:
      case OpCode::kBitwiseAnd:
      case OpCode::kBroadcastingBitwiseAnd:
        return joined([](bool a, bool b) { return a && b; });
      case OpCode::kLogicalOr:
      case OpCode::kBroadcastingLogicalOr:
      case OpCode::kBitwiseOr:
      case OpCode::kBroadcastingBitwiseOr:
        return joined([](bool a, bool b) { return a || b; });
      case OpCode::kGreater:
      case OpCode::kBroadcastingGreater:
      case OpCode::kEqual:
      case OpCode::kBroadcastingEqual:
        return compared(id, node);
      default:
        return std::nullopt;
    }
  }

  // a > b or a == b with a - b = +-(j - i) + c over query row i and key column j. The distance is that of positions:
  // i - j + keys - queries.
  std::optional<Distances> compared(ValueId id, const Node& node) {
    const auto& shape = g_.value(id).shape;
    const std::size_t rank = shape.size();
    if (rank < 2 || shape[rank - 2] != queries_ || shape[rank - 1] != keys_) return std::nullopt;
    for (std::size_t k = 0; k + 2 < rank; ++k) {
      if (!g_.exprs.is_constant(shape[k], 1)) return std::nullopt;
    }
    const auto a = index(node.inputs[0], 0), b = index(node.inputs[1], 0);
    if (!a || !b || a->ordinal != b->ordinal) return std::nullopt;
    const Index difference = combined(*a, *b, -1);
    const auto& per_axis = difference.per_axis;
    if (per_axis.size() != rank) return std::nullopt;
    const std::int64_t row = per_axis[rank - 2], column = per_axis[rank - 1];
    if (row * column != -1) return std::nullopt;
    const bool greater = node.code == OpCode::kGreater || node.code == OpCode::kBroadcastingGreater;
    ExprPool& x = g_.exprs;
    const Expr ahead = x.sub(keys_, queries_);
    // Where a == b.
    const auto level = x.as_constant(column == 1 ? x.add(ahead, difference.offset) : x.sub(ahead, difference.offset));
    if (!level) return std::nullopt;
    if (a->ordinal >= 0) note_ordinal(static_cast<std::size_t>(a->ordinal));
    if (!greater) return Distances::at(*level);
    return column == 1 ? Distances::below(*level) : Distances::below(*level + 1).inverted();
  }

  void note_ordinal(std::size_t input) {
    if (std::find(ordinals_.begin(), ordinals_.end(), input) == ordinals_.end()) ordinals_.push_back(input);
  }

  // a + factor * b, shapes broadcast.
  Index combined(const Index& a, const Index& b, std::int64_t factor) {
    Index out = a;
    if (out.per_axis.size() < b.per_axis.size())
      out.per_axis.insert(out.per_axis.begin(), b.per_axis.size() - out.per_axis.size(), 0);
    const std::size_t shift = out.per_axis.size() - b.per_axis.size();
    for (std::size_t k = 0; k < b.per_axis.size(); ++k) out.per_axis[shift + k] += factor * b.per_axis[k];
    out.offset = factor > 0 ? g_.exprs.add(a.offset, b.offset) : g_.exprs.sub(a.offset, b.offset);
    return out;
  }

  std::optional<Index> index(ValueId id, int depth) {
    const auto known = indices_.find(id);
    if (known != indices_.end()) return known->second;
    return indices_[id] = checked_index(id, depth);
  }

  std::optional<Index> checked_index(ValueId id, int depth) {
    const Value& v = g_.value(id);
    if (!exact_index(v.dtype) || depth > kMaxDepth) return std::nullopt;
    auto out = index_of(id, depth);
    if (!out || out->per_axis.size() != v.shape.size()) return std::nullopt;
    for (std::size_t k = 0; k < v.shape.size(); ++k) {
      if (g_.exprs.is_constant(v.shape[k], 1)) out->per_axis[k] = 0;
    }
    return out;
  }

  std::optional<Index> index_of(ValueId id, int depth) {
    const Value& v = g_.value(id);
    if (v.host && v.host->size() == 1) return Index{std::vector<std::int64_t>(v.shape.size(), 0), (*v.host)[0], -1};
    if (v.input >= 0) return ordinals_of_input(id);
    const Node* p = g_.producer(id);
    if (!p || p->kind != NodeKind::kOp) return std::nullopt;
    const Node node = *p;
    switch (node.code) {
      case OpCode::kRange: {
        const auto& start = g_.value(node.inputs[0]).host;
        const auto step = constant_elements(g_, node.inputs[2]);
        if (!start || start->size() != 1 || !step || step->size() != 1) return std::nullopt;
        return Index{{(*step)[0]}, (*start)[0], -1};
      }
      case OpCode::kCast:
      case OpCode::kBroadcastInDims:
        return index(node.inputs[0], depth + 1);
      case OpCode::kBroadcastTo: {
        auto in = index(node.inputs[0], depth + 1);
        const std::size_t rank = g_.value(id).shape.size();
        if (in && in->per_axis.size() < rank) in->per_axis.insert(in->per_axis.begin(), rank - in->per_axis.size(), 0);
        return in;
      }
      case OpCode::kReshape:
      case OpCode::kExpandDims:
      case OpCode::kShrinkDims:
        return moved(id, node, depth);
      case OpCode::kSlice:
        return sliced(node, depth);
      case OpCode::kAdd:
      case OpCode::kBroadcastingAdd:
      case OpCode::kSub:
      case OpCode::kBroadcastingSub: {
        const bool adds = node.code == OpCode::kAdd || node.code == OpCode::kBroadcastingAdd;
        const auto a = index(node.inputs[0], depth + 1), b = index(node.inputs[1], depth + 1);
        if (!a || !b || a->ordinal >= 0 || b->ordinal >= 0) return std::nullopt;
        return combined(*a, *b, adds ? 1 : -1);
      }
      default:
        return std::nullopt;
    }
  }

  std::optional<Index> ordinals_of_input(ValueId id) {
    const Value& v = g_.value(id);
    Index out{std::vector<std::int64_t>(v.shape.size(), 1), g_.exprs.constant(0), v.input};
    std::size_t wide = 0;
    for (Expr e : v.shape) wide += g_.exprs.is_constant(e, 1) ? 0 : 1;
    return wide == 1 && is_integer(v.dtype) ? std::optional(out) : std::nullopt;
  }

  std::optional<Index> moved(ValueId id, const Node& node, int depth) {
    const auto in = index(node.inputs[0], depth + 1);
    if (!in || !only_moves_unit_axes(g_, node.inputs[0], id)) return std::nullopt;
    const auto& shape = g_.value(id).shape;
    Index out{std::vector<std::int64_t>(shape.size(), 0), in->offset, in->ordinal};
    const auto& from = g_.value(node.inputs[0]).shape;
    std::size_t k = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (g_.exprs.is_constant(from[i], 1)) continue;
      while (g_.exprs.is_constant(shape[k], 1)) ++k;
      out.per_axis[k++] = in->per_axis[i];
    }
    return out;
  }

  std::optional<Index> sliced(const Node& node, int depth) {
    auto in = index(node.inputs[0], depth + 1);
    if (!in) return std::nullopt;
    const auto ranges = slice_ranges(g_, node);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].stride != 1) return std::nullopt;
      in->offset = g_.exprs.add(in->offset, g_.exprs.mul(g_.exprs.constant(in->per_axis[i]), ranges[i].start));
    }
    return in;
  }

  Graph& g_;
  const Expr queries_, keys_;
  std::vector<std::size_t> ordinals_;
  std::map<ValueId, std::optional<Distances>> distances_;
  std::map<ValueId, std::optional<Index>> indices_;
};

}  // namespace

// -1e4 is what exporters write for every dtype; bf16 rounds it to -9984.
bool hides_a_key(float score) {
  return score <= -9e3f;
}

std::optional<CausalMask> read_causal_bias(Graph& g, ValueId bias, Expr queries, Expr keys) {
  return MaskReader(g, queries, keys).bias(bias);
}

std::optional<CausalMask> read_causal_mask(Graph& g, ValueId mask, bool seen, Expr queries, Expr keys) {
  return MaskReader(g, queries, keys).mask(mask, seen);
}

}  // namespace coreai::compiler
