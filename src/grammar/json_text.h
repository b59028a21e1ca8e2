// How JSON (RFC 8259) writes strings and numbers, as expressions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/code_points.h"
#include "grammar/expression.h"

namespace coreai::grammar {

// Inside a JSON string: a character itself, its short escape, \uXXXX with digits of either case, a pair of surrogates.
// Lone surrogates stand for no character and are not written.
class JsonStringEncoder : public CodePointEncoder {
 public:
  ExprId encode(ExpressionPool& pool, const CodePointSet& set) const override;
};

// One text between the quotes, in every way in which it may be written; of several, joined by their beginnings.
ExprId json_string_body(ExpressionPool& pool, std::string_view text);
ExprId json_string_bodies(ExpressionPool& pool, const std::vector<std::string_view>& texts);
// The shortest way to write it.
std::string json_escaped(std::string_view text);
// A string whose characters, without the quotes, are one of `body`.
ExprId json_string(ExpressionPool& pool, ExprId body);
// A pool that holds the characters and numbers of JSON already: making them anew for each grammar takes longer.
std::unique_ptr<ExpressionPool> new_json_pool(std::size_t max_nodes, std::size_t max_search);
// One character of white space.
ExprId json_blank(ExpressionPool& pool);
// Any value, an object or an array, with `space` wherever white space may stand inside; none before or after.
ExprId json_value(ExpressionPool& pool, JsonRoot root, ExprId space);

}  // namespace coreai::grammar
