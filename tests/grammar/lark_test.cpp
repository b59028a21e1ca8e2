#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>

#include "coreai/base/error.h"
#include "grammar/byte_tokenizer.h"
#include "grammar/mask_walk.h"

namespace coreai::grammar {
namespace {

constexpr std::int32_t kTool = 256, kEnd = 257, kAb = 258;

TokenizerInfo tokenizer() {
  std::vector<std::string> vocabulary;
  vocabulary.reserve(300);
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"<|tool|>", "<|eom|>", "ab", "{\"", "12", " 1", "\xc3\xa9x"}) vocabulary.emplace_back(text);
  return TokenizerInfo(vocabulary, {.kind = VocabularyKind::kRaw, .end_ids = {kEnd}, .special_ids = {kTool}});
}

struct Case {
  const char* text;
  std::vector<std::string> in, out;
};

TEST(Lark, HasExactlyTheTextsOfItsRules) {
  GrammarCompiler compiler(tokenizer());
  for (const Case& c : std::vector<Case>{
           {R"(start: "a" "b"? | "c")", {"a", "ab", "c"}, {"", "b", "abc"}},
           {"start: \"a\"\n     | \"b\" // two\n     | other # three\n\nother: \"(\" start \")\"",
            {"a", "b", "((a))"},
            {"(a"}},
           {"start: expr\n?expr: expr \"+\" term | term -> one\n!term: INT\n%import common.INT",
            {"1", "1+22+3"},
            {"", "1+"}},
           {R"(start: ["x"] ("a" | "b")+ "c"*)", {"a", "xab", "bcc"}, {"", "x", "xc"}},
           {R"(start: "a"~2 "b"~1..2 "c"{2} "d"{,1} "e"{1,})",
            {"aabcce", "aabbccdee"},
            {"abcce", "aabbbcce", "aabccdde"}},
           {R"(start: "sElect"i "1")", {"SELECT1", "select1", "sElEcT1"}, {"SELEC1"}},
           {R"(start: "a".."c" "é".."ë")", {"aé", "cê"}, {"dé", "aì"}},
           {R"(start: /[a-z]+\/x/ /a.b/s /k./i)", {"a/xa\nbKy", "z/xaébky"}, {"a/xabk", "/xa-bk-", "a/xa-bk\n"}},
           {R"(start: /a b # c/x)", {"ab"}, {"a b"}},
           {R"(start: /(.|\n)*/ "!")", {"!", "a\r\n\u2028!"}, {"a"}},
           {R"(start: /(?i:ab)c(?s:.)/)", {"ABc\n", "abcx"}, {"abCx"}},
           {"start: NAME \"=\" VALUE\nNAME: LETTER (LETTER | \"_\")*\nVALUE: /[0-9]/+ & ~/0.*/\n%import common.LETTER",
            {"a=1", "a_b=10"},
            {"_a=1", "a=01", "a="}},
           {"%import common (CNAME, NUMBER)\n%import common.WS -> SPACE\nstart: CNAME SPACE NUMBER",
            {"x1 1.5e3", "_ .5"},
            {"1 1", "x1"}},
           {"%import common.ESCAPED_STRING\nstart: ESCAPED_STRING", {"\"\"", "\"a\\\"b\""}, {"\"a\"b\"", "\"\n\""}},
           {"%import common.C_COMMENT\nstart: C_COMMENT \".\"", {"/**/.", "/* a * b **/."}, {"/**/a*/.", "/*/."}},
           {R"(start: "a" %json {"type": "array", "items": {"const": "}"}, "maxItems": 1} "b")",
            {"a[]b", "a[\"}\"]b"},
            {"a[1]b", "ab"}},
           {R"(start: %regex {"substring_words": "foo bar. baz"} "!")",
            {"!", "foo!", "foo bar.!", " baz!", ". baz!", "bar. !"},
            {"fo!", "foobar!", "oo bar!"}},
           {R"(start: %regex {"substring_chars": "aéb"})", {"", "a", "éb", "aéb"}, {"ab", "ba"}},
           {R"(start: %regex {"substring_chunks": ["abc", "de", "fg"]})",
            {"", "abc", "defg", "abcdefg"},
            {"ab", "abcfg"}},
           {"start:", {""}, {"a"}},
           {"start: | \"a\"", {"", "a"}, {"aa"}},
           {"start: start \"a\" | b\nb: start? \"b\"", {"b", "bab", "baa"}, {"", "a"}}}) {
    SCOPED_TRACE(c.text);
    const CompiledGrammar grammar = compiler.compile_lark(c.text);
    for (const std::string& text : c.in) EXPECT_TRUE(matches(grammar, text)) << "'" << text << "'";
    for (const std::string& text : c.out) EXPECT_FALSE(matches(grammar, text)) << "'" << text << "'";
    for (unsigned seed = 0; seed < 2; ++seed) ASSERT_NO_FATAL_FAILURE(walk_masks(grammar, seed, 8));
  }
}

