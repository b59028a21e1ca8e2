#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "coreai/base/error.h"
#include "grammar/grammar_ast.h"

namespace coreai::grammar {
namespace {

using Kind = AstNode::Kind;

// Rules that each may begin with each other, found by Tarjan's algorithm on "may begin with".
class LeftCalls {
 public:
  explicit LeftCalls(const GrammarAst& ast)
      : ast_(ast), nullable_(nullable_nodes(ast, analyse_rules(ast))), seen_(ast.size()), calls_(ast.rules().size()) {
    for (std::uint32_t rule = 0; rule < calls_.size(); ++rule) collect(ast.rules()[rule].body, rule);
  }

  // Groups with more than one rule, or with one that calls itself.
  std::vector<std::vector<std::uint32_t>> recursive_groups() const {
    std::vector<std::vector<std::uint32_t>> out;
    const std::size_t n = calls_.size();
    std::vector<std::uint32_t> index(n), low(n), stack;
    std::vector<bool> on_stack(n);
    std::uint32_t next = 0;
    struct Frame {
      std::uint32_t rule;
      std::set<std::uint32_t>::const_iterator at;
    };
    for (std::uint32_t root = 0; root < n; ++root) {
      if (index[root] != 0) continue;
      std::vector<Frame> frames;
      const auto enter = [&](std::uint32_t rule) {
        index[rule] = low[rule] = ++next;
        stack.push_back(rule);
        on_stack[rule] = true;
        frames.push_back({rule, calls_[rule].begin()});
      };
      enter(root);
      while (!frames.empty()) {
        Frame& frame = frames.back();
        const std::uint32_t rule = frame.rule;
        if (frame.at != calls_[rule].end()) {
          const std::uint32_t callee = *frame.at++;
          if (index[callee] == 0) {
            enter(callee);
          } else if (on_stack[callee]) {
            low[rule] = std::min(low[rule], index[callee]);
          }
          continue;
        }
        frames.pop_back();
        if (!frames.empty()) low[frames.back().rule] = std::min(low[frames.back().rule], low[rule]);
        if (low[rule] != index[rule]) continue;
        std::vector<std::uint32_t> group;
        do {
          group.push_back(stack.back());
          on_stack[stack.back()] = false;
          stack.pop_back();
        } while (group.back() != rule);
        if (group.size() > 1 || calls_[rule].contains(rule)) out.push_back(std::move(group));
      }
    }
    return out;
  }

 private:
  void collect(AstId id, std::uint32_t rule) {
    if (seen_[id] == rule + 1) return;
    seen_[id] = rule + 1;
    const AstNode& node = ast_.node(id);
    if (node.kind == Kind::kRule) calls_[rule].insert(node.rule);
    for (const AstId child : node.children) {
      collect(child, rule);
      if (node.kind == Kind::kSequence && !nullable_[child]) return;
    }
  }

  const GrammarAst& ast_;
  std::vector<bool> nullable_;
  std::vector<std::uint32_t> seen_;  // per node: 1 + the last rule that met it
  std::vector<std::set<std::uint32_t>> calls_;
};

// A group of rules A_i, each without the empty text, is A_i = union of A_j a(i,j), and b(i), where neither b(i) begins
// with a rule of the group nor holds the empty text. Its least solution is A_i = union of b(j) T(j,i), where T(j,i) are
// the ways from j to i: T(j,i) = {empty if j = i} and a(k,j) T(k,i) for all k. These rules begin with b or a.
// Source: Arden's rule for matrices, Arden, "Delayed-logic and finite-state machines", 1961.
class Rewriter {
 public:
  Rewriter(GrammarAst& ast, std::size_t max_nodes) : ast_(ast), facts_(analyse_rules(ast)), max_nodes_(max_nodes) {}

