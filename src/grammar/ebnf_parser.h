// Grammars in the EBNF that llama.cpp calls GBNF and xgrammar reads too.
// Sources: llama.cpp, grammars/README.md; xgrammar, "EBNF grammar" of its documentation.
#pragma once

#include <string_view>

#include "grammar/grammar_ast.h"

namespace coreai::grammar {

struct EbnfGrammar {
  GrammarAst ast;
  std::uint32_t start = 0;
};

// Throws MalformedError (offset: byte of the text; the message has line and column) for broken syntax, a rule that is
// used but not defined or defined twice; UnsupportedError for what is not built: tokens as terminals, look-ahead,
// macros.
EbnfGrammar parse_ebnf(std::string_view text, std::string_view start);

}  // namespace coreai::grammar
