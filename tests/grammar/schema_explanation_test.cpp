#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coreai/base/error.h"
#include "coreai/grammar/schema_explanation.h"

namespace coreai::grammar {
namespace {

// "pointer fate" and the reason where there is one.
std::vector<std::string> explained(const std::string& schema, const JsonSchemaOptions& options = {}) {
  std::vector<std::string> out;
  for (const ExplainedKeyword& one : explain_json_schema(schema, options)) {
    EXPECT_EQ(one.reason.empty(), one.fate == KeywordFate::kEnforced) << one.pointer;
    out.push_back(one.pointer + " " + std::string(keyword_fate_name(one.fate)) +
                  (one.reason.empty() ? "" : ": " + one.reason));
  }
  return out;
}

using testing::ElementsAre;
using testing::StartsWith;

TEST(SchemaExplanation, EveryKeywordInTheOrderOfTheText) {
  EXPECT_THAT(
      explained(R"({"title": "T", "type": "object", "requird": ["a"], "properties": {"a/b": {"uniqueItems": true,
                            "minItems": 1}, "title": {"format": "date"}}, "additionalProperties": false})"),
      ElementsAre("#/title annotation: for readers", "#/type enforced",
                  "#/requird annotation: no keyword of JSON Schema", "#/properties enforced",
                  "#/properties/a~1b/uniqueItems refused: \"uniqueItems\" is not enforced",
                  "#/properties/a~1b/minItems enforced", "#/properties/title/format enforced",
                  "#/additionalProperties enforced"));
}

TEST(SchemaExplanation, LenientLeavesOut) {
  EXPECT_THAT(explained(R"({"uniqueItems": true})", {.lenient = true}),
              ElementsAre(StartsWith("#/uniqueItems left out: ")));
}

TEST(SchemaExplanation, WhatSaysNothingBesideOthers) {
  EXPECT_THAT(explained(R"({"then": true, "minContains": 2, "additionalItems": false, "format": "color"})"),
              ElementsAre("#/then annotation: says nothing without if of the same schema",
                          "#/minContains annotation: says nothing without contains of the same schema",
                          "#/additionalItems annotation: says nothing without items of the same schema",
                          "#/format annotation: no draft defines this format"));
  EXPECT_THAT(explained(R"({"format": "date"})", {.assert_formats = false}),
              ElementsAre("#/format annotation: formats are annotations by option"));
  EXPECT_THAT(
      explained(R"({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minimum": 1,
                            "definitions": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"not": {"$id": "c"}}}})"),
      ElementsAre("#/$schema annotation: names the dialect", "#/$ref enforced",
                  "#/minimum annotation: beside $ref it says nothing in this draft",
                  "#/definitions annotation: schemas that references lead to", "#/definitions/a/type enforced",
                  "#/definitions/b unused: no reference leads here",
                  "#/definitions/c unused: no reference leads here"));
}

TEST(SchemaExplanation, KeywordsThatAreReadTogetherShareTheirFate) {
  EXPECT_THAT(explained(R"({"patternProperties": {"\\bx": true}, "additionalProperties": false})"),
              ElementsAre(StartsWith("#/patternProperties refused: "),
                          StartsWith("#/additionalProperties refused: as patternProperties: ")));
}

TEST(SchemaExplanation, DocumentsFollowTheSchema) {
  const JsonSchemaOptions options{.documents = {{"http://x.org/a", R"({"type": "null", "$anchor": "x"})"},
                                                {"http://x.org/b", R"({"type": "null"})"}}};
  EXPECT_THAT(explained(R"({"$ref": "http://x.org/a"})", options),
              ElementsAre("#/$ref enforced", "http://x.org/a#/type enforced",
                          "http://x.org/a#/$anchor annotation: a name for references"));
  EXPECT_THAT(explained(R"({"items": {"$ref": "http://x.org/c"}})"),
              ElementsAre("#/items enforced", StartsWith("#/items/$ref refused: ")));
}

TEST(SchemaExplanation, BrokenSchemasAreTypedErrors) {
  EXPECT_THROW(explain_json_schema("{"), MalformedError);
  EXPECT_THROW(explain_json_schema("3"), InvalidArgumentError);
  EXPECT_THROW(explain_json_schema(R"({"type": "strnig"})"), InvalidArgumentError);
  EXPECT_TRUE(explain_json_schema("false").empty());
}

}  // namespace
}  // namespace coreai::grammar