  void rewrite(const std::vector<std::uint32_t>& group) {
    for (const std::uint32_t rule : group) places_[rule] = places_.size();
    const std::size_t n = group.size();
    std::vector<Split> splits;
    splits.reserve(n);
    std::vector<AstId> bodies;
    bodies.reserve(n);
    for (const std::uint32_t rule : group) bodies.push_back(ast_.rules()[rule].body);
    // The rule keeps its name for "the rule, or the empty text"; its texts without the empty one get a new rule.
    for (const std::uint32_t rule : group) solid_.emplace(rule, ast_.add_rule(ast_.rules()[rule].name));
    grow_facts();
    for (const AstId body : bodies) splits.push_back(split(nonempty(body)));

    // a(i,j) by where it leads from: from[j] are the pairs (i, a(i,j)), and `same` those with an empty a.
    std::vector<std::vector<bool>> same(n, std::vector<bool>(n));
    std::vector<std::vector<std::vector<AstId>>> step(n, std::vector<std::vector<AstId>>(n));
    for (std::size_t i = 0; i < n; ++i) {
      same[i][i] = true;
      for (const auto& [from, rest] : splits[i].recursive) {
        const std::size_t j = places_.at(from);
        if (nullable(rest)) same[j][i] = true;
        if (const auto solid = nonempty(rest)) step[j][i].push_back(*solid);
      }
    }
    for (std::size_t via = 0; via < n; ++via)
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t i = 0; i < n; ++i)
          if (same[j][via] && same[via][i]) same[j][i] = true;

