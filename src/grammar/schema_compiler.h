// JSON Schema (drafts 4 to 2020-12) as formulas over values.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/value_formula.h"

namespace coreai::grammar {

// The member names that a schema writes.
class KeyTable {
 public:
  explicit KeyTable(ExpressionPool& texts) : texts_(texts) {}
  KeyId add(const std::string& name);
  // Between the quotes, in every way in which it may be written.
  ExprId body(KeyId key) const { return bodies_[key]; }
  bool matches(KeyId key, ExprId pattern);
  std::size_t size() const { return names_.size(); }

 private:
  ExpressionPool& texts_;
  std::vector<std::string> names_;
  std::vector<ExprId> bodies_;
  std::unordered_map<std::string, KeyId> ids_;
  std::unordered_map<std::uint64_t, bool> matches_;
};

struct CompiledSchema {
  FormulaId root = kAlways;
  std::vector<DroppedKeyword> dropped;  // only in the lenient mode
};

// Throws MalformedError (no JSON), InvalidArgumentError (no schema; where: JSON pointer), UnsupportedError (a keyword
// that is not enforced, or beyond the work budget; where: JSON pointer).
CompiledSchema compile_schema(std::string_view text, const JsonSchemaOptions& options, ExpressionPool& texts,
                              FormulaPool& formulas, KeyTable& keys);

}  // namespace coreai::grammar
