// Reads one schema document, keyword by keyword.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "coreai/grammar/schema_explanation.h"
#include "grammar/json_document.h"
#include "grammar/schema_compiler.h"
#include "grammar/schema_references.h"

namespace coreai::grammar {

class SchemaReader {
 public:
  SchemaReader(const JsonNode& document, const JsonSchemaOptions& options, ExpressionPool& texts, FormulaPool& formulas,
               KeyTable& keys);
  CompiledSchema read();
  // What became of each keyword in the lenient mode; call read() first. `otherwise` is the fate of what was left out.
  std::vector<ExplainedKeyword> explain(const std::vector<DroppedKeyword>& dropped, KeywordFate otherwise) const;

 private:
  class Explainer;
  using Kind = JsonNode::Kind;
  // A schema says what it says in a dynamic scope.
  using Reading = std::pair<const JsonNode*, ScopeId>;
  struct ReadingHash {
    std::size_t operator()(const Reading& reading) const {
      return std::hash<const void*>()(reading.first) * 31 + reading.second;
    }
  };

  // A schema at its place; compiled where it applies to the same value.
  FormulaId apply(const SchemaPlace& place);
  // The same for a member or an item: compiled once, after what holds it.
  SchemaId below(const SchemaPlace& place);
  FormulaId read_schema(const SchemaPlace& place);
  FormulaId read_keywords(const SchemaPlace& place);
  // Adds what `read` gives to the conditions; in the lenient mode what it cannot do is dropped.
  void keyword(const SchemaPlace& place, std::string_view name, std::vector<FormulaId>& conditions,
               const std::function<FormulaId(const JsonNode&)>& read);

  void read_any_type(const SchemaPlace& place, std::vector<FormulaId>& conditions);
  void read_combinations(const SchemaPlace& place, std::vector<FormulaId>& conditions);
  void read_numbers(const SchemaPlace& place, std::vector<FormulaId>& conditions);
  void read_strings(const SchemaPlace& place, std::vector<FormulaId>& conditions);
  void read_objects(const SchemaPlace& place, std::vector<FormulaId>& conditions);
  void read_dependencies(const SchemaPlace& place, std::vector<FormulaId>& conditions);
  void read_arrays(const SchemaPlace& place, std::vector<FormulaId>& conditions);
  void read_unevaluated(const SchemaPlace& place, std::vector<FormulaId>& conditions);
  void refuse_the_rest(const SchemaPlace& place, std::vector<FormulaId>& conditions);

  // The members or items that the schemas of a place have spoken of, one way at a time.
  struct Evaluated {
    bool all = false;
    std::uint32_t prefix = 0;  // items
    std::vector<KeyId> keys;
    std::vector<ExprId> patterns;
    std::vector<SchemaId> containing;  // items that meet one of them
    void add(const Evaluated& other);
    bool operator==(const Evaluated&) const = default;
  };
  struct Way {
    FormulaId when;
    Evaluated evaluated;
  };
  FormulaId unevaluated(const SchemaPlace& place, JsonType type);
  std::vector<Way> ways_of(const SchemaPlace& at, JsonType type);
  std::vector<Way> ways_beside(const SchemaPlace& place, JsonType type);
  std::vector<Way> ways_if_it_holds(const SchemaPlace& at, JsonType type);
  std::vector<Way> both(const std::vector<Way>& a, const std::vector<Way>& b);
  std::vector<Way> under(FormulaId condition, std::vector<Way> ways);
  Evaluated own_members(const SchemaPlace& place);
  Evaluated own_items(const SchemaPlace& place);
  SchemaId any_schema(std::vector<SchemaId> choices);

  FormulaId members(const SchemaPlace& place);
  FormulaId items(const SchemaPlace& place);
  FormulaId contains(const SchemaPlace& place);
  FormulaId bound(const SchemaPlace& place, const JsonNode& value, bool lower);
  FormulaId types(const SchemaPlace& place, const JsonNode& value);
  FormulaId one_value(const JsonNode& value);
  FormulaId some_value(const std::vector<JsonNode>& values);
  FormulaId names(const std::vector<JsonNode>& required, const SchemaPlace& place);
  // Holds for all other types as well.
  FormulaId when(JsonType type, FormulaId f);
  SchemaId constant(FormulaId f);
  std::vector<FormulaId> each(const SchemaPlace& place, const JsonNode& schemas);
  std::uint32_t count(const SchemaPlace& place, const JsonNode& value) const;

  const JsonNode& document_;
  const JsonSchemaOptions& options_;
  ExpressionPool& texts_;
  FormulaPool& formulas_;
  KeyTable& keys_;
  SchemaReferences references_;
  std::unordered_map<Reading, std::optional<FormulaId>, ReadingHash> applied_;  // nothing: being read
  std::unordered_map<Reading, SchemaId, ReadingHash> below_;
  std::unordered_map<Reading, std::optional<std::vector<Way>>, ReadingHash> member_ways_, item_ways_;  // the same
  std::deque<std::pair<SchemaPlace, SchemaId>> pending_;
  std::vector<std::pair<SchemaId, std::vector<SchemaId>>> joined_;
  std::vector<DroppedKeyword> dropped_;
  int depth_ = 0;
  ExprId character_;  // any one of a string
};

}  // namespace coreai::grammar
