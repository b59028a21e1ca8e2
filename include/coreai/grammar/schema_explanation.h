// What becomes of each keyword of a JSON Schema.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/grammar/compiled_grammar.h"

namespace coreai::grammar {

enum class KeywordFate : std::uint8_t {
  kEnforced,
  kAnnotation,  // says nothing about which texts are accepted
  kUnused,      // a schema that no reference leads to: its keywords are not looked at
  kLeftOut,     // cannot be enforced; the lenient mode goes on without it
  kRefused,     // cannot be enforced, and the schema is refused for it
};
// "enforced", "annotation", "unused", "left out", "refused".
std::string_view keyword_fate_name(KeywordFate fate);

struct ExplainedKeyword {
  std::string pointer;  // JSON pointer of the keyword, from "#" or from the URI of its document
  KeywordFate fate = KeywordFate::kEnforced;
  std::string reason;  // why it is not enforced; empty where it is
};

// Every keyword of every schema that is read, document by document, in the order in which they are written. Whether any
// value belongs to the schema is not asked. Throws as GrammarCompiler::compile_json_schema, but UnsupportedError only
// where the schema as a whole is beyond the work budget. Safe to call from any thread.
std::vector<ExplainedKeyword> explain_json_schema(std::string_view schema, const JsonSchemaOptions& options = {},
                                                  const GrammarCompilerOptions& budget = {});

}  // namespace coreai::grammar
