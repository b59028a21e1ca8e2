#include "grammar/grammar_ast.h"

#include <algorithm>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

// One pass over the nodes: of_rule says what is known of rules, result[id] what follows for a node.
template <typename Leaf, typename Combine>
std::vector<bool> evaluate(const GrammarAst& ast, const std::vector<bool>& of_rule, Leaf&& leaf, Combine&& combine) {
  std::vector<bool> result(ast.size());
  for (AstId id = 0; id < ast.size(); ++id) {
    const AstNode& node = ast.node(id);
    switch (node.kind) {
      case AstNode::Kind::kRule:
        result[id] = of_rule[node.rule];
        break;
      case AstNode::Kind::kSet:
      case AstNode::Kind::kLiteral:
        result[id] = leaf(node);
        break;
      case AstNode::Kind::kSequence:
        result[id] = std::ranges::all_of(node.children, [&](AstId child) { return result[child]; });
        break;
      case AstNode::Kind::kChoice:
        result[id] = std::ranges::any_of(node.children, [&](AstId child) { return result[child]; });
        break;
      case AstNode::Kind::kRepeat:
        result[id] = combine(node, result[node.children[0]]);
        break;
    }
  }
  return result;
}

template <typename Leaf, typename Combine>
std::vector<bool> fixed_point(const GrammarAst& ast, Leaf&& leaf, Combine&& combine) {
  std::vector<bool> of_rule(ast.rules().size());
  for (bool changed = true; changed;) {
    changed = false;
    const std::vector<bool> result = evaluate(ast, of_rule, leaf, combine);
    for (std::size_t rule = 0; rule < of_rule.size(); ++rule) {
      if (of_rule[rule] || !result[ast.rules()[rule].body]) continue;
      of_rule[rule] = changed = true;
    }
  }
  return of_rule;
}

}  // namespace

AstId GrammarAst::sequence(std::vector<AstId> parts) {
  return parts.size() == 1 ? parts[0] : add({.kind = AstNode::Kind::kSequence, .children = std::move(parts)});
}

AstId GrammarAst::choice(std::vector<AstId> parts) {
  return parts.size() == 1 ? parts[0] : add({.kind = AstNode::Kind::kChoice, .children = std::move(parts)});
}

RuleFacts analyse_rules(const GrammarAst& ast) {
  return {.nullable = fixed_point(
              ast, [](const AstNode& node) { return node.kind == AstNode::Kind::kLiteral && node.text.empty(); },
              [](const AstNode& node, bool child) { return node.min == 0 || child; }),
          .productive = fixed_point(
              ast, [](const AstNode& node) { return node.kind == AstNode::Kind::kLiteral || !node.set.empty(); },
              [](const AstNode& node, bool child) { return node.min == 0 || child; })};
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

ExprId grammar_expression(ExpressionPool& pool, const GrammarAst& ast, std::uint32_t start) {
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
  return rules[start];
}

}  // namespace coreai::grammar
