#include "grammar/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "coreai/base/error.h"
#include "grammar/json_text.h"

namespace coreai::grammar {
namespace {

constexpr int kMaxDepth = 300;  // of schemas that apply to the same value
constexpr std::size_t kMaxSchemas = 200'000;

struct TypeName {
  std::string_view name;
  JsonType type;
};
constexpr std::array<TypeName, 6> kTypeNames{{{"null", JsonType::kNull},
                                              {"boolean", JsonType::kBoolean},
                                              {"number", JsonType::kNumber},
                                              {"string", JsonType::kString},
                                              {"array", JsonType::kArray},
                                              {"object", JsonType::kObject}}};

[[noreturn]] void wrong(const SchemaPlace& place, std::string problem) {
  throw InvalidArgumentError(std::move(problem), place.pointer, "correct the schema");
}

}  // namespace

SchemaReader::SchemaReader(const JsonNode& document, const JsonSchemaOptions& options, ExpressionPool& texts,
                           FormulaPool& formulas, KeyTable& keys)
    : document_(document),
      options_(options),
      texts_(texts),
      formulas_(formulas),
      keys_(keys),
      references_(document, options.documents),
      character_(JsonStringEncoder().encode(texts, CodePointSet::all())) {}

CompiledSchema SchemaReader::read() {
  CompiledSchema out;
  std::string& problem = references_.dialect_problem(&document_);
  if (!problem.empty() && options_.lenient) dropped_.push_back({"#/$schema", std::exchange(problem, {})});
  out.root = apply(references_.root());
  while (!pending_.empty()) {
    const auto [place, schema] = pending_.front();
    pending_.pop_front();
    formulas_.define(schema, apply(place));
  }
  for (const auto& [joined, choices] : joined_) {
    std::vector<FormulaId> formulas;
    for (const SchemaId choice : choices) formulas.push_back(formulas_.formula(choice));
    formulas_.define(joined, formulas_.any_of(formulas));
  }
  out.dropped = std::move(dropped_);
  return out;
}

FormulaId SchemaReader::apply(const SchemaPlace& place) {
  const SchemaPlace at = references_.entered(place);
  const Reading key{at.node, at.scope};
  const auto [found, added] = applied_.try_emplace(key);
  if (!added) {
    if (found->second) return *found->second;
    throw UnsupportedError("the schema refers to itself for the same value", at.pointer,
                           "put a property or an item between the two");
  }
  if (++depth_ > kMaxDepth)
    throw UnsupportedError(fmt::format("more than {} schemas apply to one value", kMaxDepth), at.pointer,
                           "make the schema simpler");
  FormulaId formula;
  try {
    formula = read_schema(at);
  } catch (...) {
    applied_.erase(key);
    throw;
  }
  --depth_;
  applied_[key] = formula;
  return formula;
}

SchemaId SchemaReader::below(const SchemaPlace& place) {
  if (place.node->is(Kind::kBoolean)) return place.node->flag ? kAlways : kNever;
  SchemaPlace at = references_.entered(place);
  const auto [found, added] = below_.try_emplace(Reading{at.node, at.scope}, 0);
  if (added) {
    if (below_.size() > kMaxSchemas)
      throw UnsupportedError(fmt::format("more than {} schemas", kMaxSchemas), place.pointer, "split the schema");
    found->second = formulas_.new_schema();
    pending_.emplace_back(std::move(at), found->second);
  }
  return found->second;
}

SchemaId SchemaReader::constant(FormulaId f) {
  if (f <= kAlways) return f;
  const SchemaId schema = formulas_.new_schema();
  formulas_.define(schema, f);
  return schema;
}

FormulaId SchemaReader::when(JsonType type, FormulaId f) {
  return f == kAlways ? kAlways : formulas_.any_of({formulas_.type(kAllTypes & ~type_bit(type)), f});
}

FormulaId SchemaReader::read_schema(const SchemaPlace& place) {
  const JsonNode& node = *place.node;
  if (node.is(Kind::kBoolean)) return node.flag ? kAlways : kNever;
  if (!node.is(Kind::kObject)) wrong(place, "a schema is an object or a boolean");
  return read_keywords(place);
}

FormulaId SchemaReader::read_keywords(const SchemaPlace& place) {
  std::vector<FormulaId> conditions;
  keyword(place, "$ref", conditions, [&](const JsonNode&) { return apply(references_.resolve(place, "$ref")); });
  if (!conditions.empty() && references_.reference_is_alone(place)) return conditions[0];
  for (const char* word : {"$dynamicRef", "$recursiveRef"})
    keyword(place, word, conditions, [&](const JsonNode&) { return apply(references_.resolve(place, word)); });
  read_any_type(place, conditions);
  read_numbers(place, conditions);
  read_strings(place, conditions);
  read_objects(place, conditions);
  read_dependencies(place, conditions);
  read_arrays(place, conditions);
  read_combinations(place, conditions);
  read_unevaluated(place, conditions);
  refuse_the_rest(place, conditions);
  return formulas_.all_of(conditions);
}

void SchemaReader::keyword(const SchemaPlace& place, std::string_view name, std::vector<FormulaId>& conditions,
                           const std::function<FormulaId(const JsonNode&)>& read) {
  const JsonNode* value = place.node->find(name);
  if (value == nullptr || references_.says_nothing(place, name)) return;
  const int depth = depth_;
  try {
    conditions.push_back(read(*value));
  } catch (const UnsupportedError& error) {
    if (options_.lenient) {
      depth_ = depth;
      dropped_.push_back({place.pointer + "/" + std::string(name), error.problem()});
      return;
    }
    if (error.where() != "grammar") throw;
    throw UnsupportedError(error.problem(), place.pointer + "/" + std::string(name), error.next_step());
  }
}

FormulaId SchemaReader::types(const SchemaPlace& place, const JsonNode& value) {
  std::vector<FormulaId> choices;
  const auto add = [&](const JsonNode& name) {
    if (!name.is(Kind::kString)) wrong(place.child("type"), "a type is a string");
    const auto known = std::ranges::find(kTypeNames, name.text, &TypeName::name);
    if (known != kTypeNames.end()) return choices.push_back(formulas_.type(type_bit(known->type)));
    if (name.text == "any") return choices.push_back(kAlways);  // draft 3
    if (name.text != "integer") wrong(place.child("type"), fmt::format("there is no type \"{}\"", name.text));
    choices.push_back(formulas_.number(multiple_of(texts_, {false, "1", 0})));
  };
  if (value.is(Kind::kArray))
    std::ranges::for_each(value.children, add);
  else
    add(value);
  return formulas_.any_of(choices);
}

FormulaId SchemaReader::one_value(const JsonNode& value) {
  switch (value.kind) {
    case Kind::kNull:
      return formulas_.type(type_bit(JsonType::kNull));
    case Kind::kBoolean:
      return formulas_.constant(JsonType::kBoolean, texts_.literal(value.flag ? "true" : "false"));
    case Kind::kNumber: {
      const auto number = Decimal::parse(value.text);
      if (!number) throw UnsupportedError(fmt::format("the number {} is too long", value.text), "grammar");
      return formulas_.number(number_equal(texts_, *number));
    }
    case Kind::kString:
      return formulas_.constant(JsonType::kString, json_string_body(texts_, value.text));
    case Kind::kArray: {
      ItemSchemas schemas{{}, kNever};
      for (const JsonNode& item : value.children) schemas.prefix.push_back(constant(one_value(item)));
      const auto length = static_cast<std::uint32_t>(value.children.size());
      return formulas_.all_of({formulas_.items(schemas), formulas_.item_count(length, length)});
    }
    case Kind::kObject:
      break;
  }
  MemberSchemas schemas{{}, {}, kNever};
  std::vector<FormulaId> parts;
  for (std::size_t i = 0; i < value.keys.size(); ++i) {
    const KeyId key = keys_.add(value.keys[i]);
    schemas.properties.emplace_back(key, constant(one_value(value.children[i])));
    parts.push_back(formulas_.has(key));
  }
  parts.push_back(formulas_.members(schemas));
  return formulas_.all_of(parts);
}

FormulaId SchemaReader::some_value(const std::vector<JsonNode>& values) {
  std::vector<FormulaId> choices;
  std::vector<std::string_view> strings;
  for (const JsonNode& value : values) {
    if (value.is(Kind::kString) && values.size() > 1)
      strings.push_back(value.text);
    else
      choices.push_back(one_value(value));
  }
  if (!strings.empty()) choices.push_back(formulas_.text(JsonType::kString, json_string_bodies(texts_, strings)));
  return formulas_.any_of(choices);
}

void SchemaReader::read_any_type(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  keyword(place, "type", conditions, [&](const JsonNode& value) { return types(place, value); });
  keyword(place, "const", conditions, [&](const JsonNode& value) { return one_value(value); });
  keyword(place, "enum", conditions, [&](const JsonNode& value) {
    if (!value.is(Kind::kArray)) wrong(place.child("enum"), "an enum is an array");
    return some_value(value.children);
  });
}

std::vector<FormulaId> SchemaReader::each(const SchemaPlace& place, const JsonNode& schemas) {
  if (!schemas.is(Kind::kArray)) wrong(place, "an array of schemas is wanted");
  std::vector<FormulaId> out;
  out.reserve(schemas.children.size());
  for (std::size_t i = 0; i < schemas.children.size(); ++i)
    out.push_back(apply({&schemas.children[i], fmt::format("{}/{}", place.pointer, i), place.resource, place.scope}));
  return out;
}

void SchemaReader::read_combinations(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  keyword(place, "allOf", conditions,
          [&](const JsonNode& value) { return formulas_.all_of(each(place.child("allOf"), value)); });
  keyword(place, "anyOf", conditions,
          [&](const JsonNode& value) { return formulas_.any_of(each(place.child("anyOf"), value)); });
  keyword(place, "oneOf", conditions,
          [&](const JsonNode& value) { return formulas_.one_of(each(place.child("oneOf"), value)); });
  keyword(place, "not", conditions, [&](const JsonNode&) { return formulas_.negate(apply(place.child("not"))); });
  keyword(place, "if", conditions, [&](const JsonNode&) {
    const FormulaId condition = apply(place.child("if"));
    const auto branch = [&](const char* name) {
      return place.node->find(name) == nullptr ? kAlways : apply(place.child(name));
    };
    return formulas_.all_of({formulas_.any_of({formulas_.negate(condition), branch("then")}),
                             formulas_.any_of({condition, branch("else")})});
  });
}

void SchemaReader::read_unevaluated(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  keyword(place, "unevaluatedProperties", conditions,
          [&](const JsonNode&) { return unevaluated(place, JsonType::kObject); });
  keyword(place, "unevaluatedItems", conditions, [&](const JsonNode&) { return unevaluated(place, JsonType::kArray); });
}

void SchemaReader::refuse_the_rest(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  for (const char* name : {"extends", "disallow", "divisibleBy"})
    keyword(place, name, conditions, [&](const JsonNode&) -> FormulaId {
      throw UnsupportedError(fmt::format("\"{}\" is not enforced", name), "grammar", "write the schema without it");
    });
}

}  // namespace coreai::grammar
