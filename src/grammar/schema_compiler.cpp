#include "grammar/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "coreai/base/error.h"
#include "grammar/json_text.h"
#include "grammar/schema_reader.h"

namespace coreai::grammar {

KeyId KeyTable::add(const std::string& name) {
  const auto [at, added] = ids_.emplace(name, static_cast<KeyId>(names_.size()));
  if (added) {
    names_.push_back(name);
    bodies_.push_back(json_string_body(texts_, name));
  }
  return at->second;
}

bool KeyTable::matches(KeyId key, ExprId pattern) {
  const std::uint64_t asked = (std::uint64_t{key} << 32) | pattern;
  if (const auto known = matches_.find(asked); known != matches_.end()) return known->second;
  ExprId rest = pattern;
  for (const char c : json_escaped(names_[key])) rest = texts_.derive(rest, static_cast<std::uint8_t>(c));
  return matches_[asked] = texts_.nullable(rest);
}

CompiledSchema compile_schema(std::string_view text, const JsonSchemaOptions& options, ExpressionPool& texts,
                              FormulaPool& formulas, KeyTable& keys) {
  const JsonNode document = parse_json_document(text);
  SchemaReader reader(document, options, texts, formulas, keys);
  return reader.read();
}

}  // namespace coreai::grammar
