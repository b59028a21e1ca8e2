// Structural tags: JSON that says where free text, fixed texts, schemas and grammars follow each other.
// Source: xgrammar, "Structural tag" of its documentation.
#pragma once

#include <string_view>
#include <vector>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/grammar_ast.h"

namespace coreai::grammar {

struct StructuralTag {
  AstId start = 0;
  std::vector<DroppedKeyword> dropped;  // pointers from the structural tag's own "#"
};

// Throws MalformedError (no JSON, or a broken pattern or grammar inside), InvalidArgumentError (a field is missing or
// means nothing, or no text belongs to a part; where: JSON pointer), UnsupportedError (a type or field that is not
// built, or beyond the work budget; where: JSON pointer).
StructuralTag parse_structural_tag(std::string_view json, const JsonSchemaOptions& options,
                                   const GrammarCompilerOptions& budget, GrammarAst& ast, ExpressionPool& pool,
                                   const TokenizerInfo& tokenizer);

}  // namespace coreai::grammar
