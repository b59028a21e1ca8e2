#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>
#include <set>

#include "coreai/base/error.h"
#include "grammar/byte_tokenizer.h"
#include "grammar/ebnf_parser.h"

namespace coreai::grammar {
namespace {

using Kind = AstNode::Kind;

struct EbnfGrammar {
  GrammarAst ast;
  AstId start;
};

EbnfGrammar read_ebnf(const std::string& text) {
  EbnfGrammar out;
  ExpressionPool pool;
  out.start = parse_ebnf(text, "root", out.ast, pool, bytes_only());
  return out;
}

// An oracle: which parts of a text each rule of the grammar as written matches, by fixed point over all parts.
class Parts {
 public:
  Parts(const GrammarAst& ast, std::string_view text) : ast_(ast), text_(text), size_(text.size() + 1) {
    found_.assign(ast.rules().size() * size_ * size_, false);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t rule = 0; rule < ast.rules().size(); ++rule)
        for (std::size_t from = 0; from < size_; ++from)
          for (const std::size_t to : ends(ast.rules()[rule].body, from)) {
            if (found_[at(rule, from, to)]) continue;
            found_[at(rule, from, to)] = changed = true;
          }
    }
  }
  bool matches(std::size_t rule) const { return found_[at(rule, 0, size_ - 1)]; }

 private:
  std::size_t at(std::size_t rule, std::size_t from, std::size_t to) const {
    return (rule * size_ + from) * size_ + to;
  }

  // Where a match of the node that begins at `from` may end, as far as is known.
  std::set<std::size_t> ends(AstId id, std::size_t from) const {
    const AstNode& node = ast_.node(id);
    std::set<std::size_t> out;
    switch (node.kind) {
      case Kind::kSet:
        for (const CodePointRange& range : node.set.ranges())
          if (from + 1 < size_ && text_[from] >= static_cast<char>(range.first) &&
              text_[from] <= static_cast<char>(range.last))
            out.insert(from + 1);
        break;
      case Kind::kLiteral:
        if (text_.substr(from).starts_with(node.text)) out.insert(from + node.text.size());
        break;
      case Kind::kExpression:
        ADD_FAILURE() << "no such part in these grammars";
        break;
      case Kind::kRule:
        for (std::size_t to = from; to < size_; ++to)
          if (found_[at(node.rule, from, to)]) out.insert(to);
        break;
      case Kind::kChoice:
        for (const AstId child : node.children) out.merge(ends(child, from));
        break;
      case Kind::kSequence:
        out.insert(from);
        for (const AstId child : node.children) out = each(child, out);
        break;
      case Kind::kRepeat: {
        std::set<std::size_t> reached{from};
        for (std::uint32_t i = 0; i < node.min; ++i) reached = each(node.children[0], reached);
        out = reached;
        for (std::uint32_t i = node.min; i < std::min<std::uint32_t>(node.max, node.min + 8); ++i) {
          reached = each(node.children[0], reached);
          out.insert(reached.begin(), reached.end());
        }
      }
    }
    return out;
  }
  std::set<std::size_t> each(AstId id, const std::set<std::size_t>& from) const {
    std::set<std::size_t> out;
    for (const std::size_t start : from) out.merge(ends(id, start));
    return out;
  }

  const GrammarAst& ast_;
  std::string_view text_;
  std::size_t size_;
  std::vector<bool> found_;
};

std::vector<std::string> texts_up_to(std::size_t length, std::string_view alphabet) {
  std::vector<std::string> out{""};
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].size() < length)
      for (const char c : alphabet) out.push_back(out[i] + c);
  return out;
}

