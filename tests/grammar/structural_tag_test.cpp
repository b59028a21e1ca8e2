#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "coreai/base/error.h"
#include "grammar/byte_tokenizer.h"
#include "grammar/free_text.h"
#include "grammar/mask_walk.h"

namespace coreai::grammar {
namespace {

constexpr std::int32_t kOpen = 256, kClose = 257, kEnd = 258;

TokenizerInfo tokenizer() {
  std::vector<std::string> vocabulary;
  vocabulary.reserve(300);
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  for (const char* text :
       {"<|open|>", "<|close|>", "</s>", "<f", "=a>", "{\"", "</", "</f>", "\xc3\xa9<", "x<f=", "}<"})
    vocabulary.emplace_back(text);
  return TokenizerInfo(vocabulary, {.kind = VocabularyKind::kRaw, .end_ids = {kEnd}, .special_ids = {kOpen, kClose}});
}

// Whether free text as define_free_text has it, with "c" behind each end, holds `text`.
bool expected(const std::vector<std::string>& ends, const std::vector<std::string>& excludes, bool may_end,
              std::string_view text) {
  const auto excluded = [&](std::string_view part) {
    return std::ranges::any_of(excludes, [&](const std::string& e) { return part.find(e) != std::string_view::npos; });
  };
  for (std::size_t length = 1; length <= text.size(); ++length) {
    const std::string_view seen = text.substr(0, length);
    bool complete = false, fits = false;
    for (const std::string& end : ends) {
      if (!seen.ends_with(end)) continue;
      complete = true;
      fits = fits || !excluded(seen.substr(0, length - end.size()));
    }
    if (complete) return fits && text.substr(length) == "c";
  }
  return may_end && !excluded(text);
}

TEST(FreeText, EndsWhereAnEndIsFirstComplete) {
  std::mt19937 random(41);
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i].size() < 6)
      for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  const auto some = [&](std::size_t most) {
    std::vector<std::string> out(random() % (most + 1));
    for (std::string& text : out)
      for (std::size_t n = 1 + random() % 3; n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return out;
  };
  int members = 0;
  for (int round = 0; round < 150; ++round) {
    const std::vector<std::string> ends = some(3), excludes = some(2);
    const bool may_end = round % 2 == 0;
    GrammarAst ast;
    ExpressionPool pool;
    const std::uint32_t rule = ast.add_rule("text");
    std::vector<FreeTextEnd> with;
    with.reserve(ends.size());
    for (const std::string& end : ends) with.push_back({end, ast.literal("c")});
    define_free_text(ast, pool, rule, with, excludes, may_end);
    const ExprId language = grammar_expression(pool, ast, ast.reference(rule));
    for (const std::string& text : texts) {
      ExprId at = language;
      for (const char c : text) at = pool.derive(at, static_cast<std::uint8_t>(c));
      const bool member = expected(ends, excludes, may_end, text);
      members += member;
      ASSERT_EQ(pool.nullable(at), member)
          << fmt::format("'{}' of ends '{}', without '{}'", text, fmt::join(ends, "' '"), fmt::join(excludes, "' '"));
    }
  }
  EXPECT_GT(members, 1000);
}

TEST(FreeText, IsWellFormedUtf8) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar any = compiler.compile_structural_tag(
      R"({"type": "structural_tag", "format": {"type": "any_text", "excludes": ["é", "😀!"]}})");
  for (const char* text :
       {"", "a", "è", "😀", "\xed\x9f\xbf", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80", "\xe0\xa0\x80"})
    EXPECT_TRUE(matches(any, text)) << text;
  for (const char* text :
       {"é", "aé", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80", "\xff", "x😀!", "\x80"})
    EXPECT_FALSE(matches(any, text)) << text;
}

std::string tags(std::string_view fields, std::string_view type = "triggered_tags") {
  return fmt::format(R"({{"type": "structural_tag", "format": {{"type": "{}", "tags": [
      {{"type": "tag", "begin": "<f=a>", "content": {{"type": "json_schema", "json_schema":
          {{"type": "object", "properties": {{"n": {{"type": "integer"}}}}, "required": ["n"]}}}}, "end": "</f>"}},
      {{"type": "tag", "begin": "<f=ab>", "content": {{"type": "any_text"}}, "end": ["</f>", "!"]}}], {}}}}})",
                     type, fields);
}

