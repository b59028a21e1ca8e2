#include <gtest/gtest.h>

#include "grammar/uri.h"

namespace coreai::grammar {
namespace {

// RFC 3986, 5.4: examples against http://a/b/c/d;p?q, fragments left out.
TEST(Uri, ExamplesOfTheStandard) {
  const std::pair<const char*, const char*> kExamples[] = {
      {"g:h", "g:h"},
      {"g", "http://a/b/c/g"},
      {"./g", "http://a/b/c/g"},
      {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},
      {"//g", "http://g"},
      {"?y", "http://a/b/c/d;p?y"},
      {"g?y", "http://a/b/c/g?y"},
      {"#s", "http://a/b/c/d;p?q"},
      {";x", "http://a/b/c/;x"},
      {"", "http://a/b/c/d;p?q"},
      {".", "http://a/b/c/"},
      {"./", "http://a/b/c/"},
      {"..", "http://a/b/"},
      {"../g", "http://a/b/g"},
      {"../..", "http://a/"},
      {"../../g", "http://a/g"},
      {"../../../g", "http://a/g"},
      {"/./g", "http://a/g"},
      {"/../g", "http://a/g"},
      {"g.", "http://a/b/c/g."},
      {"..g", "http://a/b/c/..g"},
      {"./../g", "http://a/b/g"},
      {"./g/.", "http://a/b/c/g/"},
      {"g/../h", "http://a/b/c/h"},
      {"g?y/../x", "http://a/b/c/g?y/../x"},
  };
  for (const auto& [reference, wanted] : kExamples)
    EXPECT_EQ(resolve_uri("http://a/b/c/d;p?q", reference), wanted) << reference;
}

TEST(Uri, BasesOfOtherKinds) {
  EXPECT_EQ(resolve_uri("", "item.json"), "item.json");
  EXPECT_EQ(resolve_uri("", "http://a/../b"), "http://a/b");
  EXPECT_EQ(resolve_uri("schemas/root.json", "../item.json"), "item.json");
  EXPECT_EQ(resolve_uri("schemas/root.json", "item.json"), "schemas/item.json");
  EXPECT_EQ(resolve_uri("http://a", "b"), "http://a/b");
  EXPECT_EQ(resolve_uri("http://a?x/y", "b"), "http://a/b");
  EXPECT_EQ(resolve_uri("urn:uuid:1-2", "#/$defs/a"), "urn:uuid:1-2");
  EXPECT_EQ(resolve_uri("http://a/b", "urn:x:y#z"), "urn:x:y");
  EXPECT_EQ(resolve_uri("", ".."), "");
}

TEST(Uri, Escapes) {
  EXPECT_EQ(percent_decoded("a%20b%7e%"), "a b~%");
  EXPECT_EQ(percent_decoded("%2"), "%2");
  EXPECT_EQ(percent_decoded("%zz%41"), "%zzA");
}

}  // namespace
}  // namespace coreai::grammar