// Exactly the texts of the oracle, and no prefix that none of them has.
void expect_same_language(GrammarCompiler& compiler, const std::string& text) {
  SCOPED_TRACE(text);
  const EbnfGrammar read = read_ebnf(text);
  std::set<std::string> members;
  const auto texts = texts_up_to(6, "ab");
  for (const std::string& t : texts)
    if (Parts(read.ast, t).matches(read.ast.node(read.start).rule)) members.insert(t);
  std::optional<CompiledGrammar> grammar;
  try {
    grammar = compiler.compile_ebnf(text);
  } catch (const InvalidArgumentError&) {
    EXPECT_TRUE(members.empty());
    return;
  }
  for (const std::string& t : texts) ASSERT_EQ(matches(*grammar, t), members.contains(t)) << "'" << t << "'";
  for (const std::string& t : members)
    for (std::size_t length = 0; length <= t.size(); ++length)
      ASSERT_TRUE(GrammarMatcher(*grammar).accept_bytes(t.substr(0, length))) << "'" << t << "'";
}

class Recursive : public testing::TestWithParam<const char*> {};

TEST_P(Recursive, HasExactlyItsTexts) {
  GrammarCompiler compiler(bytes_only());
  expect_same_language(compiler, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Grammars, Recursive,
                         testing::Values("root ::= root \"a\" | \"b\"", "root ::= root root | \"a\" | \"\"",
                                         "root ::= x \"a\" | \"b\"\nx ::= root \"b\" | \"a\"",
                                         "root ::= \"a\" root \"b\" | \"\"",
                                         "root ::= x? root \"a\" | \"b\"\nx ::= \"b\"", "root ::= root",
                                         "root ::= root \"a\"", "root ::= (root \"a\")* \"b\"",
                                         "root ::= (root | \"a\"){2} | \"b\"",
                                         "root ::= a b\na ::= b? a \"a\" | \"\"\nb ::= a \"b\" | \"\"",
                                         "root ::= x y\nx ::= y x | \"a\" | \"\"\ny ::= x y | \"b\" | \"\"",
                                         "root ::= [ab]{2,3} root? | x\nx ::= x"));

TEST(Ebnf, RandomGrammarsHaveExactlyTheirTexts) {
  std::mt19937 random(23);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  GrammarCompiler compiler(bytes_only(), {.max_cached_grammars = 0});
  const std::vector<std::string> names{"root", "x", "y"};
  std::function<std::string(int)> item = [&](int depth) -> std::string {
    const int kind = pick(depth == 0 ? 4 : 7);
    if (kind == 0) return "\"a\"";
    if (kind == 1) return "[ab]";
    if (kind == 2) return names[static_cast<std::size_t>(pick(3))];
    if (kind == 3) return pick(2) == 0 ? "\"b\"" : "\"\"";
    if (kind == 4) return fmt::format("({} | {})", item(depth - 1), item(depth - 1));
    if (kind == 5) return fmt::format("({} {})", item(depth - 1), item(depth - 1));
    return fmt::format("({}){}", item(depth - 1),
                       std::vector{"?", "*", "+", "{2}", "{1,3}"}[static_cast<std::size_t>(pick(5))]);
  };
  for (int round = 0; round < 150; ++round) {
    std::string text;
    for (const std::string& name : names) text += fmt::format("{} ::= {} {} | {}\n", name, item(2), item(1), item(1));
    ASSERT_NO_FATAL_FAILURE(expect_same_language(compiler, text));
  }
}

TEST(Ebnf, ReadsWhatLlamaCppAndXgrammarWrite) {
  GrammarCompiler compiler(bytes_only());
  const CompiledGrammar json = compiler.compile_ebnf(R"(# JSON
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)");
  EXPECT_TRUE(matches(json, R"({"a": [1, -2.5e3, "x\u00e9\n"], "b": {"c": null} })"));
  EXPECT_TRUE(matches(json, "{\"\u00e9\U0001f600\":true}"));
  EXPECT_FALSE(matches(json, R"({"a": [1,, 2]})"));
  EXPECT_FALSE(matches(json, "{\"a\x01\": 1}"));
  EXPECT_FALSE(GrammarMatcher(json).accept_bytes("[1]"));
  std::string deep(2000, '[');
  EXPECT_TRUE(GrammarMatcher(json).accept_bytes("{\"a\": " + deep));

  const CompiledGrammar sums = compiler.compile_ebnf(
      "expr ::= expr [-+] term | term\nterm ::= term [*/] atom | atom\n"
      "atom ::= [0-9]+ | \"(\" expr \")\"",
      "expr");
  EXPECT_TRUE(matches(sums, "1+2*(3-4)/5"));
  EXPECT_FALSE(matches(sums, "1+*2"));
  EXPECT_TRUE(matches(compiler.compile_ebnf("root ::= \"\\u00e9\" \"\\U0001F600\" [\\u{4e00}-\\u{9fff}] ."),
                      "\u00e9\U0001f600\u4e2dx"));
}

TEST(Ebnf, ErrorsSayWhere) {
  struct Broken {
    const char* text;
    std::uint64_t offset;
    const char* part;
  };
  for (const Broken& broken :
       {Broken{"root ::= x", 9, "'x' is used but not defined"},
        Broken{"root ::= \"a\nroot ::= \"b\"", 9, "line 1 column 10"},
        Broken{"root ::= \"a\"\nroot ::= \"b\"", 13, "line 2 column 1"}, Broken{"other ::= \"a\"", 0, "no rule 'root'"},
        Broken{"root ::= (\"a\"", 9, "not closed"}, Broken{"root ::= [b-a]", 10, "descending"},
        Broken{"root ::= [a", 9, "not closed"}, Broken{"root ::= \"a\"{3,1}", 12, "from 3 to 1"},
        Broken{"root ::= \"\\q\"", 10, "means nothing"}, Broken{"root \"a\"", 5, "'::='"},
        Broken{"root ::= \"a\" )", 13, "does not belong"}, Broken{"root ::= \"\\ud800\"", 10, "no code point"},
        Broken{"root ::= \"\xff\"", 10, "UTF-8"}, Broken{"root ::= \"a\"{x}", 12, "a repetition reads"},
        Broken{"", 0, "no rule 'root'"}}) {
    try {
      read_ebnf(broken.text);
      ADD_FAILURE() << broken.text;
    } catch (const MalformedError& e) {
      EXPECT_EQ(e.offset(), broken.offset) << e.what();
      EXPECT_NE(std::string(e.what()).find(broken.part), std::string::npos) << e.what();
    }
  }
  GrammarCompiler compiler(bytes_only());
  EXPECT_THROW(compiler.compile_ebnf("root ::= <think>"), InvalidArgumentError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= <[256]>"), InvalidArgumentError);
  EXPECT_THROW(compiler.compile_ebnf("root[temperature=0.7] ::= \"a\""), UnsupportedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= \"a\" (=\"b\")"), UnsupportedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= Substring(\"a\")"), UnsupportedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= " + std::string(10'000, '(')), UnsupportedError);
  EXPECT_THROW(compiler.compile_ebnf("root ::= \"a\" x\nx ::= x"), InvalidArgumentError);
}

TEST(Ebnf, HostileGrammarsAreBounded) {
  GrammarCompiler compiler(bytes_only(), {.max_expressions = 200'000});
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 20'000; ++i) chain += fmt::format("r{} ::= r{} | \"a\"\n", i, i + 1);
  chain += "r20000 ::= \"b\"\n";
  EXPECT_THROW(GrammarMatcher(compiler.compile_ebnf(chain)).accept_bytes("a"), UnsupportedError);
  EXPECT_TRUE(GrammarMatcher(compiler.compile_ebnf("root ::= (\"a\"{1,1000000}){1,1000000}")).accept_bytes("aaaa"));
  std::string tangle;
  for (int i = 0; i < 12; ++i) {
    tangle += i == 0 ? "root ::= \"a\"" : fmt::format("r{} ::= \"b\"", i);
    for (int j = 0; j < 12; ++j)
      tangle += fmt::format(" | {} r{}?", j == 0 ? "root" : fmt::format("r{}", j), j == 0 ? 1 : j);
    tangle += "\n";
  }
  try {
    EXPECT_TRUE(GrammarMatcher(compiler.compile_ebnf(tangle)).accept_bytes("a"));
  } catch (const UnsupportedError&) {
  }
}

}  // namespace
}  // namespace coreai::grammar
