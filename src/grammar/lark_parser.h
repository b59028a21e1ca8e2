// Grammars in the dialect of Lark that llguidance and xgrammar read: rules, terminals, %import common, %ignore, %json,
// %regex and tokens. A grammar stands for all texts that can be derived from it; no lexer chooses between terminals.
// Sources: Lark, "Grammar Reference" of its documentation and its library common.lark; llguidance, docs/syntax.md.
#pragma once

#include <string_view>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/grammar_ast.h"

namespace coreai::grammar {

// Adds the rules to `ast`, and to `dropped` what its schemas leave out, and gives the node of the rule `start`. Throws
// MalformedError (offset: byte of the text; the message has line and column) for broken syntax and names that are not
// defined or defined twice; InvalidArgumentError for a token that the vocabulary lacks or a schema without a value;
// UnsupportedError for what is not built: other grammars (@name, %lark), templates, priorities, captures, `stop`,
// `max_tokens` and `temperature` of rules.
AstId parse_lark(std::string_view text, const JsonSchemaOptions& options, const GrammarCompilerOptions& budget,
                 GrammarAst& ast, ExpressionPool& pool, const TokenizerInfo& tokenizer,
                 std::vector<DroppedKeyword>& dropped);

}  // namespace coreai::grammar
