#include "grammar/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

constexpr int kMaxJoinDepth = 500;              // of common beginnings joined at once; longer ones stay apart
constexpr int kMaxDeriveDepth = 5000;           // rules that begin with rules that begin with rules
constexpr std::size_t kMaxDerived = 1'000'000;  // remembered derivatives; forgotten all at once beyond it

std::uint32_t add(std::uint32_t a, std::uint32_t b) {
  return a > kUnbounded - b ? kUnbounded : a + b;
}

std::uint64_t mix(std::uint64_t h, std::uint64_t value) {
  h = (h ^ value) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

void sort_unique(std::vector<ExprId>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

ExpressionPool::ExpressionPool(std::size_t max_nodes, std::size_t max_search)
    : max_nodes_(max_nodes), max_search_(max_search), table_(1024) {
  intern({.kind = Kind::kVoid});
  intern({.kind = Kind::kEpsilon, .nullable = true});
  sets_.push_back(ByteSet::all());
  intern({.kind = Kind::kRepeat, .nullable = true, .a = 3, .min = 0, .max = kUnbounded});
  intern({.kind = Kind::kBytes, .a = 0});
}

ExpressionPool::ExpressionPool(const ExpressionPool& of, std::size_t max_nodes, std::size_t max_search)
    : ExpressionPool(of) {
  max_nodes_ = max_nodes;
  max_search_ = max_search;
}

std::uint64_t ExpressionPool::hash(const Node& node, std::span<const ExprId> children) const {
  std::uint64_t h = mix(0x243f6a8885a308d3u, static_cast<std::uint64_t>(node.kind));
  if (node.kind == Kind::kBytes) {
    for (const std::uint64_t word : sets_[node.a].words()) h = mix(h, word);
  } else if (node.kind == Kind::kAnyOf || node.kind == Kind::kAllOf) {
    for (const ExprId child : children) h = mix(h, child);
  } else {
    h = mix(mix(h, node.a), node.b);
    h = mix(mix(h, node.min), node.max);
  }
  return h;
}

// `node` as one of the pool: of kAnyOf and kAllOf the children come apart, and of kBytes the set is the last of sets_.
ExprId ExpressionPool::intern(Node node, std::span<const ExprId> of) {
  if (nodes_.size() * 2 >= table_.size()) rehash();
  const bool listed = node.kind == Kind::kAnyOf || node.kind == Kind::kAllOf;
  const std::size_t mask = table_.size() - 1;
  for (std::size_t slot = hash(node, of) & mask;; slot = (slot + 1) & mask) {
    if (table_[slot] == 0) {
      if (nodes_.size() >= max_nodes_)
        throw UnsupportedError(fmt::format("the grammar needs more than {} expressions", max_nodes_), "grammar",
                               "make it simpler, or raise the work budget");
      if (listed) {
        node.a = static_cast<std::uint32_t>(children_.size());
        node.b = static_cast<std::uint32_t>(of.size());
        children_.insert(children_.end(), of.begin(), of.end());
      }
      nodes_.push_back(node);
      table_[slot] = static_cast<std::uint32_t>(nodes_.size());
      return static_cast<ExprId>(nodes_.size() - 1);
    }
    const ExprId found = table_[slot] - 1;
    const Node& other = nodes_[found];
    if (other.kind != node.kind) continue;
    bool same = other.a == node.a && other.b == node.b && other.min == node.min && other.max == node.max;
    if (listed) same = std::ranges::equal(children(other), of);
    if (node.kind == Kind::kBytes) same = sets_[other.a] == sets_[node.a];
    if (!same) continue;
    return found;
  }
}

void ExpressionPool::rehash() {
  table_.assign(std::max<std::size_t>(1024, table_.size() * 2), 0);
  const std::size_t mask = table_.size() - 1;
  for (std::size_t id = 0; id < nodes_.size(); ++id) {
    const Node& node = nodes_[id];
    const bool listed = node.kind == Kind::kAnyOf || node.kind == Kind::kAllOf;
    std::size_t slot = hash(node, listed ? children(node) : std::span<const ExprId>()) & mask;
    while (table_[slot] != 0) slot = (slot + 1) & mask;
    table_[slot] = static_cast<std::uint32_t>(id + 1);
  }
}

ExprId ExpressionPool::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  sets_.push_back(set);
  const std::size_t before = nodes_.size();
  const ExprId id = intern({.kind = Kind::kBytes, .a = static_cast<std::uint32_t>(sets_.size() - 1)});
  if (nodes_.size() == before) sets_.pop_back();  // it was there
  return id;
}

ExprId ExpressionPool::literal(std::string_view text) {
  ExprId out = kEmptyString;
  for (std::size_t i = text.size(); i-- > 0;)
    out = concat(bytes(ByteSet::one(static_cast<std::uint8_t>(text[i]))), out);
  return out;
}

ExprId ExpressionPool::concat(std::initializer_list<ExprId> parts) {
  ExprId out = kEmptyString;
  for (const ExprId* part = parts.end(); part != parts.begin();) out = concat(*--part, out);
  return out;
}

// To the right: (a b) c is a (b c), and neighbouring repetitions of one expression are one.
ExprId ExpressionPool::concat(ExprId first, ExprId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (second == kEmptyString) return first;
  std::vector<ExprId> parts;
  for (; nodes_[first].kind == Kind::kConcat; first = nodes_[first].b) parts.push_back(nodes_[first].a);
  parts.push_back(first);
  for (std::size_t i = parts.size(); i-- > 0;) {
    const ExprId part = parts[i];
    if (part == kEmptyString) continue;
    if (second == kEmptyString) {
      second = part;
      continue;
    }
    const Node here = nodes_[part];
    const ExprId head = nodes_[second].kind == Kind::kConcat ? nodes_[second].a : second;
    const Node next = nodes_[head];
    const ExprId repeated = here.kind == Kind::kRepeat ? here.a : part;
    if (next.kind == Kind::kRepeat && next.a == repeated && (here.kind == Kind::kRepeat || next.max == kUnbounded)) {
      const std::uint32_t min = here.kind == Kind::kRepeat ? here.min : 1,
                          max = here.kind == Kind::kRepeat ? here.max : 1;
      const ExprId rest = head == second ? kEmptyString : nodes_[second].b;
      const ExprId joined = repeat(repeated, add(min, next.min), add(max, next.max));
      second = rest == kEmptyString ? joined : concat(joined, rest);
      continue;
    }
    second = intern({.kind = Kind::kConcat,
                     .nullable = here.nullable && nodes_[second].nullable,
                     .algebra = here.algebra || nodes_[second].algebra,
                     .counts = here.counts || nodes_[second].counts,
                     .a = part,
                     .b = second});
  }
  return second;
}

// Children of children of the same kind, without the neutral element; false where the absorbing one is among them.
bool ExpressionPool::flatten(std::vector<ExprId>& out, const std::vector<ExprId>& in, Kind kind, ExprId neutral,
                             ExprId absorbing) {
  for (const ExprId e : in) {
    if (e == absorbing) return false;
    if (e == neutral) continue;
    if (nodes_[e].kind == kind) {
      const auto inner = children(nodes_[e]);
      out.insert(out.end(), inner.begin(), inner.end());
    } else {
      out.push_back(e);
    }
  }
  sort_unique(out);
  return true;
}

// x a | x b is x (a | b), and x a | y a is [xy] a, where x and y are sets of bytes.
void ExpressionPool::join_heads(std::vector<ExprId>& choices) {
  ++join_depth_;
  std::map<ExprId, std::vector<ExprId>> tails;  // by head
  std::vector<ExprId> rest;
  for (const ExprId e : choices) {
    const Node& node = nodes_[e];
    if (node.kind == Kind::kBytes) {
      tails[e].push_back(kEmptyString);
    } else if (node.kind == Kind::kConcat && nodes_[node.a].kind == Kind::kBytes) {
      tails[node.a].push_back(node.b);
    } else {
      rest.push_back(e);
    }
  }
  std::map<ExprId, ByteSet> heads;  // by tail
  for (auto& [head, of] : tails) {
    const ExprId tail = of.size() == 1 ? of[0] : any_of(of);
    ByteSet& set = heads[tail];
    set = set | sets_[nodes_[head].a];
  }
  for (const auto& [tail, set] : heads) rest.push_back(concat(bytes(set), tail));
  sort_unique(rest);
  choices = std::move(rest);
  --join_depth_;
}

ExprId ExpressionPool::any_of(const std::vector<ExprId>& in) {
  std::vector<ExprId> choices;
  if (!flatten(choices, in, Kind::kAnyOf, kNothing, kAnything)) return kAnything;
  if (choices.empty()) return kNothing;
  if (choices.size() == 1) return choices[0];
  if (join_depth_ < kMaxJoinDepth) join_heads(choices);
  const auto nullable_besides = [&](ExprId e) { return e != kEmptyString && nodes_[e].nullable; };
  if (std::ranges::any_of(choices, nullable_besides)) std::erase(choices, kEmptyString);
  if (choices.size() == 1) return choices[0];
  Node node{.kind = Kind::kAnyOf};
  for (const ExprId e : choices) {
    node.nullable |= nodes_[e].nullable;
    node.algebra |= nodes_[e].algebra;
    node.counts |= nodes_[e].counts;
  }
  return intern(node, choices);
}

bool ExpressionPool::join_repetitions(std::vector<ExprId>& conditions) {
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    if (as(conditions[i], Kind::kRepeat) == nullptr) continue;
    for (std::size_t k = i + 1; k < conditions.size(); ++k) {
      if (as(conditions[k], Kind::kRepeat) == nullptr) continue;
      const auto joined = meet(conditions[i], conditions[k]);
      if (!joined) continue;
      conditions.erase(conditions.begin() + static_cast<std::ptrdiff_t>(k));
      conditions[i] = *joined;
      return true;
    }
  }
  return false;
}