// The same grammar in both notations; that of EBNF is checked against an oracle of its own.
TEST(Lark, RandomGrammarsMeanWhatTheyMeanInEbnf) {
  std::mt19937 random(31);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  GrammarCompiler compiler(tokenizer(), {.max_cached_grammars = 0});
  const std::vector<std::string> names{"root", "x", "y"};
  std::function<std::string(int)> item = [&](int depth) -> std::string {
    const int kind = pick(depth == 0 ? 4 : 7);
    if (kind == 0) return "\"a\"";
    if (kind == 1) return "\"b\"";
    if (kind == 2) return names[static_cast<std::size_t>(pick(3))];
    if (kind == 3) return pick(3) == 0 ? "\"\"" : "\"ab\"";
    if (kind == 4) return fmt::format("({} | {})", item(depth - 1), item(depth - 1));
    if (kind == 5) return fmt::format("({} {})", item(depth - 1), item(depth - 1));
    return fmt::format("({}){}", item(depth - 1),
                       std::vector{"?", "*", "+", "{2}", "{1,3}"}[static_cast<std::size_t>(pick(5))]);
  };
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i].size() < 5)
      for (const char c : {'a', 'b'}) texts.push_back(texts[i] + c);
  int compared = 0;
  for (int round = 0; round < 100; ++round) {
    std::string ebnf, lark = "start: root\n";
    for (const std::string& name : names) {
      const std::string body = fmt::format("{} {} | {}", item(2), item(1), item(1));
      ebnf += name + " ::= " + body + "\n";
      lark += name + ": " + body + "\n";
    }
    SCOPED_TRACE(lark);
    std::optional<CompiledGrammar> wanted;
    try {
      wanted = compiler.compile_ebnf(ebnf);
    } catch (const InvalidArgumentError&) {
      EXPECT_THROW(compiler.compile_lark(lark), InvalidArgumentError);
      continue;
    }
    ++compared;
    const CompiledGrammar got = compiler.compile_lark(lark);
    for (const std::string& text : texts) ASSERT_EQ(matches(got, text), matches(*wanted, text)) << "'" << text << "'";
  }
  EXPECT_GT(compared, 50);
}

