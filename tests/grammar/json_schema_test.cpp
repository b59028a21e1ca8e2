#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <random>
#include <tuple>

#include "coreai/base/error.h"
#include "schema_cases.h"
#include "schema_keyword_cases.h"

namespace coreai::grammar {
namespace {

using testing::Field;
using testing::HasSubstr;

// Of the 1,299 required cases without the documents that they refer to; the others are refused by name.
constexpr std::size_t kSuiteRight = 1199;

CompiledGrammar compile(const std::string& schema, const JsonSchemaOptions& options = {}) {
  GrammarCompiler compiler(bytes_only());
  return compiler.compile_json_schema(schema, options);
}

class JsonSchemaKeyword : public testing::TestWithParam<Keyword> {};

TEST_P(JsonSchemaKeyword, AcceptsWhatItSays) {
  const CompiledGrammar grammar = compile(GetParam().schema);
  for (const char* text : GetParam().valid) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : GetParam().invalid) EXPECT_FALSE(matches(grammar, text)) << text;
}

INSTANTIATE_TEST_SUITE_P(All, JsonSchemaKeyword, testing::ValuesIn(kKeywords),
                         [](const auto& row) { return std::string(row.param.name); });

// Along random walks each byte is allowed exactly if some text goes on from there, and there is always a way.
TEST_P(JsonSchemaKeyword, HasNoDeadEnds) {
  const CompiledGrammar grammar = compile(GetParam().schema, {.whitespace = JsonWhitespace::none()});
  std::mt19937 random(3);
  for (int walk = 0; walk < 12; ++walk) {
    GrammarMatcher matcher(grammar);
    for (int step = 0; step < 60; ++step) {
      const TokenMask mask = matcher.next_token_mask();
      std::vector<std::int32_t> choices;
      for (std::int32_t id = 0; id < 256; ++id) {
        const bool allowed = (mask[static_cast<std::size_t>(id) / 32] >> (id % 32)) & 1u;
        ASSERT_EQ(allowed, matcher.fork().accept_token(id));
        if (allowed) choices.push_back(id);
      }
      ASSERT_TRUE(!choices.empty() || matcher.can_terminate());
      if (choices.empty()) break;
      // Closing bytes come often enough for walks to end.
      const auto closing =
          std::ranges::find_if(choices, [](std::int32_t id) { return id == '}' || id == ']' || id == '"'; });
      const bool close = closing != choices.end() && random() % 3 == 0;
      ASSERT_TRUE(matcher.accept_token(close ? *closing : choices[random() % choices.size()]));
    }
  }
}

TEST(JsonSchema, PropertiesAsWritten) {
  const char* schema = R"({"properties": {"a": {}, "b": {}}, "required": ["b"]})";
  const CompiledGrammar grammar = compile(schema, {.property_order = PropertyOrder::kAsWritten});
  EXPECT_TRUE(matches(grammar, R"({"x":0,"a":1,"y":0,"b":2})"));
  EXPECT_TRUE(matches(grammar, R"({"b":2})"));
  EXPECT_FALSE(matches(grammar, R"({"b":2,"a":1})"));
}

TEST(JsonSchema, WhitespaceIsBounded) {
  const CompiledGrammar two = compile(R"({"type": "array"})", {.whitespace = {2}});
  EXPECT_TRUE(matches(two, "[  1 ,\n\n2\t\t]"));
  EXPECT_FALSE(matches(two, "[   1]"));
  EXPECT_FALSE(matches(compile("true", {.whitespace = JsonWhitespace::none()}), "[1, 2]"));
  EXPECT_TRUE(matches(compile("true", {.whitespace = JsonWhitespace::any()}), "[" + std::string(1000, ' ') + "]"));
}

TEST(JsonSchema, ForcedTextIsFound) {
  GrammarMatcher matcher(compile(
      R"({"type": "object", "properties": {"name": {"const": "x"}}, "required": ["name"], "additionalProperties": false})",
      {.whitespace = JsonWhitespace::none()}));
  EXPECT_EQ(matcher.find_jump_forward_string(), "{\"");
  ASSERT_TRUE(matcher.accept_bytes("{\"name"));
  EXPECT_EQ(matcher.find_jump_forward_string(), "\":\"");
}

template <typename E>
void expect_error(const std::string& schema, const std::string& where, const std::string& problem) {
  try {
    compile(schema);
    FAIL() << "accepted: " << schema.substr(0, 200);
  } catch (const E& error) {
    EXPECT_THAT(error.where(), HasSubstr(where));
    EXPECT_THAT(error.problem(), HasSubstr(problem));
    EXPECT_FALSE(error.next_step().empty());
  }
}

TEST(JsonSchema, WhatIsNotEnforcedIsRefusedByPlace) {
  expect_error<UnsupportedError>(R"({"properties": {"a/b": {"uniqueItems": true}}})", "#/properties/a~1b/uniqueItems",
                                 "uniqueItems");
  expect_error<UnsupportedError>(R"({"items": {"format": "regex"}})", "#/items/format", "regex");
  expect_error<UnsupportedError>(R"({"$ref": "http://x.org/other.json"})", "#/$ref", "another document");
  expect_error<UnsupportedError>(R"({"multipleOf": 1234567.89})", "#/multipleOf", "remainders");
  expect_error<UnsupportedError>(R"({"$ref": "#"})", "#", "refers to itself");
}

TEST(JsonSchema, BrokenSchemasAreTypedErrors) {
  expect_error<MalformedError>("{\"type\": ", "JSON Schema", "");
  expect_error<MalformedError>("", "JSON Schema", "");
  expect_error<MalformedError>("{\"a\": 1, \"a\": 2}", "JSON Schema", "twice");
  expect_error<MalformedError>("\"\xff\"", "JSON Schema", "");
  expect_error<MalformedError>(std::string(10'000, '['), "JSON Schema", "deep");
  expect_error<InvalidArgumentError>("3", "#", "a schema is");
  expect_error<InvalidArgumentError>(R"({"type": "strnig"})", "#/type", "strnig");
  expect_error<InvalidArgumentError>(R"({"minLength": -1})", "#/minLength", "whole number");
  expect_error<InvalidArgumentError>(R"({"$ref": "#/$defs/none"})", "#", "leads nowhere");
  expect_error<InvalidArgumentError>("false", "#", "no value");
  expect_error<InvalidArgumentError>(R"({"enum": []})", "#", "no value");
  expect_error<InvalidArgumentError>(R"({"type": "object", "required": ["a"], "properties": {"a": false}})", "#",
                                     "no value");
  expect_error<InvalidArgumentError>(R"({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}})",
                                     "#", "no value");
}

TEST(JsonSchema, HostileSchemasEnd) {
  std::string nested = "true";
  for (int i = 0; i < 300; ++i) nested = R"({"properties": {"a": )" + nested + "}}";
  EXPECT_TRUE(matches(compile(nested), R"({"a":{"a":{}}})"));
  std::string values;
  for (int i = 0; i < 20'000; ++i) values += (i == 0 ? "\"v" : ",\"v") + std::to_string(i) + "\"";
  EXPECT_TRUE(matches(compile("{\"enum\": [" + values + "]}"), "\"v19999\""));
  EXPECT_TRUE(matches(compile(R"({"type": "string", "maxLength": 1000000000})"), "\"x\""));
  EXPECT_TRUE(matches(compile(R"({"type": "array", "maxItems": 1000000000})"), "[1]"));
  // Alternatives that overlap in every member: the ways to meet them are too many.
  std::string overlapping = R"({"anyOf": [)";
  for (int i = 0; i < 40; ++i)
    overlapping += fmt::format(R"({}{{"required": ["k"], "properties": {{"k": {{"multipleOf": {}}}}}}})",
                               i == 0 ? "" : ",", i + 2);
  EXPECT_THROW(matches(compile(overlapping + "]}"), R"({"k":1})"), UnsupportedError);
}

// Searches in searches: each level of the value asks about forty alternatives. The stack has to hold them.
TEST(JsonSchema, DeepSearchesEnd) {
  std::string schema = R"({"type": "null"})";
  for (int level = 0; level < 120; ++level) {
    std::string choices;
    for (int i = 0; i < 3; ++i)
      choices += fmt::format(
          R"({}{{"required": ["k"], "properties": {{"k": {{"allOf": [{}, {{"not": {{"const": {}}}}}]}}}}}})",
          i == 0 ? "" : ",", i == 0 ? schema : "true", i);
    schema = R"({"type": "object", "oneOf": [)" + choices + "]}";
  }
  try {
    compile(schema);
  } catch (const UnsupportedError&) {
  }
  std::string wide = R"({"anyOf": [)";
  for (int i = 0; i < 5000; ++i)
    wide += fmt::format(R"({}{{"required": ["k"], "properties": {{"k": {{"minimum": {}}}}}}})", i == 0 ? "" : ",", i);
  EXPECT_THROW(matches(compile(wide + "]}"), R"({"k":1})"), UnsupportedError);
}

TEST(JsonSchema, OneOfManyConstants) {
  std::string choices;
  for (int i = 0; i < 3000; ++i) choices += fmt::format(R"({}{{"const": "v{}"}})", i == 0 ? "" : ",", i);
  const CompiledGrammar grammar = compile(R"({"oneOf": [)" + choices + R"(, {"const": "v1"}]})");
  EXPECT_TRUE(matches(grammar, R"("v2999")"));
  EXPECT_FALSE(matches(grammar, R"("v1")"));  // twice
}

// The arguments may come before the name: each pair of tools is told apart by a required argument alone.
TEST(JsonSchema, ManyToolsInAnyOrder) {
  std::string tools;
  for (int i = 0; i < 120; ++i)
    tools += fmt::format(
        R"({}{{"type": "object", "properties": {{"name": {{"const": "tool{}"}}, "arguments": {{"type": "object", "properties": {{"a{}": {{"type": "integer"}}}},
            "required": ["a{}"], "additionalProperties": false}}}}, "required": ["name", "arguments"], "additionalProperties": false}})",
        i == 0 ? "" : ",", i, i, i);
  const CompiledGrammar grammar = compile(R"({"anyOf": [)" + tools + "]}");
  EXPECT_TRUE(matches(grammar, R"({"name":"tool7","arguments":{"a7":1}})"));
  EXPECT_TRUE(matches(grammar, R"({"arguments":{"a119":1},"name":"tool119"})"));
  EXPECT_FALSE(matches(grammar, R"({"arguments":{"a119":1},"name":"tool11"})"));
  EXPECT_FALSE(matches(grammar, R"({"name":"tool7","arguments":{"a8":1}})"));
}

// An alternative that leaves out another one keeps what it says beside those that it has nothing in common with.
TEST(JsonSchema, AlternativesThatOverlapInPart) {
  const CompiledGrammar grammar = compile(
      R"({"type": "object", "required": ["k"], "oneOf": [{"properties": {"k": {"enum": [1, 2]}}}, {"properties": {"k": {"enum": [2, 3]}}},
          {"properties": {"k": {"type": "string"}}}, {"properties": {"k": {"enum": ["a", 3]}}}]})");
  for (const char* once : {R"({"k":1})", R"({"k":"b"})"}) EXPECT_TRUE(matches(grammar, once)) << once;
  for (const char* other : {R"({"k":2})", R"({"k":3})", R"({"k":"a"})", R"({"k":4})"})
    EXPECT_FALSE(matches(grammar, other)) << other;
}

