// What a mask of tokens wants to know of an expression before it walks through it.
#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "grammar/expression.h"

namespace coreai::grammar {
namespace {

constexpr int kMaxHashDepth = 200;
constexpr std::size_t kMaxHashNodes = 4000;  // a long list of texts is not worth its hash
constexpr std::size_t kMaxRemembered = 100'000;
constexpr std::uint32_t kMaxChoices = 64;  // before a common rest

std::uint64_t secret(std::size_t which) {
  static const std::array<std::uint64_t, 4> words = [] {
    std::random_device device;
    std::array<std::uint64_t, 4> out{};
    for (std::uint64_t& word : out) word = (std::uint64_t{device()} << 32) | device() | 1u;
    return out;
  }();
  return words[which];
}

std::uint64_t mix(std::uint64_t h, std::uint64_t value, std::size_t which) {
  h = (h ^ value) * secret(which);
  h ^= h >> 32;
  h *= secret(which + 1);
  return h ^ (h >> 29);
}

ContentHash mix(const ContentHash& h, std::uint64_t value) {
  return {mix(h.high, value, 0), mix(h.low, value, 2)};
}

ContentHash mix(const ContentHash& h, const ContentHash& value) {
  return {mix(h.high, value.high, 0), mix(h.low, value.low, 2)};
}

}  // namespace

ByteSet ExpressionPool::first_bytes(ExprId e) {
  const Node node = nodes_[e];
  if (node.kind == Kind::kBytes) return sets_[node.a];
  if (node.kind == Kind::kNot) return ByteSet::all();
  if (const auto known = first_bytes_.find(e); known != first_bytes_.end()) return known->second;
  ByteSet out;
  if (!node.algebra) {
    std::vector<std::uint32_t> sets;
    std::vector<ExprId> foreign;
    new_mark();
    first_sets(e, sets, foreign);
    if (!foreign.empty()) return ByteSet::all();
    for (const std::uint32_t set : sets) out = out | sets_[set];
  } else if (node.kind == Kind::kConcat && !nodes_[node.a].nullable) {
    out = first_bytes(node.a);
  } else if (node.kind == Kind::kAllOf) {
    out = ByteSet::all();
    for (std::uint32_t i = 0; i < node.b; ++i) out = out & first_bytes(children_[node.a + i]);
  } else {
    return ByteSet::all();
  }
  if (first_bytes_.size() >= kMaxRemembered) first_bytes_.clear();
  first_bytes_.emplace(e, out);
  return out;
}

std::optional<ContentHash> ExpressionPool::content_hash(ExprId e) {
  if (const auto known = hashes_.find(e); known != hashes_.end()) return known->second;
  const bool outermost = hash_depth_ == 0;
  if (outermost) hash_nodes_ = 0;
  if (hash_depth_ >= kMaxHashDepth || ++hash_nodes_ > kMaxHashNodes) return std::nullopt;
  const Depth level(hash_depth_);
  const Node node = nodes_[e];
  std::optional<ContentHash> out = mix(ContentHash{1, 2}, static_cast<std::uint64_t>(node.kind));
  const auto add = [&](ExprId child) {
    const auto hash = content_hash(child);
    out = out && hash ? std::optional(mix(*out, *hash)) : std::nullopt;
  };
  switch (node.kind) {
    case Kind::kVoid:
    case Kind::kEpsilon:
      break;
    case Kind::kBytes:
      for (const std::uint64_t word : sets_[node.a].words()) out = mix(*out, word);
      break;
    case Kind::kConcat:
      add(node.a);
      add(node.b);
      break;
    case Kind::kNot:
      add(node.a);
      break;
    case Kind::kRepeat:
      out = mix(mix(*out, node.min), node.max);
      add(node.a);
      break;
    case Kind::kAnyOf:
    case Kind::kAllOf: {
      // Numbers of a pool say nothing, so that the order must not matter.
      ContentHash sum{0, 0};
      bool all = true;
      for (std::uint32_t i = 0; all && i < node.b; ++i) {
        const auto hash = content_hash(children_[node.a + i]);
        all = hash.has_value();
        if (all) sum = {sum.high + hash->high, sum.low + hash->low};
      }
      out = all ? std::optional(mix(*out, sum)) : std::nullopt;
      break;
    }
    default:
      out = std::nullopt;
  }
  if (out || outermost) hashes_.emplace(e, out);
  return out;
}

std::vector<ExprId> ExpressionPool::choices(ExprId e) {
  const Node node = nodes_[e];
  const Node& head = node.kind == Kind::kConcat ? nodes_[node.a] : node;
  if (head.kind != Kind::kAnyOf || (node.kind == Kind::kConcat && head.b > kMaxChoices)) return {e};
  const auto of = children(head);
  std::vector<ExprId> out(of.begin(), of.end());
  if (node.kind == Kind::kConcat)
    for (ExprId& choice : out) choice = concat(choice, node.b);
  return out;
}

bool ExpressionPool::is_finite(ExprId e) {
  if (const auto known = finite_.find(e); known != finite_.end()) return known->second;
  if (hash_depth_ >= kMaxHashDepth) return false;
  const Depth level(hash_depth_);
  const Node node = nodes_[e];
  bool out = false;
  switch (node.kind) {
    case Kind::kVoid:
    case Kind::kEpsilon:
    case Kind::kBytes:
      out = true;
      break;
    case Kind::kConcat:
      out = is_finite(node.a) && is_finite(node.b);
      break;
    case Kind::kRepeat:
      out = node.max != kUnbounded && is_finite(node.a);
      break;
    case Kind::kAnyOf:
      out = true;
      for (std::uint32_t i = 0; out && i < node.b; ++i) out = is_finite(children_[node.a + i]);
      break;
    default:
      break;
  }
  finite_.emplace(e, out);
  return out;
}

std::optional<Run> ExpressionPool::run(ExprId e) {
  if (const auto known = runs_.find(e); known != runs_.end()) return known->second;
  const auto found = find_run(e);
  runs_.emplace(e, found);
  return found;
}

std::optional<Run> ExpressionPool::find_run(ExprId e) {
  const Node* at = &nodes_[e];
  ExprId rest = kEmptyString;
  if (at->kind == Kind::kConcat) {
    rest = at->b;
    at = &nodes_[at->a];
  }
  std::vector<ExprId> excluded;
  const Node* repeated = at->kind == Kind::kRepeat ? at : nullptr;
  if (at->kind == Kind::kAllOf) {
    for (const ExprId part : children(*at)) {
      const Node& node = nodes_[part];
      if (node.kind == Kind::kNot) {
        excluded.push_back(node.a);
      } else if (node.kind == Kind::kRepeat && repeated == nullptr && node.max == kUnbounded) {
        repeated = &node;
      } else {
        return std::nullopt;
      }
    }
  }
  if (repeated == nullptr || repeated->max <= 1 || nodes_[repeated->a].algebra) return std::nullopt;
  Run out{repeated->a, repeated->min, repeated->max, kNothing, rest};
  if (is_narrow(out.unit)) return std::nullopt;
  if (!(first_bytes(out.unit) & first_bytes(rest)).empty()) return std::nullopt;
  // Without finitely many strings of infinitely many, more than any beginning of one always remains; of infinitely
  // many it is only known where a few beginnings lead to them.
  for (const ExprId part : excluded)
    if (nodes_[part].algebra || !(is_finite(part) || is_narrow(part))) return std::nullopt;
  if (!excluded.empty()) out.excluded = any_of(excluded);
  return out;
}

// Takes any number of units without saying less: what follows them includes `e`, but for finitely many strings.
bool ExpressionPool::absorbs(ExprId e, std::optional<ExprId>& unit) {
  const Node& node = nodes_[e];
  const auto all = [&](auto&& neutral) {
    bool some = false;
    for (const ExprId child : children(node)) {
      if (neutral(nodes_[child])) continue;
      if (!absorbs(child, unit)) return false;
      some = true;
    }
    return some;
  };
  switch (node.kind) {
    case Kind::kRepeat:
      if (node.max != kUnbounded || (unit && *unit != node.a)) return false;
      unit = node.a;
      return true;
    case Kind::kConcat:
      return nodes_[node.a].kind != Kind::kConcat && absorbs(node.a, unit);
    case Kind::kAnyOf:
      return all([](const Node&) { return false; });
    case Kind::kAllOf:
      return all([&](const Node& child) { return child.kind == Kind::kNot && is_finite(child.a); });
    default:
      return false;
  }
}

std::optional<ExpressionPool::Absorbed> ExpressionPool::absorbed(ExprId e) {
  std::optional<Absorbed> out;
  for (const ExprId choice : choices(e)) {
    std::optional<ExprId> unit;
    const Node& node = nodes_[choice];
    const Node& head = node.kind == Kind::kConcat ? nodes_[node.a] : node;
    Absorbed found{kNothing, 0};
    if (absorbs(choice, unit))
      found = {*unit, kUnbounded};
    else if (head.kind == Kind::kRepeat)
      found = {head.a, head.max};
    if (found.max <= 1 || (out && out->max >= found.max) || is_nothing(choice)) continue;
    if (is_narrow(found.unit)) continue;
    out = found;
  }
  return out;
}

// No string of it begins another one.
bool ExpressionPool::is_prefix_code(ExprId e) {
  constexpr std::size_t kMaxStates = 512;
  if (const auto known = prefix_codes_.find(e); known != prefix_codes_.end()) return known->second;
  bool holds = !nodes_[e].nullable;
  std::vector<ExprId> states{e};
  std::unordered_map<ExprId, bool> seen{{e, true}};
  for (std::size_t at = 0; holds && at < states.size(); ++at) {
    for (const std::uint8_t byte : classes(states[at]).representatives) {
      const ExprId next = derive(states[at], byte);
      if (next <= kEmptyString || !seen.emplace(next, true).second) continue;
      holds = holds && !nodes_[next].nullable && states.size() < kMaxStates;
      states.push_back(next);
    }
  }
  prefix_codes_.emplace(e, holds);
  return holds;
}

// Two repetitions as one: each string falls into units of the wider one in one way only.
std::optional<ExprId> ExpressionPool::meet(ExprId a, ExprId b) {
  for (const auto& [inner, outer] : {std::pair(a, b), std::pair(b, a)}) {
    const Node narrow = nodes_[inner], wide = nodes_[outer];
    if (!is_prefix_code(wide.a)) continue;
    if (narrow.a != wide.a && !is_nothing(all_of({narrow.a, negate(wide.a)}))) continue;
    const std::uint32_t min = std::max(narrow.min, wide.min), max = std::min(narrow.max, wide.max);
    return min > max ? kNothing : repeat(narrow.a, min, max);
  }
  return std::nullopt;
}

// Nothing where conditions, complements or rules are inside, or where it is very large.
std::optional<ExpressionPool::Lengths> ExpressionPool::lengths(ExprId e) {
  if (hash_depth_ == 0) hash_nodes_ = 0;
  if (hash_depth_ >= kMaxHashDepth || ++hash_nodes_ > kMaxHashNodes) return std::nullopt;
  const Depth level(hash_depth_);
  const Node& node = nodes_[e];
  switch (node.kind) {
    case Kind::kEpsilon:
      return Lengths{0, 0};
    case Kind::kBytes:
      return Lengths{1, 1};
    case Kind::kConcat: {
      const auto first = lengths(node.a), rest = lengths(node.b);
      if (!first || !rest) return std::nullopt;
      return Lengths{first->shortest + rest->shortest, std::max(first->farthest + rest->shortest, rest->farthest)};
    }
    case Kind::kAnyOf: {
      Lengths out{UINT64_MAX, 0};
      for (const ExprId choice : children(node)) {
        const auto of = lengths(choice);
        if (!of) return std::nullopt;
        out = {std::min(out.shortest, of->shortest), std::max(out.farthest, of->farthest)};
      }
      return out;
    }
    case Kind::kRepeat: {
      const auto unit = lengths(node.a);
      if (!unit || unit->farthest >= UINT32_MAX) return std::nullopt;
      return Lengths{node.min * unit->shortest, unit->farthest + (std::max(node.min, 1u) - 1) * unit->shortest};
    }
    default:
      return std::nullopt;
  }
}

std::optional<ExpressionPool::Unbounded> ExpressionPool::without_bound(ExprId e) {
  const Node node = nodes_[e];
  if (node.kind == Kind::kRepeat && node.min == 0 && node.max != kUnbounded)
    return Unbounded{repeat(node.a, 0, kUnbounded), node.max};
  if (node.kind != Kind::kConcat || nodes_[node.a].counts) return std::nullopt;
  auto rest = without_bound(node.b);
  if (rest) rest->expression = concat(node.a, rest->expression);
  return rest;
}

// What includes `e` and counts nothing.
ExprId ExpressionPool::without_counters(ExprId e) {
  const Node node = nodes_[e];
  if (!node.counts) return e;
  if (node.kind == Kind::kRepeat) return repeat(without_counters(node.a), std::min(node.min, 1u), kUnbounded);
  if (node.kind == Kind::kConcat) return concat(without_counters(node.a), without_counters(node.b));
  if (node.kind != Kind::kAnyOf) return e;
  std::vector<ExprId> choices(children(node).begin(), children(node).end());
  for (ExprId& choice : choices) choice = without_counters(choice);
  return any_of(choices);
}

// A text within a length of which so much is left that it says nothing about the next `bytes` bytes: whatever they are,
// the text can still end in time. What is left is the text alone, which is what makes its states few.
ExprId ExpressionPool::clamp_length(ExprId e, std::uint32_t bytes) {
  const Node node = nodes_[e];
  if (node.b != 2) return e;
  const std::array<ExprId, 2> both{children_[node.a], children_[node.a + 1]};
  for (const auto& [length, text] : {std::pair(both[0], both[1]), std::pair(both[1], both[0])}) {
    if (nodes_[text].algebra) continue;
    const auto way = lengths(text);  // of few nodes, so that what follows is not deep
    const auto free = way ? without_bound(length) : std::nullopt;
    if (!free || way->farthest + bytes > free->max) continue;
    if (!is_nothing(all_of({without_counters(text), negate(free->expression)}))) continue;
    return clamp(text, bytes);
  }
  return e;
}

}  // namespace coreai::grammar