ExprId ExpressionPool::all_of(const std::vector<ExprId>& in) {
  std::vector<ExprId> conditions;
  if (!flatten(conditions, in, Kind::kAllOf, kAnything, kNothing)) return kNothing;
  if (conditions.empty()) return kAnything;
  ByteSet set = ByteSet::all();
  bool single = false, nullable = true;
  for (const ExprId e : conditions) {
    nullable = nullable && nodes_[e].nullable;
    if (const Node* negated = as(e, Kind::kNot))
      if (std::ranges::binary_search(conditions, negated->a)) return kNothing;
    if (const Node* node = as(e, Kind::kBytes)) {
      set = set & sets_[node->a];
      single = true;
    }
  }
  if (std::ranges::binary_search(conditions, kEmptyString)) return nullable ? kEmptyString : kNothing;
  if (single) {
    std::erase_if(conditions, [&](ExprId e) { return nodes_[e].kind == Kind::kBytes; });
    const ExprId joined = bytes(set);
    if (joined == kNothing) return kNothing;
    conditions.push_back(joined);
    sort_unique(conditions);
  }
  if (conditions.size() == 1) return conditions[0];
  if (join_repetitions(conditions)) return all_of(conditions);
  Node node{.kind = Kind::kAllOf, .nullable = nullable, .algebra = true};
  for (const ExprId e : conditions) node.counts |= nodes_[e].counts;
  return intern(node, conditions);
}