// Beyond the longest token two alternatives differ; what each goes on to must not be lost before.
TEST(JsonSchema, AlternativesThatDifferFarAhead) {
  const CompiledGrammar grammar = compile(
      R"({"type": "array", "prefixItems": [{}, {}], "minItems": 2, "oneOf": [{"prefixItems": [{"type": "string", "maxLength": 400}, {"const": 1}]},
          {"prefixItems": [{"type": "string", "minLength": 401}, {"const": 2}]}]})",
      {.whitespace = JsonWhitespace::none()});
  for (const auto& [length, digit, other] :
       {std::tuple{10, '1', '2'}, {400, '1', '2'}, {401, '2', '1'}, {500, '2', '1'}}) {
    GrammarMatcher matcher(grammar);
    ASSERT_TRUE(matcher.accept_bytes("[\"" + std::string(static_cast<std::size_t>(length), 'x')));
    matcher.next_token_mask();
    ASSERT_TRUE(matcher.accept_bytes("\","));
    const TokenMask mask = matcher.next_token_mask();
    EXPECT_TRUE((mask[digit / 32] >> (digit % 32)) & 1u) << length;
    EXPECT_FALSE((mask[other / 32] >> (other % 32)) & 1u) << length;
  }
}

TEST(JsonSchema, LenientListsWhatItDrops) {
  const CompiledGrammar grammar = compile(
      R"({"type": "array", "uniqueItems": true, "items": {"format": "regex", "type": "string"}})", {.lenient = true});
  EXPECT_THAT(grammar.dropped(), testing::UnorderedElementsAre(Field(&DroppedKeyword::pointer, "#/uniqueItems"),
                                                               Field(&DroppedKeyword::pointer, "#/items/format")));
  EXPECT_TRUE(matches(grammar, R"(["a","a"])"));
  EXPECT_FALSE(matches(grammar, "[1]"));
  EXPECT_TRUE(compile("true").dropped().empty());
}

SchemaScore score(const char* file, const JsonSchemaOptions& options) {
  GrammarCompiler compiler(bytes_only());
  const auto path = std::filesystem::path(COREAI_FIXTURE_DIR) / "json_schema" / file;
  const SchemaScore out = judge(compiler, read_schema_cases(path), options, [](const std::string& line) {
    if (!line.starts_with("refused")) ADD_FAILURE() << line;
  });
  std::printf("%s: %zu right, %zu refused, %zu wrongly accepted, %zu wrongly rejected\n", file, out.right, out.refused,
              out.invalid_accepted, out.valid_rejected);
  return out;
}

TEST(JsonSchema, TestSuite) {
  const SchemaScore found = score("draft2020-12.jsonl", {.assert_formats = false});
  EXPECT_EQ(found.right + found.refused, 1299u);
  EXPECT_GE(found.right, kSuiteRight);
}

TEST(JsonSchema, Probes) {
  EXPECT_GE(score("probes.jsonl", {}).right, 86u);
}

TEST(JsonSchema, StressSet) {
  EXPECT_EQ(score("stress.jsonl", {}).right, 17u);
}

}  // namespace
}  // namespace coreai::grammar
