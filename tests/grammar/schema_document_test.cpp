// docs/grammar.md: its table of keywords is that of the engine and of the cases that test them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "coreai/base/mapped_file.h"
#include "coreai/grammar/schema_explanation.h"
#include "schema_keyword_cases.h"

namespace coreai::grammar {
namespace {

struct Row {
  std::vector<std::string> keywords;
  const char* how;
};

const std::vector<Row> kEnforced = {
    {{"type", "enum", "const"},
     "by value: 1, 1.0 and 1e0 are one number, `\"\\u0061\"` and `\"a\"` one string, members in any order"},
    {{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas"},
     "exactly, beside each other and beside any other keyword"},
    {{"$ref", "$dynamicRef", "$recursiveRef"},
     "recursion too; inside the document and into given ones; siblings count from 2019-09 on"},
    {{"properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
      "maxProperties"},
     "in any order (`PropertyOrder::kAsWritten`: in that of the schema); a name that the schema writes comes once"},
    {{"prefixItems", "items", "additionalItems", "contains", "minContains", "maxContains", "minItems", "maxItems"},
     "exactly; both forms of `items`"},
    {{"unevaluatedProperties", "unevaluatedItems"},
     "beside and through references and combinations, in up to 256 ways"},
    {{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
     "as decimals of any length, both forms of the exclusive ones; a divisor with up to 20,000 remainders"},
    {{"minLength", "maxLength", "pattern"}, "characters, however they are written; patterns as above"},
    {{"format"},
     "date-time, date, time, duration, email, hostname, ipv4, ipv6, uuid, uri, uri-reference, uri-template, iri, "
     "iri-reference, "
     "json-pointer, relative-json-pointer: asserted (`assert_formats = false`: an annotation); words that no draft "
     "defines say nothing"},
};
const std::vector<Row> kOthers = {
    {{"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$defs", "definitions"},
     "tell dialects and what references mean"},
    {{"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly",
      "contentEncoding", "contentMediaType", "contentSchema"},
     "for readers; so is every word that no draft defines"},
};
const std::vector<Row> kRefused = {
    {{"uniqueItems"}, "unless `maxItems` beside it is at most 1"},
    {{"extends", "disallow", "divisibleBy"}, "draft 3"},
};

// By keyword the cases in which it is enforced, and the texts that they reject.
struct Tested {
  std::size_t cases = 0, texts = 0, rejected = 0;
};
std::map<std::string, Tested> tested_keywords() {
  std::map<std::string, Tested> out;
  for (const Keyword& one : kKeywords) {
    std::set<std::string> here;
    for (const ExplainedKeyword& keyword : explain_json_schema(one.schema))
      if (keyword.fate == KeywordFate::kEnforced) here.insert(keyword.pointer.substr(keyword.pointer.rfind('/') + 1));
    for (const std::string& keyword : here) {
      Tested& tested = out[keyword];
      ++tested.cases;
      tested.texts += one.valid.size() + one.invalid.size();
      tested.rejected += one.invalid.size();
    }
  }
  return out;
}

std::string table() {
  const auto tested = tested_keywords();
  std::string out = "| keyword | is | how | cases (texts) |\n| --- | --- | --- | --- |\n";
  const auto add = [&](const std::vector<Row>& rows, const char* fate) {
    for (const Row& row : rows) {
      std::string names, counts;
      for (const std::string& keyword : row.keywords) {
        names += fmt::format("{}`{}`", names.empty() ? "" : ", ", keyword);
        const auto found = tested.find(keyword);
        if (found == tested.end()) continue;
        counts += fmt::format("{}{} ({})", counts.empty() ? "" : ", ", found->second.cases, found->second.texts);
      }
      out += fmt::format("| {} | {} | {} | {} |\n", names, fate, row.how, counts);
    }
  };
  add(kEnforced, "enforced");
  add(kOthers, "annotation");
  add(kRefused, "refused");
  return out;
}

// With COREAI_UPDATE_DOCS set the table is written first: scripts/update_docs.
TEST(GrammarDocument, ItsKeywordsAreThoseOfTheTests) {
  const std::filesystem::path path = std::filesystem::path(COREAI_SOURCE_DIR) / "docs" / "grammar.md";
  const std::string text = read_text_file(path), open = "<!-- table: keywords -->\n", close = "<!-- end: keywords -->";
  const std::size_t begin = text.find(open), end = text.find(close);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end)
      << "the markers of the table 'keywords' are missing in docs/grammar.md";
  const std::string fresh = text.substr(0, begin + open.size()) + table() + text.substr(end);
  if (std::getenv("COREAI_UPDATE_DOCS") != nullptr) write_file_atomically(path, fresh);
  EXPECT_TRUE(read_text_file(path) == fresh) << "docs/grammar.md is stale: run scripts/update_docs";
}

TEST(GrammarDocument, EachEnforcedKeywordHasCasesThatRejectTexts) {
  const auto tested = tested_keywords();
  std::set<std::string> listed;
  for (const Row& row : kEnforced)
    for (const std::string& keyword : row.keywords) {
      listed.insert(keyword);
      const auto found = tested.find(keyword);
      ASSERT_TRUE(found != tested.end()) << "no case of " << keyword;
      EXPECT_GT(found->second.rejected, 0u) << keyword;
    }
  for (const auto& [keyword, cases] : tested) EXPECT_TRUE(listed.contains(keyword)) << keyword << " is not listed";
}

TEST(GrammarDocument, TheOthersAreWhatItSays) {
  const auto fate = [](const std::string& keyword) {
    const auto explained = explain_json_schema("{\"" + keyword + "\": true}");
    return explained.at(0).fate;
  };
  for (const Row& row : kOthers)
    for (const std::string& keyword : row.keywords)
      EXPECT_EQ(keyword == "$schema" ? KeywordFate::kAnnotation : fate(keyword), KeywordFate::kAnnotation) << keyword;
  for (const Row& row : kRefused)
    for (const std::string& keyword : row.keywords) EXPECT_EQ(fate(keyword), KeywordFate::kRefused) << keyword;
}

}  // namespace
}  // namespace coreai::grammar