ExprId ExpressionPool::negate(ExprId e) {
  if (e == kNothing) return kAnything;
  if (e == kAnything) return kNothing;
  const Node node = nodes_[e];
  if (node.kind == Kind::kNot) return node.a;
  return intern({.kind = Kind::kNot, .nullable = !node.nullable, .algebra = true, .counts = node.counts, .a = e});
}

ExprId ExpressionPool::repeat(ExprId e, std::uint32_t min, std::uint32_t max) {
  if (min > max) throw InvalidArgumentError(fmt::format("a repetition from {} to {} times", min, max), "grammar");
  if (max == 0 || e == kEmptyString) return kEmptyString;
  if (e == kNothing) return min == 0 ? kEmptyString : kNothing;
  if (e == kAnything) return kAnything;
  const Node node = nodes_[e];
  if (node.kind == Kind::kRepeat && node.min == 0 && node.max == kUnbounded) return e;
  if (node.kind == Kind::kAnyOf && std::ranges::find(children(node), kEmptyString) != children(node).end()) {
    std::vector<ExprId> others(children(node).begin(), children(node).end());
    std::erase(others, kEmptyString);
    return repeat(any_of(others), 0, max);
  }
  if (node.nullable) min = 0;
  if (min == 1 && max == 1) return e;
  return intern({.kind = Kind::kRepeat,
                 .nullable = min == 0,
                 .algebra = node.algebra,
                 .counts = node.counts || min > 1 || max != kUnbounded,
                 .a = e,
                 .min = min,
                 .max = max});
}

