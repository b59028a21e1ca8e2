#include "grammar/grammar_ast.h"

#include <algorithm>
#include <span>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

// Least fixed point, from the leaves up: a sequence holds where all its parts do, a choice where one does, a repetition
// also where it may be left out. What a rule's body is for its calls, a part is for the nodes above it.
template <typename Leaf>
std::vector<bool> fixed_point(const GrammarAst& ast, Leaf&& leaf) {
  const auto below = [&](const AstNode& node) -> std::span<const AstId> {
    if (node.kind == AstNode::Kind::kRule) return {&ast.rules()[node.rule].body, 1};
    return node.children;
  };
  std::vector<std::uint32_t> first(ast.size() + 1), above;  // above[first[id], first[id + 1]): the nodes that hold `id`
  for (AstId id = 0; id < ast.size(); ++id)
    for (const AstId child : below(ast.node(id))) ++first[child + 1];
  for (std::size_t id = 0; id < ast.size(); ++id) first[id + 1] += first[id];
  above.resize(first.back());
  std::vector<std::uint32_t> next(first.begin(), first.end() - 1), missing(ast.size(), 1);
  std::vector<bool> holds(ast.size());
  std::vector<AstId> open;
  for (AstId id = 0; id < ast.size(); ++id) {
    const AstNode& node = ast.node(id);
    for (const AstId child : below(node)) above[next[child]++] = id;
    if (node.kind == AstNode::Kind::kSequence) missing[id] = static_cast<std::uint32_t>(node.children.size());
    holds[id] = node.kind == AstNode::Kind::kSequence ? node.children.empty()
                : node.kind == AstNode::Kind::kRepeat ? node.min == 0
                                                      : node.is_leaf() && leaf(node);
    if (holds[id]) open.push_back(id);
  }
  while (!open.empty()) {
    const AstId id = open.back();
    open.pop_back();
    for (std::uint32_t at = first[id]; at < first[id + 1]; ++at) {
      const AstId parent = above[at];
      if (holds[parent] || --missing[parent] > 0) continue;
      holds[parent] = true;
      open.push_back(parent);
    }
  }
  std::vector<bool> of_rule;
  of_rule.reserve(ast.rules().size());
  for (const AstRule& rule : ast.rules()) of_rule.push_back(holds[rule.body]);
  return of_rule;
}

}  // namespace

AstId GrammarAst::sequence(std::vector<AstId> parts) {
  return parts.size() == 1 ? parts[0] : add({.kind = AstNode::Kind::kSequence, .children = std::move(parts)});
}

AstId GrammarAst::choice(std::vector<AstId> parts) {
  return parts.size() == 1 ? parts[0] : add({.kind = AstNode::Kind::kChoice, .children = std::move(parts)});
}

AstId GrammarAst::leaf(ExpressionPool& pool, ExprId expression) {
  if (pool.is_nothing(expression)) return choice({});
  return add({.kind = AstNode::Kind::kExpression, .nullable = pool.nullable(expression), .expression = expression});
}

AstId GrammarAst::literal(std::string text) {
  return add({.kind = AstNode::Kind::kLiteral, .text = std::move(text)});
}

RuleFacts analyse_rules(const GrammarAst& ast) {
  return {.nullable = fixed_point(ast,
                                  [](const AstNode& node) {
                                    return node.kind == AstNode::Kind::kExpression
                                               ? node.nullable
                                               : node.kind == AstNode::Kind::kLiteral && node.text.empty();
                                  }),
          .productive = fixed_point(
              ast, [](const AstNode& node) { return node.kind != AstNode::Kind::kSet || !node.set.empty(); })};
}

bool node_nullable(const GrammarAst& ast, const RuleFacts& facts, const std::vector<bool>& before, AstId id) {
  const AstNode& node = ast.node(id);
  const auto nullable = [&](AstId child) { return before[child]; };
  switch (node.kind) {
    case AstNode::Kind::kRule:
      return facts.nullable[node.rule];
    case AstNode::Kind::kSet:
      return false;
    case AstNode::Kind::kLiteral:
      return node.text.empty();
    case AstNode::Kind::kExpression:
      return node.nullable;
    case AstNode::Kind::kSequence:
      return std::ranges::all_of(node.children, nullable);
    case AstNode::Kind::kChoice:
      return std::ranges::any_of(node.children, nullable);
    case AstNode::Kind::kRepeat:
      return node.min == 0 || nullable(node.children[0]);
  }
  return false;
}

std::vector<bool> nullable_nodes(const GrammarAst& ast, const RuleFacts& facts) {
  std::vector<bool> out(ast.size());
  for (AstId id = 0; id < ast.size(); ++id) out[id] = node_nullable(ast, facts, out, id);
  return out;
}

ExprId grammar_expression(ExpressionPool& pool, const GrammarAst& ast, AstId start) {
  const RuleFacts facts = analyse_rules(ast);
  std::vector<ExprId> rules;
  rules.reserve(ast.rules().size());
  for (std::size_t rule = 0; rule < ast.rules().size(); ++rule)
    rules.push_back(facts.productive[rule] ? pool.rule(facts.nullable[rule]) : kNothing);
  std::vector<ExprId> built(ast.size());
  for (AstId id = 0; id < ast.size(); ++id) {
    const AstNode& node = ast.node(id);
    std::vector<ExprId> parts;
    parts.reserve(node.children.size());
    for (const AstId child : node.children) parts.push_back(built[child]);
    ExprId& out = built[id];
    switch (node.kind) {
      case AstNode::Kind::kSet:
        out = utf8_expression(pool, node.set);
        break;
      case AstNode::Kind::kLiteral:
        out = pool.literal(node.text);
        break;
      case AstNode::Kind::kExpression:
        out = node.expression;
        if (pool.nullable(out) && !node.nullable) out = pool.all_of({out, pool.negate(kEmptyString)});
        break;
      case AstNode::Kind::kRule:
        out = rules[node.rule];
        break;
      case AstNode::Kind::kChoice:
        out = pool.any_of(parts);
        break;
      case AstNode::Kind::kRepeat:
        out = pool.repeat(parts[0], node.min, node.max);
        break;
      case AstNode::Kind::kSequence:
        out = kEmptyString;
        for (std::size_t i = parts.size(); i-- > 0;) out = pool.concat(parts[i], out);
        break;
    }
  }
  for (std::size_t rule = 0; rule < rules.size(); ++rule)
    if (rules[rule] != kNothing) pool.define(rules[rule], built[ast.rules()[rule].body]);
  return built[start];
}

}  // namespace coreai::grammar
