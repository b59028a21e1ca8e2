#include "grammar/regex.h"

#include <gtest/gtest.h>

#include <regex>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

bool matches(std::string_view pattern, std::string_view text, RegexMatch match = RegexMatch::kSearch) {
  ExpressionPool pool;
  ExprId e = regex_expression(pool, pattern, match, Utf8Encoder());
  for (const char byte : text) e = pool.derive(e, static_cast<std::uint8_t>(byte));
  return pool.nullable(e);
}

struct Case {
  const char* pattern;
  std::vector<const char*> yes, no;
};

class RegexSearch : public testing::TestWithParam<Case> {};

TEST_P(RegexSearch, FindsWhatEcma262Finds) {
  for (const char* text : GetParam().yes)
    EXPECT_TRUE(matches(GetParam().pattern, text)) << GetParam().pattern << " in '" << text << "'";
  for (const char* text : GetParam().no)
    EXPECT_FALSE(matches(GetParam().pattern, text)) << GetParam().pattern << " in '" << text << "'";
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, RegexSearch,
    testing::Values(
        Case{"a", {"a", "xax"}, {"", "b"}}, Case{"^a", {"a", "ab"}, {"ba"}}, Case{"a$", {"a", "ba"}, {"ab"}},
        Case{"^a*$", {"", "aaa"}, {"b", "ab"}}, Case{"^$", {""}, {"a"}}, Case{"", {"", "a"}, {}},
        Case{"a|^b", {"b", "xa"}, {"xb"}}, Case{"^(a|b)$|c", {"a", "xcx"}, {"ab"}},
        Case{"(^a)?b", {"b", "xb", "ab"}, {"a"}}, Case{"x*^y", {"y"}, {"xy", "ay"}}, Case{"a$b", {}, {"ab", "a"}},
        Case{"^\\d{3}-\\d{2,}$", {"123-45", "123-4567"}, {"12-34", "123-4"}}, Case{"^a{2}$", {"aa"}, {"a", "aaa"}},
        Case{"^a{2,3}?$", {"aa", "aaa"}, {"a", "aaaa"}}, Case{"^a{,2}$", {"a{,2}"}, {"aa"}}, Case{"^{$", {"{"}, {""}},
        Case{"^[a-c]+$", {"abc"}, {"abd", ""}}, Case{"^[^a-c]+$", {"xyz", "\u00e9"}, {"a", "xa"}},
        Case{"^[\\d-x]+$", {"1-x"}, {"y"}}, Case{"^[]$", {}, {"", "a"}}, Case{"^[^]$", {"a", "\n"}, {"", "ab"}},
        Case{"^.$", {"a", "\u00e9", "\U0001f600"}, {"\n", "\r", "\u2028", "ab"}},
        Case{"^\\s$", {"\t", "\u00a0", "\ufeff"}, {"a", "\u200b"}}, Case{"^\\w+$", {"aZ_9"}, {"\u00e9", "-"}},
        Case{"^\\W$", {"\u00e9", "-"}, {"a"}}, Case{"^\\S\\D$", {"ab"}, {"a1", " b"}},
        Case{"^\\u00e9$", {"\u00e9"}, {"e"}}, Case{"^\\u{1F600}$", {"\U0001f600"}, {}},
        Case{"^\\uD83D\\uDE00$", {"\U0001f600"}, {}}, Case{"^\\x41\\cJ\\0?$", {"A\n"}, {"A"}},
        Case{"^\\-\\/\\.$", {"-/."}, {"-/x"}}, Case{"^[\\b]$", {"\b"}, {"b"}}, Case{"^(?:ab)+$", {"abab"}, {"aba"}},
        Case{"^(?<year>\\d+)$", {"2026"}, {"x"}},
        Case{"^(?=.*\\d)(?=.*[a-z]).{4,}$", {"abc1", "1xyz"}, {"abcd", "1234", "a1"}},
        Case{"^(?!foo)", {"bar", "fo", ""}, {"foo", "foobar"}}, Case{"a(?!b)", {"ac", "a", "aba"}, {"ab", "xab"}},
        Case{"^(?!.*--)[a-z-]+$", {"a-b-c"}, {"a--b"}}, Case{"(?=a)b", {}, {"ab", "b"}},
        Case{"^(a(?=b))?b", {"b", "ab"}, {"aa"}}, Case{"^(?:$|ab)", {"", "abx"}, {"b"}},
        Case{"^[\\u4e00-\\u9fff]{2}$", {"\u4e2d\u6587"}, {"\u4e2d", "ab"}}));

TEST(Regex, AgreesWithTheStandardLibraryOnPatternsOfBoth) {
  const std::vector<std::string> patterns{"^(a|bc)*$",   "a(b|c){1,2}$",  "^[ab]+c?$", "(ab|a)(bc|c)",
                                          "^(a?b?){2}$", "^((a|b)c|b)+$", "b*a"};
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < texts.size() && texts[i].size() < 5; ++i)
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  for (const std::string& pattern : patterns) {
    const std::regex oracle(pattern, std::regex::ECMAScript);
    for (const std::string& text : texts) {
      ASSERT_EQ(matches(pattern, text), std::regex_search(text, oracle)) << pattern << " in '" << text << "'";
      ASSERT_EQ(matches(pattern, text, RegexMatch::kWhole), std::regex_match(text, oracle))
          << pattern << " is '" << text << "'";
    }
  }
}

TEST(Regex, OnlyWellFormedUtf8Matches) {
  for (const char* bad : {"\x80", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"})
    EXPECT_FALSE(matches("^[^]*$", bad));
}

TEST(Regex, BrokenPatternsSayWhere) {
  struct Broken {
    const char* pattern;
    std::uint64_t offset;
  };
  for (const Broken& broken : {Broken{"(a", 2}, Broken{"a)", 1}, Broken{"[a", 2}, Broken{"*a", 0}, Broken{"a**", 2},
                               Broken{"[b-a]", 4}, Broken{"a{3,1}", 6}, Broken{"a\\", 2}, Broken{"\\q", 2},
                               Broken{"\\u00", 1}, Broken{"x\xff", 1}, Broken{"\\u{110000}", 1}, Broken{"(?<a", 0}}) {
    try {
      matches(broken.pattern, "");
      ADD_FAILURE() << broken.pattern;
    } catch (const MalformedError& e) {
      EXPECT_EQ(e.offset(), broken.offset) << broken.pattern << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find(broken.pattern), std::string::npos);
    }
  }
}

TEST(Regex, WhatIsNotRegularIsRefusedByName) {
  for (const char* pattern : {"(a)\\1", "(?<n>a)\\k<n>", "(?<=a)b", "\\bfoo", "\\p{L}", "(?:(?!x).)*", "(?i:a)"})
    EXPECT_THROW(matches(pattern, ""), UnsupportedError) << pattern;
  EXPECT_THROW(matches(std::string(10'000, '('), ""), UnsupportedError);
}

TEST(Regex, LargeRepetitionsCostNothing) {
  ExpressionPool pool(1000);
  const ExprId e = regex_expression(pool, "^(?:[a-z]{64}){1,1000000}$", RegexMatch::kSearch, Utf8Encoder());
  EXPECT_FALSE(pool.is_nothing(e));
}

}  // namespace
}  // namespace coreai::grammar