    std::vector<std::vector<std::uint32_t>> ways(n);
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t i = 0; i < n; ++i) ways[j].push_back(ast_.add_rule(ast_.rules()[group[i]].name));
    grow_facts();
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<AstId> choices;
        for (std::size_t via = 0; via < n; ++via) {
          if (!same[j][via]) continue;
          if (via == i) choices.push_back(ast_.empty_text());
          for (std::size_t k = 0; k < n; ++k)
            for (const AstId rest : step[via][k]) choices.push_back(ast_.sequence({rest, ast_.reference(ways[k][i])}));
        }
        ast_.rules()[ways[j][i]].body = ast_.choice(std::move(choices));
        check();
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<AstId> choices;
      for (std::size_t j = 0; j < n; ++j)
        for (const AstId first : splits[j].others)
          choices.push_back(ast_.sequence({first, ast_.reference(ways[j][i])}));
      ast_.rules()[solid_.at(group[i])].body = ast_.choice(std::move(choices));
      std::vector<AstId> whole{ast_.reference(solid_.at(group[i]))};
      if (facts_.nullable[group[i]]) whole.push_back(ast_.empty_text());
      ast_.rules()[group[i]].body = ast_.choice(std::move(whole));
      check();
    }
  }

 private:
  struct Split {
    std::vector<std::pair<std::uint32_t, AstId>> recursive;  // a rule of the group and what follows it
    std::vector<AstId> others;
  };

  void grow_facts() {
    facts_.nullable.resize(ast_.rules().size(), false);  // new rules hold no empty text, or are not asked
    facts_.productive.resize(ast_.rules().size(), true);
  }
  bool nullable(AstId id) {
    if (nullable_.size() < ast_.size()) {
      const std::size_t known = nullable_.size();
      nullable_.resize(ast_.size());
      for (std::size_t at = known; at < ast_.size(); ++at)
        nullable_[at] = node_nullable(ast_, facts_, nullable_, static_cast<AstId>(at));
    }
    return nullable_[id];
  }
  void check() const {
    if (ast_.size() > max_nodes_)
      throw UnsupportedError(fmt::format("the grammar grows beyond {} nodes without its left recursion", max_nodes_),
                             "grammar", "write the rules so that they do not begin with themselves");
  }

  // The texts of `id` without the empty one; nothing where no other is known.
  std::optional<AstId> nonempty(AstId id) {
    check();
    const AstNode node = ast_.node(id);
    switch (node.kind) {
      case Kind::kSet:
        return id;
      case Kind::kLiteral:
        return node.text.empty() ? std::nullopt : std::optional(id);
      case Kind::kExpression: {
        if (!node.nullable) return id;
        if (node.expression == kEmptyString) return std::nullopt;
        AstNode solid = node;
        solid.nullable = false;
        return ast_.add(std::move(solid));
      }
      case Kind::kRule:
        return nonempty_rule(node.rule, id);
      case Kind::kChoice: {
        std::vector<AstId> choices;
        for (const AstId child : node.children)
          if (const auto part = nonempty(child)) choices.push_back(*part);
        return choices.empty() ? std::nullopt : std::optional(ast_.choice(std::move(choices)));
      }
      case Kind::kSequence: {  // the first part that is not empty, and all that follow
        std::vector<AstId> choices;
        for (std::size_t i = 0; i < node.children.size(); ++i) {
          if (const auto part = nonempty(node.children[i])) {
            std::vector<AstId> parts{*part};
            parts.insert(parts.end(), node.children.begin() + static_cast<std::ptrdiff_t>(i) + 1, node.children.end());
            choices.push_back(ast_.sequence(std::move(parts)));
          }
          if (!nullable(node.children[i])) break;
        }
        return choices.empty() ? std::nullopt : std::optional(ast_.choice(std::move(choices)));
      }
      case Kind::kRepeat: {
        const auto part = nonempty(node.children[0]);
        if (!part || node.max == 0) return std::nullopt;
        const std::uint32_t min = nullable(node.children[0]) || node.min == 0 ? 0 : node.min - 1;
        const std::uint32_t max = node.max == kUnbounded ? kUnbounded : node.max - 1;
        const AstId rest = ast_.add({.kind = Kind::kRepeat, .min = min, .max = max, .children = node.children});
        return ast_.sequence({*part, rest});
      }
    }
    return std::nullopt;
  }

  std::optional<AstId> nonempty_rule(std::uint32_t rule, AstId reference) {
    if (const auto known = solid_.find(rule); known != solid_.end()) return ast_.reference(known->second);
    if (!facts_.nullable[rule]) return reference;
    const std::uint32_t made = ast_.add_rule(ast_.rules()[rule].name);
    solid_.emplace(rule, made);
    grow_facts();
    const auto body = nonempty(ast_.rules()[rule].body);
    ast_.rules()[made].body = body ? *body : ast_.choice({});
    return ast_.reference(made);
  }

  // A node without the empty text, by whether it begins with a rule of the group.
  Split split(std::optional<AstId> id) {
    Split out;
    if (!id) return out;
    const AstNode node = ast_.node(*id);
    switch (node.kind) {
      case Kind::kRule:
        for (const auto& [rule, place] : places_)
          if (solid_.at(rule) == node.rule) {
            out.recursive.emplace_back(rule, ast_.empty_text());
            return out;
          }
        out.others.push_back(*id);
        return out;
      case Kind::kChoice:
        for (const AstId child : node.children) {
          Split part = split(child);
          out.recursive.insert(out.recursive.end(), part.recursive.begin(), part.recursive.end());
          out.others.insert(out.others.end(), part.others.begin(), part.others.end());
        }
        return out;
      case Kind::kSequence: {
        if (nullable(node.children[0])) return split(nonempty(*id));
        const std::vector<AstId> rest(node.children.begin() + 1, node.children.end());
        Split first = split(node.children[0]);
        const AstId after = ast_.sequence(rest);
        for (auto& [rule, follows] : first.recursive) out.recursive.emplace_back(rule, ast_.sequence({follows, after}));
        for (const AstId other : first.others) out.others.push_back(ast_.sequence({other, after}));
        return out;
      }
      case Kind::kRepeat:
        if (begins_with_group(node.children[0])) return split(nonempty(*id));
        out.others.push_back(*id);
        return out;
      default:
        out.others.push_back(*id);
        return out;
    }
  }

  bool begins_with_group(AstId id) {
    const AstNode& node = ast_.node(id);
    if (node.kind == Kind::kRule)
      return std::ranges::any_of(
          places_, [&](const auto& place) { return place.first == node.rule || solid_.at(place.first) == node.rule; });
    for (const AstId child : node.children) {
      if (begins_with_group(child)) return true;
      if (node.kind == Kind::kSequence && !nullable(child)) return false;
    }
    return false;
  }

  GrammarAst& ast_;
  RuleFacts facts_;
  std::size_t max_nodes_;
  std::vector<bool> nullable_;                    // per node, as far as it was asked for
  std::map<std::uint32_t, std::size_t> places_;   // rules of the group
  std::map<std::uint32_t, std::uint32_t> solid_;  // rule to the rule of its texts without the empty one
};

}  // namespace

void remove_left_recursion(GrammarAst& ast, std::size_t max_nodes) {
  // Groups come callees first. Copying a rule without its empty text copies its calls, so the question is put again.
  for (;;) {
    const auto groups = LeftCalls(ast).recursive_groups();
    if (groups.empty()) return;
    Rewriter(ast, max_nodes).rewrite(groups.front());
  }
}

}  // namespace coreai::grammar
