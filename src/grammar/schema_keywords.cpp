// The keywords that speak of one type each.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "coreai/base/error.h"
#include "grammar/formats.h"
#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/schema_reader.h"

namespace coreai::grammar {
namespace {

[[noreturn]] void wrong(const SchemaPlace& place, std::string problem) {
  throw InvalidArgumentError(std::move(problem), place.pointer, "correct the schema");
}

Decimal decimal(const SchemaPlace& place, const JsonNode& value) {
  if (!value.is(JsonNode::Kind::kNumber)) wrong(place, "a number is wanted");
  const auto out = Decimal::parse(value.text);
  if (!out) throw UnsupportedError(fmt::format("the number {} is too long", value.text), "grammar");
  return *out;
}

}  // namespace

std::uint32_t SchemaReader::count(const SchemaPlace& place, const JsonNode& value) const {
  const Decimal number = decimal(place, value);
  if (number.negative || !number.fraction().empty()) wrong(place, "a whole number from zero up is wanted");
  const std::string digits = number.whole();
  std::uint32_t out = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return error == std::errc() ? out : kUnbounded;
}

FormulaId SchemaReader::bound(const SchemaPlace& place, const JsonNode& value, bool lower) {
  const char* name = lower ? "minimum" : "maximum";
  const char* flag_name = lower ? "exclusiveMinimum" : "exclusiveMaximum";  // a flag in draft 4
  const JsonNode* flag = place.node->find(flag_name);
  const bool exclusive = flag != nullptr && flag->is(Kind::kBoolean) && flag->flag;
  const Decimal limit = decimal(place.child(name), value);
  return formulas_.number(lower ? number_at_least(texts_, limit, exclusive) : number_at_most(texts_, limit, exclusive));
}

void SchemaReader::read_numbers(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  for (const bool lower : {true, false}) {
    keyword(place, lower ? "minimum" : "maximum", conditions,
            [&](const JsonNode& value) { return when(JsonType::kNumber, bound(place, value, lower)); });
    const char* exclusive = lower ? "exclusiveMinimum" : "exclusiveMaximum";
    keyword(place, exclusive, conditions, [&](const JsonNode& value) {
      if (value.is(Kind::kBoolean)) return kAlways;
      const Decimal limit = decimal(place.child(exclusive), value);
      return when(JsonType::kNumber,
                  formulas_.number(lower ? number_at_least(texts_, limit, true) : number_at_most(texts_, limit, true)));
    });
  }
  keyword(place, "multipleOf", conditions, [&](const JsonNode& value) {
    const Decimal divisor = decimal(place.child("multipleOf"), value);
    if (divisor.negative || divisor.is_zero()) wrong(place.child("multipleOf"), "a number above zero is wanted");
    return when(JsonType::kNumber, formulas_.number(multiple_of(texts_, divisor)));
  });
}

void SchemaReader::read_strings(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  std::vector<FormulaId> own;
  const auto text = [&](ExprId e) { return when(JsonType::kString, formulas_.text(JsonType::kString, e)); };
  const JsonNode* longest = place.node->find("maxLength");
  keyword(place, "minLength", own, [&](const JsonNode& value) {
    const std::uint32_t min = count(place.child("minLength"), value);
    const std::uint32_t max = longest == nullptr ? kUnbounded : count(place.child("maxLength"), *longest);
    return min > max ? text(kNothing) : text(texts_.repeat(character_, min, max));
  });
  if (own.empty())
    keyword(place, "maxLength", own, [&](const JsonNode& value) {
      return text(texts_.repeat(character_, 0, count(place.child("maxLength"), value)));
    });
  conditions.insert(conditions.end(), own.begin(), own.end());
  keyword(place, "pattern", conditions, [&](const JsonNode& value) {
    if (!value.is(Kind::kString)) wrong(place.child("pattern"), "a pattern is a string");
    return text(regex_expression(texts_, value.text, RegexMatch::kSearch, JsonStringEncoder()));
  });
  if (!options_.assert_formats) return;
  keyword(place, "format", conditions, [&](const JsonNode& value) {
    if (!value.is(Kind::kString)) wrong(place.child("format"), "a format is a string");
    const auto pattern = format_pattern(value.text);
    if (!pattern) return kAlways;
    return text(regex_expression(texts_, *pattern, RegexMatch::kWhole, JsonStringEncoder()));
  });
}

FormulaId SchemaReader::names(const std::vector<JsonNode>& required, const SchemaPlace& place) {
  std::vector<FormulaId> parts;
  for (const JsonNode& name : required) {
    if (!name.is(Kind::kString)) wrong(place, "the name of a member is a string");
    parts.push_back(formulas_.has(keys_.add(name.text)));
  }
  return formulas_.all_of(parts);
}

FormulaId SchemaReader::members(const SchemaPlace& place) {
  MemberSchemas schemas{{}, {}, kAlways};
  bool all = true;  // hold for every object
  if (const JsonNode* found = place.node->find("properties")) {
    if (!found->is(Kind::kObject)) wrong(place.child("properties"), "an object of schemas is wanted");
    for (const std::string& name : found->keys) {
      schemas.properties.emplace_back(keys_.add(name), below(place.child("properties", name)));
      all = false;
    }
  }
  if (const JsonNode* found = place.node->find("patternProperties")) {
    if (!found->is(Kind::kObject)) wrong(place.child("patternProperties"), "an object of schemas is wanted");
    for (const std::string& pattern : found->keys) {
      const ExprId name = regex_expression(texts_, pattern, RegexMatch::kSearch, JsonStringEncoder());
      schemas.patterns.emplace_back(name, below(place.child("patternProperties", pattern)));
      all = false;
    }
  }
  if (place.node->find("additionalProperties") != nullptr)
    schemas.additional = below(place.child("additionalProperties"));
  return all && schemas.additional == kAlways ? kAlways : formulas_.members(schemas);
}

void SchemaReader::read_objects(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  for (const char* first : {"properties", "patternProperties", "additionalProperties"})
    if (place.node->find(first) != nullptr) {
      keyword(place, first, conditions, [&](const JsonNode&) { return when(JsonType::kObject, members(place)); });
      break;
    }
  keyword(place, "required", conditions, [&](const JsonNode& value) {
    if (value.is(Kind::kBoolean)) return kAlways;  // draft 3, of a property
    if (!value.is(Kind::kArray)) wrong(place.child("required"), "an array of names is wanted");
    return when(JsonType::kObject, names(value.children, place.child("required")));
  });
  keyword(place, "propertyNames", conditions, [&](const JsonNode&) {
    const FormulaId name = formulas_.restrict(apply(place.child("propertyNames")), JsonType::kString);
    return name == kAlways ? kAlways : when(JsonType::kObject, formulas_.names(formulas_.string_expression(name)));
  });
  keyword(place, "minProperties", conditions, [&](const JsonNode& value) {
    const std::uint32_t min = count(place.child("minProperties"), value);
    return min == 0 ? kAlways : when(JsonType::kObject, formulas_.member_count(min, kUnbounded));
  });
  keyword(place, "maxProperties", conditions, [&](const JsonNode& value) {
    return when(JsonType::kObject, formulas_.member_count(0, count(place.child("maxProperties"), value)));
  });
}

void SchemaReader::read_dependencies(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  for (const char* word : {"dependencies", "dependentRequired", "dependentSchemas"})
    keyword(place, word, conditions, [&](const JsonNode& value) {
      if (!value.is(Kind::kObject)) wrong(place.child(word), "an object is wanted");
      std::vector<FormulaId> parts;
      for (const std::string& name : value.keys) {
        const SchemaPlace at = place.child(word, name);
        const FormulaId then = at.node->is(Kind::kArray)    ? names(at.node->children, at)
                               : at.node->is(Kind::kString) ? formulas_.has(keys_.add(at.node->text))
                                                            : apply(at);
        parts.push_back(formulas_.any_of({formulas_.negate(formulas_.has(keys_.add(name))), then}));
      }
      return when(JsonType::kObject, formulas_.all_of(parts));
    });
}

FormulaId SchemaReader::items(const SchemaPlace& place) {
  ItemSchemas schemas{{}, kAlways};
  const JsonNode* list = place.node->find("prefixItems");
  std::string_view prefix = "prefixItems", rest = "items";
  if (list == nullptr) {
    list = place.node->find("items");
    if (list == nullptr || !list->is(Kind::kArray))
      list = nullptr;
    else
      prefix = "items", rest = "additionalItems";
  }
  if (list != nullptr) {
    if (!list->is(Kind::kArray)) wrong(place.child(prefix), "an array of schemas is wanted");
    for (std::size_t i = 0; i < list->children.size(); ++i) schemas.prefix.push_back(below(place.child(prefix, i)));
  }
  if (place.node->find(rest) != nullptr) schemas.rest = below(place.child(rest));
  return schemas.prefix.empty() && schemas.rest == kAlways ? kAlways : formulas_.items(schemas);
}

FormulaId SchemaReader::contains(const SchemaPlace& place) {
  const bool counts = !references_.says_nothing(place, "minContains");
  const JsonNode* fewest = counts ? place.node->find("minContains") : nullptr;
  const JsonNode* most = counts ? place.node->find("maxContains") : nullptr;
  const std::uint32_t min = fewest == nullptr ? 1 : count(place.child("minContains"), *fewest);
  const std::uint32_t max = most == nullptr ? kUnbounded : count(place.child("maxContains"), *most);
  if (min == 0 && max == kUnbounded) return kAlways;
  return when(JsonType::kArray, formulas_.contains(below(place.child("contains")), min, max));
}

void SchemaReader::read_arrays(const SchemaPlace& place, std::vector<FormulaId>& conditions) {
  for (const char* first : {"prefixItems", "items"})
    if (place.node->find(first) != nullptr) {
      keyword(place, first, conditions, [&](const JsonNode&) { return when(JsonType::kArray, items(place)); });
      break;
    }
  keyword(place, "minItems", conditions, [&](const JsonNode& value) {
    const std::uint32_t min = count(place.child("minItems"), value);
    return min == 0 ? kAlways : when(JsonType::kArray, formulas_.item_count(min, kUnbounded));
  });
  keyword(place, "maxItems", conditions, [&](const JsonNode& value) {
    return when(JsonType::kArray, formulas_.item_count(0, count(place.child("maxItems"), value)));
  });
  keyword(place, "contains", conditions, [&](const JsonNode&) { return contains(place); });
  keyword(place, "uniqueItems", conditions, [&](const JsonNode& value) -> FormulaId {
    if (!value.is(Kind::kBoolean)) wrong(place.child("uniqueItems"), "a boolean is wanted");
    const JsonNode* most = place.node->find("maxItems");
    if (!value.flag || (most != nullptr && count(place.child("maxItems"), *most) <= 1)) return kAlways;
    throw UnsupportedError("\"uniqueItems\" is not enforced", "grammar", "write the schema without it");
  });
}

}  // namespace coreai::grammar