ExprId ExpressionPool::once(std::uint64_t key, const std::function<ExprId()>& make) {
  if (const auto known = once_.find(key); known != once_.end()) return known->second;
  return once_[key] = make();
}

ExprId ExpressionPool::rule(bool nullable) {
  bodies_.push_back(kNothing);
  return intern({.kind = Kind::kRule, .nullable = nullable, .a = static_cast<std::uint32_t>(bodies_.size() - 1)});
}

ExprId ExpressionPool::foreign(std::shared_ptr<Machine> machine) {
  machines_.push_back(std::move(machine));
  return foreign_state(static_cast<std::uint32_t>(machines_.size() - 1), machines_.back()->start());
}

// It may count inside, which its machine knows.
ExprId ExpressionPool::foreign_state(std::uint32_t machine, StateId state) {
  if (state == kDead) return kNothing;
  return intern({.kind = Kind::kForeign, .nullable = accepts(state), .counts = true, .a = machine, .b = state});
}

ExprId ExpressionPool::any_literal(const std::vector<std::string_view>& texts) {
  std::vector<std::vector<std::uint32_t>> bytes;
  bytes.reserve(texts.size());
  for (const std::string_view text : texts)
    bytes.emplace_back(reinterpret_cast<const std::uint8_t*>(text.data()),
                       reinterpret_cast<const std::uint8_t*>(text.data()) + text.size());
  return any_sequence(std::move(bytes),
                      [&](std::uint32_t byte) { return this->bytes(ByteSet::one(static_cast<std::uint8_t>(byte))); });
}

ExprId ExpressionPool::any_sequence(std::vector<std::vector<std::uint32_t>> sequences,
                                    const std::function<ExprId(std::uint32_t)>& symbol) {
  std::sort(sequences.begin(), sequences.end());
  sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
  // Choices on the way to the last sequence, from the root; each is closed when no later one passes it.
  std::vector<std::vector<ExprId>> open(1);
  std::span<const std::uint32_t> last;
  const auto close_to = [&](std::size_t length) {
    while (open.size() > length + 1) {
      const ExprId rest = any_of(open.back());
      open.pop_back();
      open.back().push_back(concat(symbol(last[open.size() - 1]), rest));
    }
  };
  for (const auto& sequence : sequences) {
    const auto differs = std::ranges::mismatch(last, sequence).in1;
    close_to(static_cast<std::size_t>(differs - last.begin()));
    open.resize(sequence.size() + 1);
    open.back().push_back(kEmptyString);
    last = sequence;
  }
  close_to(0);
  return any_of(open[0]);
}

ExprId ExpressionPool::derive(ExprId e, std::uint8_t byte) {
  switch (nodes_[e].kind) {
    case Kind::kVoid:
    case Kind::kEpsilon:
      return kNothing;
    case Kind::kBytes:
      return sets_[nodes_[e].a].contains(byte) ? kEmptyString : kNothing;
    case Kind::kForeign: {
      const Node node = nodes_[e];
      return foreign_state(node.a, machines_[node.a]->step(node.b, byte));
    }
    default:
      break;
  }
  const std::uint64_t key = (static_cast<std::uint64_t>(e) << 8) | byte;
  if (const auto known = derived_.find(key); known != derived_.end()) return known->second;
  if (derive_depth_ >= kMaxDeriveDepth)
    throw UnsupportedError(fmt::format("expressions nested more than {} deep", kMaxDeriveDepth), "grammar",
                           "flatten its rules");
  const Depth level(derive_depth_);
  const ExprId result = derive_node(e, byte);
  if (derived_.size() >= kMaxDerived) derived_.clear();
  derived_.emplace(key, result);
  return result;
}