TEST(StructuralTag, TriggeredTags) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar = compiler.compile_structural_tag(tags(R"("triggers": ["<f="])"));
  for (const char* text : {"", "any text, even <f", "<f=a>{\"n\": 1}</f>",
                           "x <f=a>{\"n\":-2}</f> y <f=ab>free < text</f> z", "<f=ab>!<f=ab></f>", "<<f=ab>é!"})
    EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"<f=", "<f=a>{\"n\": \"1\"}</f>", "<f=c>", "<f=a>{\"n\": 1}", "<f=a></f>", "<f=ab>text"})
    EXPECT_FALSE(matches(grammar, text)) << text;
  EXPECT_FALSE(GrammarMatcher(grammar).accept_bytes("x<f=b"));
  for (unsigned seed = 0; seed < 6; ++seed) ASSERT_NO_FATAL_FAILURE(walk_masks(grammar, seed, 25));
}

TEST(StructuralTag, TriggeredTagsWithTheirOptions) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar first =
      compiler.compile_structural_tag(tags(R"("triggers": ["<f"], "at_least_one": true, "stop_after_first": true)"));
  EXPECT_TRUE(matches(first, "<f=ab>!"));
  for (const char* text : {"", "x<f=ab>!", "<f=ab>!x"}) EXPECT_FALSE(matches(first, text)) << text;
  const CompiledGrammar more = compiler.compile_structural_tag(tags(R"("triggers": ["<f"], "at_least_one": true)"));
  EXPECT_TRUE(matches(more, "<f=ab>!x<f=a>{\"n\":0}</f>"));
  EXPECT_FALSE(matches(more, "x"));
  const CompiledGrammar stops =
      compiler.compile_structural_tag(tags(R"("triggers": ["<f"], "stop_after_first": true)"));
  EXPECT_TRUE(matches(stops, "x<f=ab>!"));
  EXPECT_TRUE(matches(stops, "x"));
  EXPECT_FALSE(matches(stops, "x<f=ab>!x"));
  const CompiledGrammar clean = compiler.compile_structural_tag(tags(R"("triggers": ["<f"], "excludes": ["bad"])"));
  EXPECT_TRUE(matches(clean, "ba<f=ab>bad!d"));
  EXPECT_FALSE(GrammarMatcher(clean).accept_bytes("a bad"));
}

TEST(StructuralTag, TagsWithASeparator) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar = compiler.compile_structural_tag(tags(R"("separator": ", ")", "tags_with_separator"));
  for (const char* text : {"", "<f=ab>!", "<f=ab>!, <f=a>{\"n\":1}</f>"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"<f=ab>!,", "x", "<f=ab>!<f=ab>!"}) EXPECT_FALSE(matches(grammar, text)) << text;
  const CompiledGrammar one = compiler.compile_structural_tag(
      tags(R"("separator": "", "at_least_one": true, "stop_after_first": true)", "tags_with_separator"));
  EXPECT_TRUE(matches(one, "<f=ab>!"));
  for (const char* text : {"", "<f=ab>!<f=ab>!"}) EXPECT_FALSE(matches(one, text)) << text;
}

struct Case {
  const char* format;
  std::vector<std::string> in, out;
};

