// coreai-grammar as a user calls it: exit codes, what goes to which stream, the shape of its JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "call_tool.h"
#include "coreai-grammar/commands.h"
#include "scratch_folder.h"

namespace coreai::tools {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"], "additionalProperties": false})";

Outcome run(std::vector<std::string> arguments) {
  return call_tool(coreai_grammar, "coreai-grammar", std::move(arguments));
}

class CoreaiGrammar : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const auto path = scratch_ / name;
    std::ofstream(path) << text;
    return path.string();
  }
  test::ScratchFolder scratch_;
};

TEST_F(CoreaiGrammar, CompileTellsTheFrontEndByTheName) {
  const std::pair<const char*, const char*> files[] = {{"a.json", kSchema},
                                                       {"a.gbnf", "root ::= \"a\" | \"b\" root"},
                                                       {"a.regex", "[0-9]+\n"},
                                                       {"a.lark", "start: \"a\"+\n"}};
  const char* forms[] = {"schema", "ebnf", "regex", "lark"};
  for (std::size_t i = 0; i < std::size(files); ++i) {
    const Outcome outcome = run({"compile", write(files[i].first, files[i].second)});
    EXPECT_EQ(outcome.code, kDone) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, StartsWith(std::string("ok: ") + forms[i] + ", "));
    EXPECT_THAT(outcome.out, HasSubstr("first mask after"));
  }
  EXPECT_EQ(run({"compile", "--as", "json"}).code, kDone);
  EXPECT_EQ(run({"compile", "--as", "structural-tag",
                 write("tag.json", R"({"type": "structural_tag", "format": {"type": "const_string", "value": "a"}})")})
                .code,
            kDone);
}

TEST_F(CoreaiGrammar, ARefusedGrammarNamesThePlaceAndTheNextStep) {
  const std::string unique = write("unique.json", R"({"properties": {"a": {"uniqueItems": true}}})");
  Outcome outcome = run({"compile", unique});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("error: #/properties/a/uniqueItems: "));
  EXPECT_THAT(outcome.err, HasSubstr("write the schema without it"));

  outcome = run({"compile", unique, "--lenient", "--json"});
  EXPECT_EQ(outcome.code, kDone);
  auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["ok"], true);
  ASSERT_EQ(json["dropped"].size(), 1u);
  EXPECT_EQ(json["dropped"][0]["pointer"], "#/properties/a/uniqueItems");
  EXPECT_GT(json["memory_bytes"], 0);
  EXPECT_GE(json["first_mask_ms"], json["compile_ms"]);
  EXPECT_THAT(run({"compile", unique, "--lenient"}).out, HasSubstr("#/properties/a/uniqueItems"));

  outcome = run({"compile", write("open.gbnf", "root ::= \"a\" | (\n"), "--json"});
  EXPECT_EQ(outcome.code, kFailed);
  json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["error"]["kind"], "malformed");
  EXPECT_EQ(json["error"]["offset"], 15);
  EXPECT_NE(json["error"]["next_step"], "");
  EXPECT_THAT(outcome.err, StartsWith("error: "));
}

TEST_F(CoreaiGrammar, CheckFindsTheFirstByteThatDoesNotFit) {
  const std::string schema = write("schema.json", kSchema);
  const std::string good = write("good.json", "{\"name\": \"A\", \"age\": 3}\n");  // with an editor's last line feed
  Outcome outcome = run({"check", schema, good});
  EXPECT_EQ(outcome.code, kDone) << outcome.out;
  EXPECT_EQ(outcome.out, good + ": ok\n");

  outcome = run({"check", schema, good, write("bad.json", "{\"name\": \"é\",\n \"\": 1}")});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.out, HasSubstr("bad.json: rejected at byte 17 (line 2, column 3)\n  found: '\"'\n"));
  EXPECT_THAT(outcome.out, HasSubstr("could come: '\\'  'a'"));

  outcome = run({"check", schema, "--text", R"({"name)", "--text", R"({"name": "日", "age": -1})", "--json"});
  EXPECT_EQ(outcome.code, kFailed);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["accepted"], false);
  EXPECT_EQ(json["instances"][0]["ends_early"], true);
  EXPECT_EQ(json["instances"][0]["offset"], 6);
  EXPECT_EQ(json["instances"][1]["ends_early"], false);
  EXPECT_EQ(json["instances"][1]["line"], 1);
}

TEST_F(CoreaiGrammar, CheckOfWhatCannotBeReadIsTwo) {
  const std::string schema = write("schema.json", kSchema);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"check", (scratch_ / "none.json").string(), "--text", "1"},
        {"check", schema, (scratch_ / "none.json").string()},
        {"check", write("broken.json", "{"), "--text", "1"},
        {"check", write("never.json", "false"), "--text", "1"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, kCouldNotLook) << arguments[1];
    EXPECT_THAT(outcome.err, StartsWith("error: "));
  }
}

