#include "grammar/lark_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "coreai/base/error.h"
#include "grammar/lark_syntax.h"

namespace coreai::grammar {
namespace {

using Kind = LarkNode::Kind;

class Builder {
 public:
  Builder(std::string_view text, const LarkSyntax& syntax, GrammarAst& ast, ExpressionPool& pool)
      : text_(text), syntax_(syntax), ast_(ast), pool_(pool) {}

  AstId build() {
    if (!syntax_.named.contains("start")) malformed("there is no rule 'start'", 0);
    std::vector<ExprId> ignored;
    ignored.reserve(syntax_.ignored.size());
    for (const LarkId id : syntax_.ignored) ignored.push_back(terminal(id));
    skip_ = pool_.repeat(pool_.any_of(ignored), 0);
    const AstId start = ast_.reference(rule("start"));
    for (std::size_t at = 0; at < open_.size(); ++at) define(std::string(open_[at]));  // more may be opened
    return syntax_.initial_ignored ? ast_.sequence({ast_.leaf(pool_, skip_), start}) : start;
  }

 private:
  [[noreturn]] void malformed(const std::string& what, std::size_t offset) const {
    throw MalformedError(what, lark_place(text_, offset), offset);
  }

  std::uint32_t rule(const std::string& name) {
    const auto [at, added] = rules_.try_emplace(name, 0);
    if (added) {
      at->second = ast_.add_rule(name);
      open_.push_back(name);
    }
    return at->second;
  }

  void define(const std::string& name) {
    const LarkDefinition& definition = syntax_.named.at(name);
    const bool lexeme = definition.lazy || definition.suffixed;
    const AstId body = lexeme ? this->lexeme(defined(definition)) : node(definition.body);
    ast_.rules()[rules_.at(name)].body = body;
  }

  // What is ignored may follow, but where nothing stands before it.
  AstId lexeme(ExprId text) {
    if (skip_ == kEmptyString || text == kEmptyString) return ast_.leaf(pool_, text);
    if (!pool_.nullable(text)) return ast_.leaf(pool_, pool_.concat(text, skip_));
    const ExprId solid = pool_.all_of({text, pool_.negate(kEmptyString)});
    return ast_.leaf(pool_, pool_.optional(pool_.concat(solid, skip_)));
  }

  // A part of a rule.
  AstId node(LarkId id) {
    const LarkNode& node = syntax_.nodes[id];
    switch (node.kind) {
      case Kind::kText:
      case Kind::kForeign:
        return lexeme(node.expression);
      case Kind::kTokens:
        return ast_.token_leaf(pool_, pool_.concat(node.expression, skip_));
      case Kind::kName:
        if (is_lark_terminal(node.name)) return lexeme(named_terminal(node));
        if (!syntax_.named.contains(node.name))
          malformed(fmt::format("the rule '{}' is not defined", node.name), node.offset);
        return ast_.reference(rule(node.name));
      case Kind::kAnd:
      case Kind::kNot:
        return lexeme(terminal(id));
      case Kind::kRepeat:
        return ast_.add({.kind = AstNode::Kind::kRepeat,
                         .min = node.min,
                         .max = node.max,
                         .children = {this->node(node.children[0])}});
      default: {
        std::vector<AstId> parts;
        parts.reserve(node.children.size());
        for (const LarkId child : node.children) parts.push_back(this->node(child));
        return node.kind == Kind::kChoice ? ast_.choice(std::move(parts)) : ast_.sequence(std::move(parts));
      }
    }
  }

  // A part of a terminal.
  ExprId terminal(LarkId id) {
    const LarkNode& node = syntax_.nodes[id];
    std::vector<ExprId> parts;
    parts.reserve(node.children.size());
    if (node.kind != Kind::kName)
      for (const LarkId child : node.children) parts.push_back(terminal(child));
    switch (node.kind) {
      case Kind::kText:
        return node.expression;
      case Kind::kForeign:
        malformed("a schema inside a terminal", node.offset);
      case Kind::kTokens:
        malformed("a token inside a terminal", node.offset);
      case Kind::kName:
        if (!is_lark_terminal(node.name))
          malformed(fmt::format("the rule '{}' inside a terminal", node.name), node.offset);
        return named_terminal(node);
      case Kind::kChoice:
        return pool_.any_of(parts);
      case Kind::kAnd:
        return pool_.all_of(parts);
      case Kind::kNot:
        return pool_.all_of({pool_.negate(parts[0]), pool_.repeat(utf8_expression(pool_, CodePointSet::all()), 0)});
      case Kind::kRepeat:
        return pool_.repeat(parts[0], node.min, node.max);
      case Kind::kSequence:
        break;
    }
    ExprId out = kEmptyString;
    for (std::size_t i = parts.size(); i-- > 0;) out = pool_.concat(parts[i], out);
    return out;
  }

  ExprId named_terminal(const LarkNode& node) {
    const auto definition = syntax_.named.find(node.name);
    if (definition == syntax_.named.end())
      malformed(fmt::format("the terminal '{}' is not defined", node.name), node.offset);
    const auto [at, added] = terminals_.try_emplace(node.name, kUnderWay);
    if (!added) {
      if (at->second == kUnderWay) malformed(fmt::format("the terminal '{}' holds itself", node.name), node.offset);
      return at->second;
    }
    if (++depth_ > kMaxDepth)
      throw UnsupportedError(fmt::format("terminals in terminals more than {} deep", kMaxDepth),
                             lark_place(text_, node.offset));
    const ExprId made = defined(definition->second);
    terminals_[node.name] = made;
    --depth_;
    return made;
  }

  ExprId defined(const LarkDefinition& definition) {
    ExprId out = terminal(definition.body);
    if (definition.suffixed) out = pool_.concat(out, terminal(definition.suffix));
    if (!definition.lazy && !definition.suffixed) return out;
    // Without those that begin with another of them.
    return pool_.all_of({out, pool_.negate(pool_.concat(out, pool_.repeat(pool_.bytes(ByteSet::all()), 1)))});
  }

  static constexpr ExprId kUnderWay = UINT32_MAX;
  static constexpr std::size_t kMaxDepth = 100;
  std::string_view text_;
  const LarkSyntax& syntax_;
  GrammarAst& ast_;
  ExpressionPool& pool_;
  ExprId skip_ = kEmptyString;
  std::map<std::string, std::uint32_t> rules_;
  std::vector<std::string> open_;
  std::map<std::string, ExprId> terminals_;
  std::size_t depth_ = 0;
};

}  // namespace

AstId parse_lark(std::string_view text, const JsonSchemaOptions& options, const GrammarCompilerOptions& budget,
                 GrammarAst& ast, ExpressionPool& pool, const TokenizerInfo& tokenizer,
                 std::vector<DroppedKeyword>& dropped) {
  LarkSyntax syntax = read_lark(text, options, budget, pool, tokenizer);
  std::ranges::move(syntax.dropped, std::back_inserter(dropped));
  return Builder(text, syntax, ast, pool).build();
}

}  // namespace coreai::grammar
