// Regular expressions of ECMA-262 (2024) under its `u` flag, with what its Annex B allows besides, as expressions.
#pragma once

#include <string_view>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/code_points.h"
#include "grammar/expression.h"
#include "grammar/regex_parser.h"

namespace coreai::grammar {

// Throws MalformedError (offset: byte of the pattern) where the syntax is broken, UnsupportedError for what is not
// regular or not built: back references, look-behind, word boundaries, \p, look-ahead or anchors inside an unbounded
// repetition, and for patterns beyond the pool's budget.
ExprId regex_expression(ExpressionPool& pool, std::string_view pattern, RegexMatch match,
                        const CodePointEncoder& encoder, const RegexSyntax& syntax = {});

}  // namespace coreai::grammar
