#include "coreai/grammar/schema_explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "grammar/formats.h"
#include "grammar/json_text.h"
#include "grammar/schema_reader.h"

namespace coreai::grammar {
namespace {

using Kind = JsonNode::Kind;

constexpr std::array kEnforced{"$dynamicRef",
                               "$recursiveRef",
                               "$ref",
                               "additionalItems",
                               "additionalProperties",
                               "allOf",
                               "anyOf",
                               "const",
                               "contains",
                               "dependencies",
                               "dependentRequired",
                               "dependentSchemas",
                               "else",
                               "enum",
                               "exclusiveMaximum",
                               "exclusiveMinimum",
                               "format",
                               "if",
                               "items",
                               "maxContains",
                               "maxItems",
                               "maxLength",
                               "maxProperties",
                               "maximum",
                               "minContains",
                               "minItems",
                               "minLength",
                               "minProperties",
                               "minimum",
                               "multipleOf",
                               "not",
                               "oneOf",
                               "pattern",
                               "patternProperties",
                               "prefixItems",
                               "properties",
                               "propertyNames",
                               "required",
                               "then",
                               "type",
                               "unevaluatedItems",
                               "unevaluatedProperties",
                               "uniqueItems"};
constexpr std::array kNotes{"$comment",     "title",    "description", "default",         "examples",
                            "deprecated",   "readOnly", "writeOnly",   "contentEncoding", "contentMediaType",
                            "contentSchema"};
constexpr std::array kNames{"$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"};

template <typename Words>
bool is_among(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

// The keyword that is read together with this one, where it stands beside it; "" where there is none.
std::string_view lead_of(const JsonNode& schema, std::string_view keyword) {
  const auto first = [&](std::initializer_list<std::string_view> leads) {
    for (const std::string_view lead : leads)
      if (lead != keyword && schema.find(lead) != nullptr) return lead;
    return std::string_view();
  };
  if (keyword == "then" || keyword == "else") return first({"if"});
  if (keyword == "minContains" || keyword == "maxContains") return first({"contains"});
  if (keyword == "items") return first({"prefixItems"});
  if (keyword == "additionalItems") return first({"items"});
  if (keyword == "patternProperties") return first({"properties"});
  if (keyword == "additionalProperties") return first({"properties", "patternProperties"});
  return keyword == "maxLength" ? first({"minLength"}) : std::string_view();
}

// Keywords that say nothing where another one is not beside them; "" for the others.
std::string_view needed_by(const JsonNode& schema, std::string_view keyword) {
  if (keyword == "then" || keyword == "else") return schema.find("if") == nullptr ? "if" : "";
  if (keyword == "minContains" || keyword == "maxContains") return schema.find("contains") == nullptr ? "contains" : "";
  if (keyword != "additionalItems") return "";
  const JsonNode* items = schema.find("items");
  return items == nullptr || !items->is(Kind::kArray) || schema.find("prefixItems") != nullptr ? "items" : "";
}

// Why a keyword that is no condition is there.
std::string meaning(std::string_view keyword) {
  if (keyword == "$schema") return "names the dialect";
  if (keyword == "$vocabulary") return "counts in a meta-schema only";
  if (keyword == "$defs" || keyword == "definitions") return "schemas that references lead to";
  if (is_among(kNames, keyword)) return "a name for references";
  return is_among(kNotes, keyword) ? "for readers" : "no keyword of JSON Schema";
}

}  // namespace

std::string_view keyword_fate_name(KeywordFate fate) {
  constexpr std::array<std::string_view, 5> kFates{"enforced", "annotation", "unused", "left out", "refused"};
  return kFates[static_cast<std::size_t>(fate)];
}

// Walks the documents; the schemas among their nodes are those that the reader compiled.
class SchemaReader::Explainer {
 public:
  Explainer(const SchemaReader& reader, const std::vector<DroppedKeyword>& dropped, KeywordFate otherwise)
      : reader_(reader), otherwise_(otherwise) {
    for (const auto& [reading, formula] : reader.applied_) read_.insert(reading.first);
    for (const auto& [reading, schema] : reader.below_) read_.insert(reading.first);
    for (const DroppedKeyword& one : dropped) dropped_.emplace(one.pointer, one.reason);
  }

