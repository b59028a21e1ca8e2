// Any text up to the first place where one of some texts is complete.
// Source: Aho and Corasick, "Efficient string matching: an aid to bibliographic search", CACM 1975.
#pragma once

#include <string>
#include <vector>

#include "grammar/grammar_ast.h"

namespace coreai::grammar {

struct FreeTextEnd {
  std::string text;  // not empty, UTF-8
  AstId then;        // what follows it; it may refer to the rule
};

// Makes `rule` well-formed UTF-8 text: with `may_end` any that holds none of the texts of `ends` and `excludes`, and
// any such text, one of `ends` and what follows it. An end counts where it is first complete; what is excluded may not
// be complete before the end begins. Throws UnsupportedError where the texts are long.
void define_free_text(GrammarAst& ast, ExpressionPool& pool, std::uint32_t rule, const std::vector<FreeTextEnd>& ends,
                      const std::vector<std::string>& excludes, bool may_end);

}  // namespace coreai::grammar
