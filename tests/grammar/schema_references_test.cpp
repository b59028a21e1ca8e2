// References between documents and in dynamic scopes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "coreai/base/error.h"
#include "schema_cases.h"

namespace coreai::grammar {
namespace {

using testing::HasSubstr;
using Documents = std::map<std::string, std::string>;

CompiledGrammar compile(const std::string& schema, Documents documents = {}, bool lenient = false) {
  GrammarCompiler compiler(bytes_only());
  return compiler.compile_json_schema(schema, {.lenient = lenient, .documents = std::move(documents)});
}

void expect_texts(const std::string& schema, const Documents& documents, const std::vector<const char*>& valid,
                  const std::vector<const char*>& invalid) {
  const CompiledGrammar grammar = compile(schema, documents);
  for (const char* text : valid) EXPECT_TRUE(matches(grammar, text)) << schema << ": " << text;
  for (const char* text : invalid) EXPECT_FALSE(matches(grammar, text)) << schema << ": " << text;
}

template <typename E>
E expect_error(const std::string& schema, const Documents& documents, const std::string& where,
               const std::string& problem) {
  try {
    compile(schema, documents);
  } catch (const E& error) {
    EXPECT_EQ(error.where(), where);
    EXPECT_THAT(error.problem(), HasSubstr(problem));
    EXPECT_FALSE(error.next_step().empty());
    return error;
  }
  ADD_FAILURE() << "accepted: " << schema;
  return E("", "", 0);
}

const Documents kPeople = {
    {"http://x.org/common/name.json", R"({"type": "string", "minLength": 1, "$anchor": "name"})"},
    {"http://x.org/people/person.json",
     R"({"$defs": {"age": {"type": "integer"}}, "type": "object", "required": ["name"], "additionalProperties": false,
         "properties": {"name": {"$ref": "../common/name.json"}, "age": {"$ref": "#/$defs/age"}, "friend": {"$ref": ""}}})"},
    {"moved", R"({"$id": "http://x.org/elsewhere.json", "$defs": {"a": {"$id": "inside.json", "type": "null"}}})"}};

TEST(SchemaDocuments, AreFoundByTheirUri) {
  expect_texts(R"({"$ref": "http://x.org/people/person.json"})", kPeople,
               {R"({"name":"A"})", R"({"name":"A","friend":{"name":"B","age":2}})"},
               {"{}", R"({"name":""})", R"({"name":"A","friend":{}})", R"({"name":"A","age":"2"})"});
  expect_texts(R"({"$ref": "http://x.org/people/person.json#/$defs/age"})", kPeople, {"3"}, {"\"3\""});
  expect_texts(R"({"$ref": "http://x.org/common/name.json#name"})", kPeople, {"\"a\""}, {"\"\""});
  expect_texts(R"({"$id": "http://x.org/people/root.json", "items": {"$ref": "./person.json#/$defs/age"}})", kPeople,
               {"[3]"}, {"[null]"});
  // By the $id of a schema inside.
  expect_texts(R"({"$ref": "http://x.org/inside.json"})", kPeople, {"null"}, {"1"});
  // Without an $id a reference is resolved as a path.
  expect_texts(R"({"$ref": "item.json"})", {{"item.json", R"({"type": "null"})"}}, {"null"}, {"1"});
  // The document's own schemas come first.
  expect_texts(R"({"$ref": "http://x.org/a", "$defs": {"a": {"$id": "http://x.org/a", "type": "null"}}})",
               {{"http://x.org/a", "false"}}, {"null"}, {"1"});
  // A document that leads back.
  expect_texts(R"({"$id": "http://x.org/list", "type": "array", "items": {"$ref": "node"}})",
               {{"http://x.org/node", R"({"type": "object", "properties": {"list": {"$ref": "list"}}})"}},
               {R"([{"list":[{}]}])"}, {R"([{"list":[1]}])"});
}

TEST(SchemaDocuments, OlderDraftsKeepTheirMeaning) {
  const Documents old = {{"http://x.org/old", R"({"$schema": "http://json-schema.org/draft-07/schema#",
      "definitions": {"a": {"type": "number"}}, "properties": {"a": {"$ref": "#/definitions/a", "maximum": 3}}})"}};
  expect_texts(R"({"$ref": "http://x.org/old", "properties": {"b": {"$ref": "#/$defs/b", "maximum": 3}},
                   "$defs": {"b": {"type": "number"}}})",
               old, {R"({"a":4})", R"({"b":2})"}, {R"({"b":4})"});
}

TEST(SchemaDocuments, WhatIsMissingOrBrokenIsATypedError) {
  const auto missing = expect_error<UnsupportedError>(R"({"properties": {"a": {"$ref": "http://x.org/none.json#/a"}}})",
                                                      kPeople, "#/properties/a/$ref", "\"http://x.org/none.json\"");
  EXPECT_THAT(missing.next_step(), HasSubstr("add the document"));
  const auto broken = expect_error<MalformedError>(R"({"items": {"$ref": "http://x.org/broken"}})",
                                                   {{"http://x.org/broken", "{\"type\": }"}}, "#/items/$ref",
                                                   "\"http://x.org/broken\"");
  EXPECT_EQ(broken.offset(), 9u);
  EXPECT_TRUE(matches(compile("true", {{"http://x.org/broken", "{"}}), "1"));  // nothing leads there
  const std::string person = "http://x.org/people/person.json";
  expect_error<InvalidArgumentError>("{\"$ref\": \"" + person + "#/$defs/none\"}", kPeople, "#/$ref", "leads nowhere");
  expect_error<InvalidArgumentError>("{\"$ref\": \"" + person + "#none\"}", kPeople, "#/$ref", "no anchor");
  expect_error<InvalidArgumentError>(R"({"$ref": 3})", {}, "#/$ref", "string");
  expect_error<InvalidArgumentError>(R"({"$dynamicRef": true})", {}, "#/$dynamicRef", "string");
  // Inside a document the pointer begins with its URI.
  expect_error<InvalidArgumentError>(R"({"$ref": "http://x.org/a"})",
                                     {{"http://x.org/a", R"({"items": {"type": "strnig"}})"}},
                                     "http://x.org/a#/items/type", "strnig");
}

TEST(SchemaDocuments, LenientListsWhatIsMissing) {
  const CompiledGrammar grammar = compile(R"({"type": "array", "items": {"$ref": "http://x.org/none"}})", {}, true);
  ASSERT_EQ(grammar.dropped().size(), 1u);
  EXPECT_EQ(grammar.dropped()[0].pointer, "#/items/$ref");
  EXPECT_TRUE(matches(grammar, "[1]"));
}

TEST(SchemaDocuments, GrammarsAreKeptByTheirDocumentsToo) {
  GrammarCompiler compiler(bytes_only());
  const char* schema = R"({"$ref": "http://x.org/a"})";
  const auto with = [&](const char* document) {
    return compiler.compile_json_schema(schema, {.documents = {{"http://x.org/a", document}}});
  };
  EXPECT_TRUE(matches(with(R"({"type": "null"})"), "null"));
  EXPECT_TRUE(matches(with(R"({"type": "number"})"), "1"));
  EXPECT_FALSE(matches(with(R"({"type": "null"})"), "1"));
  EXPECT_THROW(compiler.compile_json_schema(schema), UnsupportedError);
}

TEST(SchemaDocuments, ReachSchemasInsideOtherGrammars) {
  GrammarCompiler compiler(bytes_only());
  const JsonSchemaOptions options{.documents = {{"http://x.org/a", R"({"type": "null"})"}}};
  EXPECT_TRUE(
      matches(compiler.compile_lark("start: \"<\" %json {\"$ref\": \"http://x.org/a\"} \">\"", options), "<null>"));
  EXPECT_TRUE(matches(
      compiler.compile_structural_tag(
          R"({"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"$ref": "http://x.org/a"}}})",
          options),
      "null"));
}

TEST(SchemaDialects, VocabulariesOfAGivenMetaSchema) {
  const std::string core = R"("https://json-schema.org/draft/2020-12/vocab/core": true)";
  const std::string draft = R"("$schema": "https://json-schema.org/draft/2020-12/schema")";
  const auto meta = [&](const std::string& vocabularies) {
    return Documents{{"http://x.org/m", "{" + draft + R"(, "$vocabulary": {)" + core + vocabularies + "}}"}};
  };
  const std::string applicator = R"(, "https://json-schema.org/draft/2020-12/vocab/applicator": true)";
  const std::string schema = R"({"$schema": "http://x.org/m", "properties": {"a": false, "b": {"minimum": 10}}})";
  expect_texts(schema, meta(applicator), {R"({"b":1})"}, {R"({"a":1})"});
  expect_texts(schema, meta(""), {R"({"b":1})", R"({"a":1})"}, {});
  expect_texts(schema, meta(applicator + R"(, "http://x.org/own": false)"), {R"({"b":1})"}, {R"({"a":1})"});
  expect_error<UnsupportedError>(schema, meta(applicator + R"(, "http://x.org/own": true)"), "#/$schema",
                                 "vocabulary \"http://x.org/own\"");
  expect_error<UnsupportedError>(schema, {}, "#/$schema", "dialect");
  expect_error<UnsupportedError>(schema, {{"http://x.org/m", "{"}}, "#/$schema", "cannot be read");
  // Meta-schemas that describe each other end.
  compile(schema, {{"http://x.org/m", R"({"$schema": "http://x.org/n"})"},
                   {"http://x.org/n", R"({"$schema": "http://x.org/m"})"}});
}

// Two lists of one document that say differently what their nodes are.
const char* const kTwoLists = R"({
  "properties": {"numbers": {"$ref": "numbers"}, "words": {"$ref": "words"}, "any": {"$ref": "list"}},
  "$defs": {
    "list": {"$id": "http://x.org/list", "type": "array", "items": {"$dynamicRef": "#node"},
             "$defs": {"any": {"$dynamicAnchor": "node"}}},
    "numbers": {"$id": "http://x.org/numbers", "$ref": "list", "$defs": {"n": {"$dynamicAnchor": "node", "type": "number"}}},
    "words": {"$id": "http://x.org/words", "$ref": "list", "$defs": {"n": {"$dynamicAnchor": "node", "type": "string"}}}},
  "$id": "http://x.org/root"})";

TEST(DynamicScope, TheOutermostAnchorCounts) {
  expect_texts(kTwoLists, {}, {R"({"numbers":[1],"words":["a"],"any":[null,[]]})"},
               {R"({"numbers":["a"]})", R"({"words":[1]})"});
  // The resource that was entered first wins over those behind it.
  expect_texts(
      R"({"$id": "http://x.org/top", "$ref": "http://x.org/words", "$defs": {"n": {"$dynamicAnchor": "node", "type": "null"}}})",
      {{"http://x.org/", kTwoLists}}, {"[null]"}, {"[1]", "[\"a\"]"});
}

TEST(DynamicScope, ATreeThatIsClosedByWhoUsesIt) {
  const Documents tree = {{"http://x.org/tree", R"({"$dynamicAnchor": "node", "type": "object", "properties":
      {"data": true, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}}})"}};
  expect_texts(
      R"({"$id": "http://x.org/strict", "$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": false})",
      tree, {R"({"children":[{"data":1,"children":[{}]}]})"}, {R"({"children":[{"daat":1}]})"});
  expect_texts(R"({"$ref": "http://x.org/tree"})", tree, {R"({"children":[{"daat":1}]})"}, {R"({"children":[1]})"});
}

TEST(DynamicScope, WithoutADynamicAnchorItIsAPlainReference) {
  expect_texts(
      R"({"$id": "http://x.org/r", "items": {"$dynamicRef": "#a"}, "$defs": {"x": {"$anchor": "a", "type": "null"},
                   "y": {"$id": "other", "$dynamicAnchor": "a", "type": "number"}}})",
      {}, {"[null]"}, {"[1]"});
  expect_texts(R"({"items": {"$dynamicRef": "#/$defs/x"}, "$defs": {"x": {"$dynamicAnchor": "a", "type": "null"}}})",
               {}, {"[null]"}, {"[1]"});
}

TEST(DynamicScope, RecursiveReferencesOf201909) {
  const Documents tree = {{"http://x.org/tree", R"({"$schema": "https://json-schema.org/draft/2019-09/schema",
      "$recursiveAnchor": true, "type": "object", "properties": {"children": {"items": {"$recursiveRef": "#"}}}})"}};
  const std::string strict =
      R"({"$schema": "https://json-schema.org/draft/2019-09/schema", "$id": "http://x.org/strict", "$ref": "tree", "unevaluatedProperties": false)";
  expect_texts(strict + R"(, "$recursiveAnchor": true})", tree, {R"({"children":[{"children":[{}]}]})"},
               {R"({"children":[{"a":1}]})"});
  expect_texts(strict + "}", tree, {R"({"children":[{"a":1}]})"}, {R"({"a":1})"});
}

TEST(SchemaReferences, CyclesEnd) {
  const char* cycle = R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a",
                          "unevaluatedProperties": false})";
  EXPECT_THROW(compile(cycle), UnsupportedError);
  EXPECT_FALSE(compile(cycle, {}, true).dropped().empty());
  // Each schema twice in the one before it: 2^60 ways down.
  std::string doubled =
      R"({"$ref": "#/$defs/s60", "unevaluatedProperties": false, "$defs": {"s0": {"properties": {"a": true}})";
  for (int i = 1; i <= 60; ++i)
    doubled +=
        fmt::format(R"(, "s{0}": {{"allOf": [{{"$ref": "#/$defs/s{1}"}}, {{"$ref": "#/$defs/s{1}"}}]}})", i, i - 1);
  expect_texts(doubled + "}}", {}, {R"({"a":1})"}, {R"({"b":1})"});
}

// Each way through them is a scope of its own, and there are exponentially many.
TEST(SchemaDocuments, TooManyScopesAreRefused) {
  std::string schema = R"({"$ref": "http://x/r0", "$defs": {"none": true)";
  for (int i = 0; i < 40; ++i)
    schema += fmt::format(
        R"(, "r{0}": {{"$id": "http://x/r{0}", "$defs": {{"d": {{"$dynamicAnchor": "a{0}"}}}}, "properties": {{"p": {{"$dynamicRef": "#a{0}"}}}},
            "anyOf": [{{"$ref": "http://x/r{1}"}}, {{"$ref": "http://x/r{2}"}}]}})",
        i, std::min(i + 1, 39), std::min(i + 2, 39));
  GrammarCompiler compiler(bytes_only());
  EXPECT_THROW(compiler.compile_json_schema(schema + "}}"), UnsupportedError);
}

SchemaScore score(const std::string& draft) {
  GrammarCompiler compiler(bytes_only());
  const std::string path = std::string(COREAI_FIXTURE_DIR) + "/json_schema/" + draft;
  const JsonSchemaOptions options{.assert_formats = false, .documents = read_documents(path + ".documents.jsonl")};
  const SchemaScore out = judge(compiler, read_schema_cases(path + ".jsonl"), options, [](const std::string& line) {
    if (!line.starts_with("refused")) ADD_FAILURE() << line;
  });
  std::printf("%s: %zu right, %zu refused\n", draft.c_str(), out.right, out.refused);
  return out;
}

// All required cases; those of 2019-09 that have to do with references.
TEST(SchemaDocuments, TestSuite) {
  const SchemaScore now = score("draft2020-12"), before = score("draft2019-09");
  EXPECT_EQ(now.right + now.refused, 1299u);
  EXPECT_GE(now.right, 1248u);
  EXPECT_EQ(before.right + before.refused, 346u);
  EXPECT_GE(before.right, 342u);
}

}  // namespace
}  // namespace coreai::grammar