TEST(StructuralTag, EveryFormat) {
  GrammarCompiler compiler(tokenizer());
  for (
      const Case& c : std::vector<Case>{
          {R"({"type": "const_string", "value": "a\u00e9"})", {"aé"}, {"", "a", "aéb"}},
          {R"({"type": "regex", "pattern": "[0-9]{2}"})", {"12"}, {"1", "123"}},
          {R"({"type": "grammar", "grammar": "root ::= \"a\" root \"b\" | \"\""})", {"", "aabb"}, {"ab b", "aab"}},
          {R"({"type": "json_schema", "json_schema": true})", {"[1, {}]"}, {"", "[1"}},
          {R"({"type": "json_schema", "json_schema": {"const": 1}, "max_whitespace_cnt": 0})", {"1"}, {" 1", "2"}},
          {R"({"type": "any_text", "max_chars": 2})", {"", "é", "ab"}, {"abc"}},
          {R"({"type": "sequence", "elements": [{"type": "const_string", "value": "a"}, {"type": "any_text"}]})",
           {"a", "aba"},
           {"", "b"}},
          {R"({"type": "or", "elements": [{"type": "const_string", "value": "a"}, {"type": "regex", "pattern": "b+"}]})",
           {"a", "bb"},
           {"", "ab"}},
          {R"({"type": "optional", "content": {"type": "const_string", "value": "a"}})", {"", "a"}, {"aa"}},
          {R"({"type": "plus", "content": {"type": "const_string", "value": "a"}})", {"a", "aa"}, {""}},
          {R"({"type": "star", "content": {"type": "const_string", "value": "a"}})", {"", "aaa"}, {"b"}},
          {R"({"type": "repeat", "min": 1, "max": 2, "content": {"type": "const_string", "value": "a"}})",
           {"a", "aa"},
           {"", "aaa"}},
          {R"({"type": "repeat", "min": 2, "max": -1, "content": {"type": "const_string", "value": "a"}})",
           {"aa", "aaaaa"},
           {"a"}},
          {R"({"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"})",
           {"<t></t>", "<t>a<</t>"},
           {"<t></t></t>", "<t>", "</t>"}},
          {R"({"type": "tag", "begin": "", "content": {"type": "sequence", "elements": [
               {"type": "const_string", "value": "a"}, {"type": "any_text", "excludes": ["bb"]}]}, "end": ["b!", "."]})",
           {"ab!", "a.", "abb!", "ab."},
           {"abb.", "a..", "abbb!"}},
          {R"({"type": "tag", "begin": "<", "content": {"type": "or", "elements": [
               {"type": "any_text"}, {"type": "regex", "pattern": ">>1"}]}, "end": ">"})",
           {"<a>", "<>>1>", "<>"},
           {"<a>>", "<>>2>"}},
          {R"({"type": "tag", "begin": "<", "content": {"type": "dispatch", "rules": [
               ["#", {"type": "regex", "pattern": "[0-9]"}]], "excludes": [">"]}, "end": ">"})",
           {"<>", "<a#1b#2>"},
           {"<#a>", "<a>>", "<#"}},
          {R"({"type": "dispatch", "loop": false, "rules": [["#", {"type": "regex", "pattern": "[0-9]"}],
               ["$", {"type": "const_string", "value": ""}]]})",
           {"", "a", "a#1", "a$"},
           {"#", "a#1a", "$#"}},
          {R"({"type": "tag", "begin": "[", "content": {"type": "triggered_tags", "triggers": ["<"], "tags": [
               {"begin": "<a>", "content": {"type": "const_string", "value": "1"}, "end": "</a>"}],
               "stop_after_first": true}, "end": "]"})",
           {"[]", "[x]", "[x<a>1</a>]"},
           {"[x<a>1</a>x]", "[<a>]", "[]]"}}}) {
    const CompiledGrammar grammar =
        compiler.compile_structural_tag(fmt::format(R"({{"type": "structural_tag", "format": {}}})", c.format));
    for (const std::string& text : c.in) EXPECT_TRUE(matches(grammar, text)) << c.format << " '" << text << "'";
    for (const std::string& text : c.out) EXPECT_FALSE(matches(grammar, text)) << c.format << " '" << text << "'";
    ASSERT_NO_FATAL_FAILURE(walk_masks(grammar, 5, 10)) << c.format;
  }
}

TEST(StructuralTag, TokensAsDelimiters) {
  GrammarCompiler compiler(tokenizer());
  const auto takes = [&](const char* format, const std::vector<std::int32_t>& tokens) {
    GrammarMatcher matcher(compiler.compile_structural_tag(fmt::format(R"({{"format": {}}})", format)));
    for (const std::int32_t token : tokens)
      if (!matcher.accept_token(token)) return false;
    return matcher.can_terminate();
  };
  const char* tag =
      R"({"type": "tag", "begin": {"type": "token", "token": "<|open|>"}, "content": {"type": "any_tokens"},
                        "end": {"type": "token", "token": 257}})";
  EXPECT_TRUE(takes(tag, {kOpen, 'a', kOpen, kClose}));
  EXPECT_FALSE(takes(tag, {kOpen, kClose, kClose}));
  EXPECT_FALSE(takes(tag, {'a', kClose}));
  const char* triggered = R"({"type": "token_triggered_tags", "trigger_tokens": [256], "exclude_tokens": ["<|close|>"],
      "tags": [{"type": "tag", "begin": {"type": "token", "token": 256}, "content": {"type": "json_schema",
        "json_schema": {"type": "integer"}}, "end": {"type": "token", "token": 257}}]})";
  EXPECT_TRUE(takes(triggered, {'a', kOpen, '1', kClose, 'b', kOpen, '2', kClose}));
  EXPECT_TRUE(takes(triggered, {}));
  EXPECT_FALSE(takes(triggered, {kOpen, 'a'}));
  EXPECT_FALSE(takes(triggered, {kClose}));
  const char* dispatch =
      R"({"type": "token_dispatch", "loop": false, "rules": [[256, {"type": "const_string", "value": "x"}]]})";
  EXPECT_TRUE(takes(dispatch, {'a', kOpen, 'x'}));
  EXPECT_FALSE(takes(dispatch, {kOpen, 'x', 'a'}));
  const char* other = R"({"type": "exclude_token", "exclude_tokens": [97]})";
  EXPECT_TRUE(takes(other, {'b'}));
  EXPECT_FALSE(takes(other, {'a'}));
  EXPECT_FALSE(takes(other, {kEnd}));
}