TEST_F(CoreaiGrammar, ReferencesLeadToGivenDocuments) {
  const std::string schema = write("schema.json", R"({"$ref": "http://x.org/a"})");
  const std::string plain = write("plain.json", R"({"type": "null"})");
  const std::string named = write("named.json", R"({"$id": "http://x.org/a", "type": "null"})");
  Outcome outcome = run({"check", schema, "--text", "null", "--document", "http://x.org/a=" + plain});
  EXPECT_EQ(outcome.out, "text: ok\n") << outcome.err;
  EXPECT_EQ(run({"compile", schema, "--document", named}).code, kDone);
  EXPECT_EQ(run({"compile", schema, "--document", named, "--document", named}).code, kWrongUsage);
  outcome = run({"compile", schema, "--document", plain});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, StartsWith("error: #/$ref: "));
  EXPECT_THAT(outcome.err, HasSubstr("add the document"));
}

TEST_F(CoreaiGrammar, ExplainNamesTheFateOfEachKeyword) {
  const std::string schema = write("schema.json", R"({"title": "T", "type": "array", "uniqueItems": true})");
  Outcome outcome = run({"explain", schema});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("#/title        annotation  for readers\n#/type         enforced"));
  EXPECT_THAT(outcome.out, HasSubstr("#/uniqueItems  refused     \"uniqueItems\" is not enforced\n"));
  EXPECT_THAT(outcome.out, testing::EndsWith("1 enforced, 1 annotation, 1 refused\n"));
  outcome = run({"explain", schema, "--lenient", "--json"});
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["counts"]["left out"], 1);
  EXPECT_EQ(json["keywords"][2]["pointer"], "#/uniqueItems");
  EXPECT_EQ(json["keywords"][2]["fate"], "left out");
  EXPECT_EQ(run({"explain", write("true.txt", "true")}).out, "no keywords\n");
  outcome = run({"explain", write("broken.json", "{")});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, StartsWith("error: "));
  EXPECT_EQ(run({"explain", "--help"}).code, kDone);
  EXPECT_EQ(run({"explain"}).code, kWrongUsage);
  EXPECT_EQ(run({"explain", schema, "--tokenizer", "x"}).code, kWrongUsage);
}

TEST_F(CoreaiGrammar, MaskInBytes) {
  const std::string schema = write("schema.json", kSchema);
  EXPECT_EQ(run({"mask", schema}).out, "may come:  '{'\nmust come: '{'\nmay end: no\n");
  EXPECT_EQ(run({"mask", write("a.regex", "[0-9a-f]{2}"), "--after", "0"}).out,
            "may come:  '0'-'9'  'a'-'f'\nmay end: no\n");
  EXPECT_EQ(run({"mask", write("end.regex", "a"), "--after", "a"}).out, "may come: nothing\nmay end: yes\n");
  const auto json = nlohmann::json::parse(run({"mask", schema, "--after", "{\"n", "--json"}).out);
  EXPECT_EQ(json["may_end"], false);
  const Outcome outcome = run({"mask", schema, "--after", "{x"});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("only the first 1 of its 2 bytes"));
}

TEST_F(CoreaiGrammar, MaskInTokens) {
  const std::string pattern = write("a.regex", "[0-9]{2}|x");
  const std::vector<std::string> tail = {"--tokenizer", fixture("tiny_llm/tokenizer")};
  Outcome outcome = run({"mask", pattern, "--after", "1", tail[0], tail[1], "--limit", "2"});
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("10 of 512 tokens may come\nmay end: no\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  and 8 more (--limit)\n"));
  const auto json = nlohmann::json::parse(run({"mask", pattern, "--after", "12", tail[0], tail[1], "--json"}).out);
  EXPECT_EQ(json["may_end"], true);
  for (const auto& token : json["tokens"]) EXPECT_EQ(token["end"], true);
  EXPECT_EQ(json["tokens"].size(), json["count"]);
  outcome = run({"mask", pattern, "--tokenizer", scratch_.path().string()});
  EXPECT_EQ(outcome.code, kFailed);
  EXPECT_THAT(outcome.err, HasSubstr("tokenizer.json"));
}

TEST_F(CoreaiGrammar, BenchCountsEveryToken) {
  const std::string schema = write("schema.json", kSchema), text = write("good.json", "{\"name\": \"A\"}\n");
  const auto json = nlohmann::json::parse(run({"bench", schema, text, "--rounds", "2", "--json"}).out);
  EXPECT_EQ(json["tokens"], 13);
  for (const char* key : {"mask_first", "commit_first", "mask_later", "commit_later"}) {
    EXPECT_GT(json[key]["mean_us"], 0.0) << key;
    EXPECT_LE(json[key]["p50_us"], json[key]["p99_us"]) << key;
    EXPECT_LE(json[key]["p99_us"], json[key]["max_us"]) << key;
  }
  EXPECT_GT(json["first_mask_ms"], 0.0);
  const Outcome tokens = run({"bench", schema, text, "--tokenizer", fixture("tiny_llm/tokenizer")});
  EXPECT_EQ(tokens.code, kDone) << tokens.err;
  EXPECT_THAT(tokens.out, HasSubstr("tokens a round; first mask after"));
  const Outcome wrong = run({"bench", schema, write("bad.json", "[]")});
  EXPECT_EQ(wrong.code, kFailed);
  EXPECT_THAT(wrong.err, HasSubstr("is rejected"));
}

TEST_F(CoreaiGrammar, WrongUsage) {
  const std::string schema = write("schema.json", kSchema);
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"compile"},
                                                    {"compile", "grammar.txt"},
                                                    {"compile", schema, "--as", "yaml"},
                                                    {"compile", schema, "--as", "json"},
                                                    {"check", schema},
                                                    {"check", "-", "-"},
                                                    {"bench", schema},
                                                    {"mask", schema, "--limit", "-1"},
                                                    {"nothing"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, kWrongUsage) << arguments[0];
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, StartsWith("error: "));
  }
}

}  // namespace
}  // namespace coreai::tools
