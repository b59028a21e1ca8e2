// The text of a Lark grammar as a tree.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/expression.h"

namespace coreai::grammar {

using LarkId = std::uint32_t;

struct LarkNode {
  enum class Kind : std::uint8_t { kText, kForeign, kTokens, kName, kSequence, kChoice, kAnd, kNot, kRepeat };
  Kind kind = Kind::kSequence;
  std::uint32_t min = 0, max = 0;  // kRepeat
  std::size_t offset = 0;          // byte of the grammar
  ExprId expression = kNothing;    // kText, kForeign (a schema) and kTokens: one lexeme
  std::string name{};              // kName
  std::vector<LarkId> children{};
};

struct LarkDefinition {
  LarkId body = 0;
  std::size_t offset = 0;
  bool lazy = false;  // its shortest texts only
  bool suffixed = false;
  LarkId suffix = 0;  // behind it, and the first one ends it
};

struct LarkSyntax {
  std::vector<LarkNode> nodes;                  // children come before their parents
  std::map<std::string, LarkDefinition> named;  // rules and terminals
  std::vector<LarkId> ignored;
  std::vector<DroppedKeyword> dropped;  // of schemas; the reason says where the schema stands
  bool initial_ignored = false;         // also before the first lexeme
};

// Where a byte of a grammar is, for people.
std::string lark_place(std::string_view text, std::size_t offset);
// A terminal's name begins with a capital letter, after '_'.
bool is_lark_terminal(std::string_view name);

// Throws as parse_lark, but for names that are not defined.
LarkSyntax read_lark(std::string_view text, const JsonSchemaOptions& options, const GrammarCompilerOptions& budget,
                     ExpressionPool& pool, const TokenizerInfo& tokenizer);

}  // namespace coreai::grammar