  std::vector<ExplainedKeyword> explain() {
    for (const auto& [pointer, document] : reader_.references_.documents()) walk({document, pointer, document});
    return std::move(out_);
  }

 private:
  void walk(SchemaPlace at) {
    if (reader_.references_.is_resource(at.node)) at.resource = at.node;
    const JsonNode& node = *at.node;
    const bool schema = read_.contains(&node) && node.is(Kind::kObject);
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const std::string name = node.is(Kind::kObject) ? node.keys[i] : std::to_string(i);
      const SchemaPlace child{&node.children[i], at.pointer + "/" + pointer_escaped(name), at.resource};
      if (schema) explain_keyword(at, name, child.pointer);
      if (schema && (name == "$defs" || name == "definitions"))
        walk_definitions(child);
      else
        walk(child);
    }
  }

  void walk_definitions(const SchemaPlace& at) {
    if (!at.node->is(Kind::kObject)) return;
    for (std::size_t i = 0; i < at.node->keys.size(); ++i) {
      const SchemaPlace one{&at.node->children[i], at.pointer + "/" + pointer_escaped(at.node->keys[i]), at.resource};
      const std::size_t before = out_.size();
      walk(one);
      if (out_.size() == before && !read_.contains(one.node))
        out_.push_back({one.pointer, KeywordFate::kUnused, "no reference leads here"});
    }
  }

  void explain_keyword(const SchemaPlace& at, const std::string& name, const std::string& pointer) {
    ExplainedKeyword one{pointer, KeywordFate::kAnnotation, {}};
    const std::string_view lead = lead_of(*at.node, name), needed = needed_by(*at.node, name);
    if (const auto own = dropped_.find(pointer); own != dropped_.end()) {
      one.fate = otherwise_;
      one.reason = own->second;
    } else if (!is_among(kEnforced, name)) {
      one.reason = meaning(name);
    } else if (name != "$ref" && at.node->find("$ref") != nullptr && reader_.references_.reference_is_alone(at)) {
      one.reason = "beside $ref it says nothing in this draft";
    } else if (reader_.references_.says_nothing(at, name)) {
      one.reason = "the dialect leaves its vocabulary out";
    } else if (!needed.empty()) {
      one.reason = fmt::format("says nothing without {} of the same schema", needed);
    } else if (const auto with = dropped_.find(at.pointer + "/" + std::string(lead)); with != dropped_.end()) {
      one.fate = otherwise_;
      one.reason = fmt::format("as {}: {}", lead, with->second);
    } else if (name == "format" && !reader_.options_.assert_formats) {
      one.reason = "formats are annotations by option";
    } else if (name == "format" && !format_pattern(at.node->find(name)->text)) {
      one.reason = "no draft defines this format";
    } else {
      one.fate = KeywordFate::kEnforced;
    }
    out_.push_back(std::move(one));
  }

  const SchemaReader& reader_;
  KeywordFate otherwise_;
  std::set<const JsonNode*> read_;
  std::map<std::string, std::string> dropped_;
  std::vector<ExplainedKeyword> out_;
};

std::vector<ExplainedKeyword> SchemaReader::explain(const std::vector<DroppedKeyword>& dropped,
                                                    KeywordFate otherwise) const {
  return Explainer(*this, dropped, otherwise).explain();
}

std::vector<ExplainedKeyword> explain_json_schema(std::string_view schema, const JsonSchemaOptions& options,
                                                  const GrammarCompilerOptions& budget) {
  const JsonNode document = parse_json_document(schema);
  JsonSchemaOptions lenient = options;
  lenient.lenient = true;
  const auto texts = new_json_pool(budget.max_expressions, budget.max_search_steps);
  FormulaPool formulas(*texts);
  KeyTable keys(*texts);
  SchemaReader reader(document, lenient, *texts, formulas, keys);
  const CompiledSchema read = reader.read();
  return reader.explain(read.dropped, options.lenient ? KeywordFate::kLeftOut : KeywordFate::kRefused);
}

}  // namespace coreai::grammar