TEST(Lark, IgnoredTextComesAfterLexemes) {
  GrammarCompiler compiler(tokenizer());
  const std::string rules =
      "%import common.INT\n%ignore / +/\n%ignore \";\"\nstart: \"id=\" list | \"\"\nlist: INT (\",\" INT)*\n";
  const CompiledGrammar grammar = compiler.compile_lark(rules);
  for (const char* text : {"", "id=1", "id= 1 , 22;; ,3 ", "id=1;"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {" ", " id=1", "id =1", "id=1 2", "i d=1"}) EXPECT_FALSE(matches(grammar, text)) << text;
  const CompiledGrammar before = compiler.compile_lark("%llguidance {\"allow_initial_skip\": true}\n" + rules);
  EXPECT_TRUE(matches(before, "  id=1"));
  for (unsigned seed = 0; seed < 4; ++seed) ASSERT_NO_FATAL_FAILURE(walk_masks(grammar, seed, 12));
}

TEST(Lark, LazyRulesEndAtTheirFirstEnd) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar lazy = compiler.compile_lark("start: head \"b\"*\nhead[lazy]: /[ab]*/ \"bab\" | \"aaa\"");
  const CompiledGrammar suffix = compiler.compile_lark("start: head \"b\"*\nhead[suffix=\"bab\"]: /[ab]*/");
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i].size() < 8)
      for (const char c : {'a', 'b'}) texts.push_back(texts[i] + c);
  int members = 0;
  for (const std::string& text : texts) {
    const auto bab = text.find("bab");
    const std::string head = bab == std::string::npos ? "" : text.substr(0, bab + 3);
    const bool by_suffix = !head.empty() && text.find('a', head.size()) == std::string::npos;
    const bool by_aaa = text.starts_with("aaa") && text.find('a', 3) == std::string::npos;
    const bool expected = head.starts_with("aaa") ? by_aaa : by_suffix || by_aaa;
    EXPECT_EQ(matches(lazy, text), expected) << text;
    EXPECT_EQ(matches(suffix, text), by_suffix) << text;
    members += expected;
  }
  EXPECT_GT(members, 20);
  const CompiledGrammar tools = compiler.compile_lark(R"(
start: tool* tail
tail: REST
head[lazy]: TEXT "<function"
tool: head "=a>" %json {"type": "integer"} "</function>"
TEXT: /(.|\n)*/
REST: TEXT & ~/(?s:.*)<function(?s:.*)/
)");
  EXPECT_TRUE(matches(tools, "x <function=a>1</function> y <funct"));
  EXPECT_FALSE(GrammarMatcher(tools).accept_bytes("x <function=b"));
  for (unsigned seed = 0; seed < 3; ++seed) ASSERT_NO_FATAL_FAILURE(walk_masks(tools, seed, 15));
}

TEST(Lark, TokensAreTerminalsOfRules) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar =
      compiler.compile_lark("start: <|tool|> body <|eom|> | /[0-9]+/\nbody: <[^256-257]>{1,2}");
  const auto takes = [&](const std::vector<std::int32_t>& tokens) {
    GrammarMatcher matcher(grammar);
    for (const std::int32_t token : tokens)
      if (!matcher.accept_token(token)) return false;
    return matcher.can_terminate() || matcher.is_terminated();
  };
  EXPECT_TRUE(takes({kTool, kAb, kEnd}));
  EXPECT_TRUE(takes({kTool, kAb, 'x', kEnd}));
  EXPECT_TRUE(takes({'1', '2'}));
  EXPECT_FALSE(takes({kTool, kEnd}));
  EXPECT_FALSE(takes({kTool, kTool, kEnd}));
  EXPECT_FALSE(GrammarMatcher(grammar).accept_bytes("<"));
  for (unsigned seed = 0; seed < 6; ++seed) ASSERT_NO_FATAL_FAILURE(walk_masks(grammar, seed, 6));
}

TEST(Lark, InsideStructuralTags) {
  GrammarCompiler compiler(tokenizer());
  const CompiledGrammar grammar = compiler.compile_structural_tag(
      R"({"format": {"type": "sequence", "elements": [{"type": "const_string", "value": "["},
          {"type": "grammar", "syntax": "lark", "grammar": "start: X start | X\nX: /[0-9]/ \",\""},
          {"type": "grammar", "grammar": "root ::= start\nstart ::= \"]\""}]}})");
  EXPECT_TRUE(matches(grammar, "[1,2,]"));
  EXPECT_FALSE(matches(grammar, "[1,2]"));
}

TEST(Lark, LenientSchemasListWhatTheyDrop) {
  GrammarCompiler compiler(tokenizer());
  const std::string text = "start: \"a\"\n  | %json {\"items\": {\"uniqueItems\": true}}";
  const CompiledGrammar grammar = compiler.compile_lark(text, {.lenient = true});
  ASSERT_EQ(grammar.dropped().size(), 1u);
  EXPECT_EQ(grammar.dropped()[0].pointer, "#/items/uniqueItems");
  EXPECT_NE(grammar.dropped()[0].reason.find("line 2"), std::string::npos);
  EXPECT_THROW(compiler.compile_lark(text), UnsupportedError);
}

