// A context-free grammar as read: rules of choices, sequences and repetitions over sets of code points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/code_points.h"

namespace coreai::grammar {

using AstId = std::uint32_t;

struct AstNode {
  enum class Kind : std::uint8_t { kSet, kLiteral, kExpression, kRule, kSequence, kChoice, kRepeat };
  bool is_leaf() const { return kind < Kind::kRule; }
  Kind kind = Kind::kSequence;
  bool nullable = false;           // kExpression: whether its empty text counts
  ExprId expression = kNothing;    // kExpression: of the pool that the grammar is built in; some text belongs to it
  std::uint32_t rule = 0;          // kRule
  std::uint32_t min = 0, max = 0;  // kRepeat
  std::string text{};              // kLiteral: bytes
  CodePointSet set{};              // kSet
  std::vector<AstId> children{};   // an empty sequence is the empty text, an empty choice no text at all
};

struct AstRule {
  std::string name;
  AstId body = 0;
};

// Nodes are made before the nodes that hold them, but for the bodies of rules.
class GrammarAst {
 public:
  AstId add(AstNode node) {
    nodes_.push_back(std::move(node));
    return static_cast<AstId>(nodes_.size() - 1);
  }
  AstId empty_text() { return add({.kind = AstNode::Kind::kSequence}); }
  AstId sequence(std::vector<AstId> parts);
  AstId choice(std::vector<AstId> parts);
  AstId leaf(ExpressionPool& pool, ExprId expression);  // no text at all where none belongs to it
  AstId literal(std::string text);
  AstId reference(std::uint32_t rule) { return add({.kind = AstNode::Kind::kRule, .rule = rule}); }
  std::uint32_t add_rule(std::string name) {
    rules_.push_back({std::move(name), 0});
    return static_cast<std::uint32_t>(rules_.size() - 1);
  }

  // Whether tokens are terminals of it.
  bool names_tokens() const { return names_tokens_; }
  AstId token_leaf(ExpressionPool& pool, ExprId tokens) {
    names_tokens_ = true;
    return leaf(pool, tokens);
  }

  const AstNode& node(AstId id) const { return nodes_[id]; }
  std::size_t size() const { return nodes_.size(); }
  std::vector<AstRule>& rules() { return rules_; }
  const std::vector<AstRule>& rules() const { return rules_; }

 private:
  std::vector<AstNode> nodes_;
  std::vector<AstRule> rules_;
  bool names_tokens_ = false;
};

// What rules can do, by least fixed point.
struct RuleFacts {
  std::vector<bool> nullable;    // the empty text belongs to the rule
  std::vector<bool> productive;  // some text belongs to it
};
RuleFacts analyse_rules(const GrammarAst& ast);
// Whether the empty text belongs to a node, given it for the nodes before.
bool node_nullable(const GrammarAst& ast, const RuleFacts& facts, const std::vector<bool>& before, AstId id);
std::vector<bool> nullable_nodes(const GrammarAst& ast, const RuleFacts& facts);

// Rewrites every rule that may begin with itself, also through others or behind what may be empty, into one that does
// not and holds the same texts. Throws UnsupportedError beyond `max_nodes`.
void remove_left_recursion(GrammarAst& ast, std::size_t max_nodes);

// The grammar from the node `start` as an expression with rules. Left recursion must be gone.
ExprId grammar_expression(ExpressionPool& pool, const GrammarAst& ast, AstId start);

}  // namespace coreai::grammar
