// Grammars in the EBNF that llama.cpp calls GBNF and xgrammar reads too.
// Sources: llama.cpp, grammars/README.md; xgrammar, "EBNF grammar" of its documentation.
#pragma once

#include <string_view>

#include "coreai/grammar/tokenizer_info.h"
#include "grammar/grammar_ast.h"

namespace coreai::grammar {

// Adds the rules to `ast`, whose other rules it does not see, and gives the node of `start`.
// Throws MalformedError (offset: byte of the text; the message has line and column) for broken syntax, a rule that is
// used but not defined or defined twice; InvalidArgumentError for a token that the vocabulary
// lacks; UnsupportedError for what is not built: look-ahead, options of rules, other macros than TagDispatch,
// TokenTagDispatch, Token and ExcludeToken.
AstId parse_ebnf(std::string_view text, std::string_view start, GrammarAst& ast, ExpressionPool& pool,
                 const TokenizerInfo& tokenizer);

}  // namespace coreai::grammar