TEST(Lark, ErrorsSayWhere) {
  GrammarCompiler compiler(tokenizer());
  struct Broken {
    std::string text;
    std::uint64_t offset;
    const char* part;
  };
  for (const Broken& broken : std::vector<Broken>{{"", 0, "no rule 'start'"},
                                                  {"start: x", 7, "'x' is not defined"},
                                                  {"start: X", 7, "'X' is not defined"},
                                                  {"start: \"a\"\nstart: \"b\"", 11, "second time"},
                                                  {"start: A\nA: B\nB: \"b\" A", 21, "holds itself"},
                                                  {"start: A\nA: b\nb: \"b\"", 12, "inside a terminal"},
                                                  {"start: A\nA: %json {}", 12, "inside a terminal"},
                                                  {"start: A\nA: <|tool|>", 12, "inside a terminal"},
                                                  {"start: (\"a\"", 7, "not closed"},
                                                  {"start: \"a", 7, "not closed"},
                                                  {"start: /a", 7, "not closed"},
                                                  {"start: /a(/", 10, "not closed"},
                                                  {"start: \"\\q\"", 8, "means nothing"},
                                                  {"start: \"\\ud800\"", 8, "no code point"},
                                                  {"start: \"a\" )", 11, "does not belong"},
                                                  {"start \"a\"", 6, "':' is expected"},
                                                  {"start: \"a\"~3..2", 10, "from 3 to 2"},
                                                  {"start: \"a\"{,}", 10, "without a bound"},
                                                  {"start: \"b\"..\"a\"", 7, "later one"},
                                                  {"start: \"\xff\"", 8, "UTF-8"},
                                                  {"%import common.NOTHING\nstart: \"a\"", 15, "'NOTHING'"},
                                                  {"start: %json {\"a\"", 13, "not closed"},
                                                  {"start: %json {\"a\" 1}", 18, "syntax error"},
                                                  {"start: <|tool", 7, "not closed"}}) {
    try {
      compiler.compile_lark(broken.text);
      ADD_FAILURE() << broken.text;
    } catch (const MalformedError& e) {
      EXPECT_EQ(e.offset(), broken.offset) << e.what();
      EXPECT_NE(std::string(e.what()).find(broken.part), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("line "), std::string::npos) << e.what();
    }
  }
  for (const char* text :
       {"start: @other", "start: %lark {start: \"a\"}", "start[capture]: /a/", "start[stop=\"a\"]: /a/",
        "start.2: \"a\"", "start{x}: \"a\"", "%import python.NAME", "%declare A",
        "%llguidance {\"skip_repetition\": \"once\"}\nstart: \"a\"", "start: %regex {\"type\": \"number\"}",
        "start: /a/m", "start: /é/i", "start: /(a)\\1/", "start: %json {\"uniqueItems\": true}"})
    EXPECT_THROW(compiler.compile_lark(text), UnsupportedError) << text;
  for (const char* text : {"start: A\nA: /a/ & /b/", "start: start \"a\"", "start: <|none|>", "start: %json false {}",
                           "start: %json {\"not\": {}}"})
    EXPECT_ANY_THROW(compiler.compile_lark(text)) << text;
  EXPECT_THROW(compiler.compile_lark("start: A\nA: /a/ & /b/"), InvalidArgumentError);
  EXPECT_THROW(compiler.compile_lark("start: " + std::string(10'000, '(')), UnsupportedError);
  std::string chain = "start: T0\n";
  for (int i = 0; i < 5'000; ++i) chain += fmt::format("T{}: T{} \"a\"\n", i, i + 1);
  EXPECT_THROW(compiler.compile_lark(chain + "T5000: \"b\"\n"), UnsupportedError);
}

}  // namespace
}  // namespace coreai::grammar