ExprId ExpressionPool::derive_node(ExprId e, std::uint8_t byte) {
  const Node node = nodes_[e];
  std::vector<ExprId> parts;
  switch (node.kind) {
    case Kind::kConcat:
      for (ExprId at = e;;) {
        const Node here = nodes_[at];
        if (here.kind != Kind::kConcat) {
          parts.push_back(derive(at, byte));
          break;
        }
        parts.push_back(concat(derive(here.a, byte), here.b));
        if (!nodes_[here.a].nullable) break;
        at = here.b;
      }
      return parts.size() == 1 ? parts[0] : any_of(parts);
    case Kind::kAnyOf:
    case Kind::kAllOf:
      for (std::uint32_t i = 0; i < node.b; ++i) parts.push_back(derive(children_[node.a + i], byte));
      return node.kind == Kind::kAnyOf ? any_of(parts) : all_of(parts);
    case Kind::kNot:
      return negate(derive(node.a, byte));
    case Kind::kRule:
      return derive(bodies_[node.a], byte);
    case Kind::kRepeat: {
      const ExprId rest =
          repeat(node.a, node.min == 0 ? 0 : node.min - 1, node.max == kUnbounded ? kUnbounded : node.max - 1);
      return concat(derive(node.a, byte), rest);
    }
    default:
      return kNothing;
  }
}

void ExpressionPool::new_mark() {
  marks_.resize(nodes_.size());
  if (++mark_ == 0) std::ranges::fill(marks_, mark_++);
}

void ExpressionPool::first_sets(ExprId e, std::vector<std::uint32_t>& sets, std::vector<ExprId>& foreign) {
  for (;;) {
    if (marks_[e] == mark_) return;
    marks_[e] = mark_;
    const Node& node = nodes_[e];
    switch (node.kind) {
      case Kind::kBytes:
        sets.push_back(node.a);
        return;
      case Kind::kConcat:
        first_sets(node.a, sets, foreign);
        if (!nodes_[node.a].nullable) return;
        e = node.b;
        continue;
      case Kind::kNot:
      case Kind::kRepeat:
        e = node.a;
        continue;
      case Kind::kRule:
        e = bodies_[node.a];
        continue;
      case Kind::kAnyOf:
      case Kind::kAllOf:
        for (const ExprId child : children(node)) first_sets(child, sets, foreign);
        return;
      case Kind::kForeign:
        foreign.push_back(e);
        return;
      default:
        return;
    }
  }
}

ByteClasses ExpressionPool::classes(ExprId e) {
  std::vector<std::uint32_t> sets;
  std::vector<ExprId> foreign;
  new_mark();
  first_sets(e, sets, foreign);
  ByteClasses out;
  std::size_t count = 1;
  for (const std::uint32_t set : sets) {  // split every class that the set cuts
    std::array<std::int16_t, 256> inside, outside;
    inside.fill(-1);
    outside.fill(-1);
    std::size_t made = 0;
    for (int byte = 0; byte < 256; ++byte) {
      auto& named = sets_[set].contains(static_cast<std::uint8_t>(byte)) ? inside : outside;
      std::int16_t& name = named[out.class_of[byte]];
      if (name < 0) name = static_cast<std::int16_t>(made++);
      out.class_of[byte] = static_cast<std::uint8_t>(name);
    }
    count = made;
    if (count == 256) break;
  }
  for (const ExprId of : foreign) {  // the same by its machine's successors
    if (count == 256) break;
    std::array<StateId, 256> next;
    machines_[nodes_[of].a]->successors(nodes_[of].b, next);
    std::unordered_map<std::uint64_t, std::uint8_t> names;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint64_t key = (std::uint64_t{out.class_of[byte]} << 32) | next[byte];
      out.class_of[byte] = names.try_emplace(key, static_cast<std::uint8_t>(names.size())).first->second;
    }
    count = names.size();
  }
  out.representatives.resize(count);
  for (int byte = 255; byte >= 0; --byte) out.representatives[out.class_of[byte]] = static_cast<std::uint8_t>(byte);
  return out;
}

bool ExpressionPool::is_nothing(ExprId e) {
  if (e == kNothing) return true;
  const Node node = nodes_[e];
  if (!node.algebra || node.nullable) return false;
  if (const auto known = empty_.find(e); known != empty_.end()) return known->second;
  // What is built of parts is as empty as they are; only conditions and complements need a search.
  switch (node.kind) {
    case Kind::kConcat:
      for (ExprId at = e;; at = nodes_[at].b) {
        const Node& here = nodes_[at];
        if (here.kind != Kind::kConcat) return empty_[e] = is_nothing(at);
        if (is_nothing(here.a)) return empty_[e] = true;
      }
    case Kind::kAnyOf:
      for (std::uint32_t i = 0; i < node.b; ++i)
        if (!is_nothing(children_[node.a + i])) return empty_[e] = false;
      return empty_[e] = true;
    case Kind::kRepeat:
      return empty_[e] = is_nothing(node.a);
    case Kind::kAllOf:
      return !is_infinite_rest(node) && search(e);
    default:
      return search(e);
  }
}