TEST(StructuralTag, OlderForm) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar = compiler.compile_structural_tag(R"({"type": "structural_tag", "triggers": ["<f"],
      "structures": [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
                     {"begin": "<f=b>", "schema": "{\"type\": \"null\"}", "end": "</f>"}]})");
  EXPECT_TRUE(matches(grammar, "x<f=a>12</f>y<f=b>null</f>"));
  EXPECT_FALSE(matches(grammar, "x<f=a>null</f>"));
}

TEST(StructuralTag, ErrorsNameThePlace) {
  GrammarCompiler compiler(tokenizer());
  struct Broken {
    std::string format;
    ErrorCode code;
    const char* where;
  };
  for (const Broken& broken : std::vector<Broken>{
           {R"({"type": "any"})", ErrorCode::kUnsupported, "#/format/type"},
           {R"({"type": "any_text", "max": 1})", ErrorCode::kUnsupported, "#/format/max"},
           {R"({"type": "any_text", "max_tokens": 1})", ErrorCode::kUnsupported, "#/format/max_tokens"},
           {R"({"type": "any_text", "excludes": [""]})", ErrorCode::kInvalidArgument, "#/format/excludes/0"},
           {R"({"value": "a"})", ErrorCode::kInvalidArgument, "#/format"},
           {R"([])", ErrorCode::kInvalidArgument, "#/format"},
           {R"({"type": "const_string", "value": 1})", ErrorCode::kInvalidArgument, "#/format/value"},
           {R"({"type": "sequence", "elements": []})", ErrorCode::kInvalidArgument, "#/format/elements"},
           {R"({"type": "or", "elements": [{"type": "regex", "pattern": "("}]})", ErrorCode::kMalformed,
            "#/format/elements/0/pattern"},
           {R"({"type": "regex", "pattern": "a(?=b)c"})", ErrorCode::kInvalidArgument, "#/format/pattern"},
           {R"({"type": "regex", "pattern": "(a)\\1"})", ErrorCode::kUnsupported, "#/format/pattern"},
           {R"({"type": "grammar", "grammar": "root ::= x"})", ErrorCode::kMalformed, "#/format/grammar"},
           {R"({"type": "json_schema", "json_schema": {"properties": {"a": {"type": "x"}}}})",
            ErrorCode::kInvalidArgument, "#/format/json_schema/properties/a/type"},
           {R"({"type": "json_schema", "json_schema": {"uniqueItems": true}})", ErrorCode::kUnsupported,
            "#/format/json_schema/uniqueItems"},
           {R"({"type": "json_schema", "json_schema": false})", ErrorCode::kInvalidArgument, "#/format/json_schema"},
           {R"({"type": "json_schema", "json_schema": true, "style": "qwen_xml"})", ErrorCode::kUnsupported,
            "#/format/style"},
           {R"({"type": "repeat", "min": 3, "max": 2, "content": {"type": "any_text"}})", ErrorCode::kInvalidArgument,
            "#/format"},
           {R"({"type": "token", "token": "<none>"})", ErrorCode::kInvalidArgument, "#/format/token"},
           {R"({"type": "token", "token": 1.5})", ErrorCode::kInvalidArgument, "#/format/token"},
           {R"({"type": "triggered_tags", "triggers": ["x"], "tags": [
               {"begin": "y", "content": {"type": "any_text"}, "end": "z"}]})",
            ErrorCode::kInvalidArgument, "#/format/triggers"},
           {R"({"type": "triggered_tags", "triggers": ["y"], "tags": [
               {"begin": "y", "content": {"type": "any_text"}, "end": "z"},
               {"begin": "x", "content": {"type": "any_text"}, "end": "z"}]})",
            ErrorCode::kInvalidArgument, "#/format/tags/1/begin"}}) {
    try {
      compiler.compile_structural_tag(fmt::format(R"({{"type": "structural_tag", "format": {}}})", broken.format));
      ADD_FAILURE() << broken.format;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), broken.code) << e.what();
      EXPECT_TRUE(e.where().starts_with(broken.where)) << e.what();
      EXPECT_TRUE(e.where().size() == std::string_view(broken.where).size() || e.code() == ErrorCode::kMalformed)
          << e.what();
    }
  }
  EXPECT_THROW(compiler.compile_structural_tag("{"), MalformedError);
  EXPECT_THROW(compiler.compile_structural_tag("1"), InvalidArgumentError);
  EXPECT_THROW(compiler.compile_structural_tag(R"({"type": "json", "format": {"type": "any_text"}})"),
               InvalidArgumentError);
  std::string deep = R"({"type": "any_text"})";
  std::string open, close;
  for (int i = 0; i < 400; ++i) {
    open += R"({"type": "star", "content": )";
    close += "}";
  }
  deep.insert(0, open);
  deep += close;
  EXPECT_THROW(compiler.compile_structural_tag(R"({"format": )" + deep + "}"), UnsupportedError);
  EXPECT_THROW(compiler.compile_structural_tag(fmt::format(
                   R"({{"format": {{"type": "any_text", "excludes": ["{}"]}}}})", std::string(20'000, 'a'))),
               UnsupportedError);
}

TEST(StructuralTag, HostileTagsAreBounded) {
  GrammarCompiler compiler(tokenizer(), {.max_expressions = 300'000});
  std::string tags, triggers;
  for (int i = 0; i < 500; ++i) {
    tags += fmt::format(R"({}{{"begin": "<{}>", "content": {{"type": "any_text"}}, "end": "</{}>"}})",
                        i == 0 ? "" : ",", i, i);
    triggers += fmt::format(R"({}"<{}>")", i == 0 ? "" : ",", i);
  }
  const CompiledGrammar many = compiler.compile_structural_tag(
      fmt::format(R"({{"format": {{"type": "triggered_tags", "triggers": [{}], "tags": [{}]}}}})", triggers, tags));
  EXPECT_TRUE(matches(many, "x<499>y</499></498>"));
  EXPECT_FALSE(matches(many, "x<499>y</498>"));
  std::string excludes;
  for (int i = 0; i < 80; ++i)
    excludes += fmt::format(R"({}"{}b")", i == 0 ? "" : ",", std::string(static_cast<std::size_t>(i), 'a'));
  const CompiledGrammar nested = compiler.compile_structural_tag(fmt::format(
      R"({{"format": {{"type": "tag", "begin": "", "content": {{"type": "any_text", "excludes": [{}]}}, "end": "{}b!"}}}})",
      excludes, std::string(100, 'a')));
  EXPECT_TRUE(matches(nested, std::string(105, 'a') + "b!"));
  EXPECT_FALSE(GrammarMatcher(nested).accept_bytes(std::string(99, 'a') + "b"));
  std::string pairs;
  for (int i = 0x4e00; i < 0x4e00 + 700; ++i)
    pairs += fmt::format(R"({}"\u{:04x}\u{:04x}x")", pairs.empty() ? "" : ",", i, i);
  EXPECT_THROW(compiler.compile_structural_tag(
                   fmt::format(R"({{"format": {{"type": "any_text", "excludes": [{},{}]}}}})", pairs, pairs)),
               UnsupportedError);
  std::string schemas;
  for (int i = 0; i < 50; ++i)
    schemas += fmt::format(R"({}{{"type": "json_schema", "json_schema": {{"enum": ["{}", "{}"]}}}})", i == 0 ? "" : ",",
                           i, std::string(10'000, static_cast<char>('a' + i % 26)));
  EXPECT_THROW(
      compiler.compile_structural_tag(fmt::format(R"({{"format": {{"type": "or", "elements": [{}]}}}})", schemas)),
      UnsupportedError);
}

TEST(StructuralTag, LenientSchemasListWhatTheyDrop) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar = compiler.compile_structural_tag(
      R"({"format": {"type": "json_schema", "json_schema": {"items": {"uniqueItems": true}}}})", {.lenient = true});
  ASSERT_EQ(grammar.dropped().size(), 1u);
  EXPECT_EQ(grammar.dropped()[0].pointer, "#/format/json_schema/items/uniqueItems");
}

TEST(StructuralTag, TagDispatchOfXgrammarsEbnf) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar = compiler.compile_ebnf(
      "root ::= TagDispatch((\"<a>\", a), (\"<b>\", b), excludes=(\"stop\",)) \"stop\"?\na ::= [0-9]+ \"</a>\"\nb ::= "
      "a?");
  for (const char* text : {"", "x<a>1</a>y<b>z", "<b>12</a><a>3</a>stop", "sto"})
    EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"<a>", "<a>x", "stopx", "<a>1<b>"}) EXPECT_FALSE(matches(grammar, text)) << text;
  EXPECT_THROW(compiler.compile_ebnf("root ::= TagDispatch((\"\", a))\na ::= \"a\""), MalformedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= TagDispatch((\"a\", b))"), MalformedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= TagDispatch((\"a\", root), stop_eos=true)"), UnsupportedError);
}

}  // namespace
}  // namespace coreai::grammar
