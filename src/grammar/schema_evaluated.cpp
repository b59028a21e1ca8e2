// `unevaluatedProperties` and `unevaluatedItems`: which members the schemas beside them have spoken of depends on which
// of those schemas hold, so that each way has its own condition and its own members (JSON Schema 2020-12, 11).
#include <fmt/format.h>

#include <algorithm>

#include "coreai/base/error.h"
#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/schema_reader.h"

namespace coreai::grammar {
namespace {

constexpr std::size_t kMaxWays = 256;

template <typename T>
void join(std::vector<T>& into, const std::vector<T>& more) {
  into.insert(into.end(), more.begin(), more.end());
  std::sort(into.begin(), into.end());
  into.erase(std::unique(into.begin(), into.end()), into.end());
}

}  // namespace

void SchemaReader::Evaluated::add(const Evaluated& other) {
  all = all || other.all;
  prefix = std::max(prefix, other.prefix);
  join(keys, other.keys);
  join(patterns, other.patterns);
  join(containing, other.containing);
}

// Both at once, in every combination; ways that have spoken of the same are one.
std::vector<SchemaReader::Way> SchemaReader::both(const std::vector<Way>& a, const std::vector<Way>& b) {
  std::vector<Way> out;
  for (const Way& first : a)
    for (const Way& second : b) {
      const FormulaId when = formulas_.all_of({first.when, second.when});
      if (when == kNever) continue;
      Evaluated joined = first.evaluated;
      joined.add(second.evaluated);
      const auto same = std::ranges::find(out, joined, &Way::evaluated);
      if (same == out.end())
        out.push_back({when, std::move(joined)});
      else
        same->when = formulas_.any_of({same->when, when});
      if (out.size() > kMaxWays)
        throw UnsupportedError("the alternatives beside it can be combined in too many ways", "grammar",
                               "name the members in one place");
    }
  return out;
}

std::vector<SchemaReader::Way> SchemaReader::under(FormulaId condition, std::vector<Way> ways) {
  for (Way& way : ways) way.when = formulas_.all_of({condition, way.when});
  return ways;
}

// Where the schema holds its members are spoken of, else nothing is.
std::vector<SchemaReader::Way> SchemaReader::ways_if_it_holds(const SchemaPlace& at, JsonType type) {
  const FormulaId holds = apply(at);
  std::vector<Way> ways = under(holds, ways_of(at, type));
  ways.push_back({formulas_.negate(holds), {}});
  return ways;
}

SchemaReader::Evaluated SchemaReader::own_members(const SchemaPlace& place) {
  Evaluated own;
  own.all = place.node->find("additionalProperties") != nullptr;
  if (const JsonNode* found = place.node->find("properties"))
    for (const std::string& name : found->keys) own.keys.push_back(keys_.add(name));
  if (const JsonNode* found = place.node->find("patternProperties"))
    for (const std::string& pattern : found->keys)
      own.patterns.push_back(regex_expression(texts_, pattern, RegexMatch::kSearch, JsonStringEncoder()));
  Evaluated sorted;
  sorted.add(own);
  return sorted;
}

SchemaReader::Evaluated SchemaReader::own_items(const SchemaPlace& place) {
  Evaluated own;
  const JsonNode* list = place.node->find("prefixItems");
  const JsonNode* items = place.node->find("items");
  if (items != nullptr && items->is(Kind::kArray)) {
    list = items;
    own.all = place.node->find("additionalItems") != nullptr;
  } else {
    own.all = items != nullptr;
  }
  if (list != nullptr) own.prefix = static_cast<std::uint32_t>(list->children.size());
  if (place.node->find("contains") != nullptr && references_.contains_evaluates(place))
    own.containing.push_back(below(place.child("contains")));
  return own;
}

std::vector<SchemaReader::Way> SchemaReader::ways_of(const SchemaPlace& at, JsonType type) {
  const SchemaPlace place = references_.entered(at);
  if (!place.node->is(Kind::kObject)) return {{kAlways, {}}};
  const bool object = type == JsonType::kObject;
  const char* word = object ? "unevaluatedProperties" : "unevaluatedItems";
  if (place.node->find(word) != nullptr && !references_.says_nothing(place, word)) {
    Evaluated everything;
    everything.all = true;
    return {{kAlways, everything}};
  }
  auto& known = object ? member_ways_ : item_ways_;
  const Reading key{place.node, place.scope};
  const auto [found, added] = known.try_emplace(key);
  if (!added && !found->second)  // in the lenient mode a schema that refers to itself comes this far
    throw UnsupportedError("the schema refers to itself for the same value", place.pointer,
                           "put a property or an item between the two");
  if (!added) return *found->second;
  try {
    std::vector<Way> ways = ways_beside(place, type);
    known[key] = ways;
    return ways;
  } catch (...) {
    known.erase(key);
    throw;
  }
}

std::vector<SchemaReader::Way> SchemaReader::ways_beside(const SchemaPlace& place, JsonType type) {
  const JsonNode& node = *place.node;
  std::vector<Way> ways{{kAlways, type == JsonType::kObject ? own_members(place) : own_items(place)}};
  for (const char* word : {"$ref", "$dynamicRef", "$recursiveRef"})
    if (node.find(word) != nullptr) ways = both(ways, ways_of(references_.resolve(place, word), type));
  const auto each_child = [&](const char* word, const auto& use) {
    const JsonNode* list = node.find(word);
    for (std::size_t i = 0; list != nullptr && i < list->children.size(); ++i) use(place.child(word, i));
  };
  each_child("allOf", [&](const SchemaPlace& child) { ways = both(ways, ways_of(child, type)); });
  each_child("anyOf", [&](const SchemaPlace& child) { ways = both(ways, ways_if_it_holds(child, type)); });
  std::vector<Way> chosen_one;  // the schema holds where just one of them does
  each_child("oneOf", [&](const SchemaPlace& child) {
    for (Way& way : under(apply(child), ways_of(child, type))) chosen_one.push_back(std::move(way));
  });
  if (!chosen_one.empty()) ways = both(ways, chosen_one);
  if (node.find("if") != nullptr) {
    const FormulaId condition = apply(place.child("if"));
    const auto branch = [&](const char* word) {
      return node.find(word) == nullptr ? std::vector<Way>{{kAlways, {}}} : ways_of(place.child(word), type);
    };
    std::vector<Way> chosen = under(condition, both(ways_of(place.child("if"), type), branch("then")));
    for (Way& way : under(formulas_.negate(condition), branch("else"))) chosen.push_back(std::move(way));
    ways = both(ways, chosen);
  }
  if (const JsonNode* found = node.find("dependentSchemas"))
    for (const std::string& name : found->keys) {
      const FormulaId present = formulas_.has(keys_.add(name));
      std::vector<Way> dependent = under(present, ways_of(place.child("dependentSchemas", name), type));
      dependent.push_back({formulas_.negate(present), {}});
      ways = both(ways, dependent);
    }
  return ways;
}

FormulaId SchemaReader::unevaluated(const SchemaPlace& place, JsonType type) {
  const bool object = type == JsonType::kObject;
  const SchemaId rest = below(place.child(object ? "unevaluatedProperties" : "unevaluatedItems"));
  if (rest == kAlways) return kAlways;
  std::vector<FormulaId> parts;
  for (const Way& way : ways_beside(place, type)) {
    const Evaluated& known = way.evaluated;
    if (known.all) continue;
    FormulaId held;
    if (object) {
      MemberSchemas schemas{{}, {}, rest};
      for (const KeyId key : known.keys) schemas.properties.emplace_back(key, kAlways);
      for (const ExprId pattern : known.patterns) schemas.patterns.emplace_back(pattern, kAlways);
      held = formulas_.members(schemas);
    } else {
      std::vector<SchemaId> choices = known.containing;
      choices.push_back(rest);
      held = formulas_.items({std::vector<SchemaId>(known.prefix, kAlways), any_schema(std::move(choices))});
    }
    parts.push_back(formulas_.any_of({formulas_.negate(way.when), held}));
  }
  return when(type, formulas_.all_of(parts));
}

// A schema that holds where one of the others does; said once those are read.
SchemaId SchemaReader::any_schema(std::vector<SchemaId> choices) {
  if (choices.size() == 1) return choices[0];
  const SchemaId joined = formulas_.new_schema();
  joined_.emplace_back(joined, std::move(choices));
  return joined;
}

}  // namespace coreai::grammar