// Infinitely many strings of one repetition without finitely many.
bool ExpressionPool::is_infinite_rest(const Node& node) {
  const Node* repeated = nullptr;
  for (const ExprId child : children(node)) {
    const Node& part = nodes_[child];
    if (part.kind == Kind::kNot && is_finite(part.a)) continue;
    if (part.kind != Kind::kRepeat || part.max != kUnbounded || part.algebra || repeated != nullptr) return false;
    repeated = &part;
  }
  return repeated != nullptr;
}

// Breadth first through the derivatives for one that is surely not empty.
bool ExpressionPool::search(ExprId from) {
  struct Visit {
    ExprId state;
    std::size_t parent;
  };
  std::vector<Visit> visits{{from, 0}};
  std::unordered_map<ExprId, std::size_t> seen{{from, 0}};
  const auto reached = [&](std::size_t at) {
    for (;; at = visits[at].parent) {
      empty_[visits[at].state] = false;
      if (at == 0) return false;
    }
  };
  for (std::size_t at = 0; at < visits.size(); ++at) {
    const ExprId state = visits[at].state;
    const ByteClasses split = classes(state);
    for (const std::uint8_t byte : split.representatives) {
      const ExprId next = derive(state, byte);
      if (next == kNothing) continue;
      const auto known = empty_.find(next);
      if (known != empty_.end() && known->second) continue;
      if (nodes_[next].nullable || !nodes_[next].algebra || known != empty_.end()) return reached(at);
      if (!seen.emplace(next, visits.size()).second) continue;
      if (visits.size() >= max_search_)
        throw UnsupportedError(
            fmt::format("whether a part of the grammar has any string is open after {} steps", max_search_), "grammar",
            "simplify what it intersects or excludes, or raise the work budget");
      visits.push_back({next, at});
    }
  }
  for (const Visit& visit : visits) empty_[visit.state] = true;
  return true;
}

ExprId ExpressionPool::clamp(ExprId e, std::uint32_t bytes) {
  const Node node = nodes_[e];
  if (!node.counts) return e;
  switch (node.kind) {
    case Kind::kConcat: {
      std::vector<ExprId> parts;
      ExprId at = e;
      for (; nodes_[at].kind == Kind::kConcat; at = nodes_[at].b) parts.push_back(clamp(nodes_[at].a, bytes));
      ExprId out = clamp(at, bytes);
      for (std::size_t i = parts.size(); i-- > 0;) out = concat(parts[i], out);
      return out;
    }
    case Kind::kAnyOf: {
      std::vector<ExprId> choices;
      choices.reserve(node.b);
      for (std::uint32_t i = 0; i < node.b; ++i) choices.push_back(clamp(children_[node.a + i], bytes));
      return any_of(choices);
    }
    case Kind::kRepeat:
      return repeat(clamp(node.a, bytes), std::min(node.min, add(bytes, 1)), node.max > bytes ? kUnbounded : node.max);
    case Kind::kForeign:
      return foreign_state(node.a, machines_[node.a]->mask_state(node.b, bytes));
    case Kind::kAllOf:
      return clamp_length(e, bytes);
    default:
      return e;
  }
}

std::size_t ExpressionPool::memory_bytes() const {
  std::size_t foreign = 0;
  for (const auto& machine : machines_) foreign += machine->memory_bytes();
  return foreign + nodes_.capacity() * sizeof(Node) + children_.capacity() * 4 + sets_.capacity() * sizeof(ByteSet) +
         table_.capacity() * 4 + (derived_.size() + once_.size()) * 32 +
         (empty_.size() + finite_.size() + prefix_codes_.size()) * 24 +
         (first_bytes_.size() + hashes_.size() + runs_.size()) * 56;
}

}  // namespace coreai::grammar
