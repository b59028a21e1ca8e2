// docs/bundles.md: the table of findings is that of the code, and every test that it names is there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>

#include "coreai/base/mapped_file.h"
#include "coreai/bundle/audit.h"

namespace coreai::test {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = COREAI_SOURCE_DIR;

std::string findings_table() {
  std::string table = "| finding | severity | meaning | fix |\n| --- | --- | --- | --- |\n";
  for (const AuditRuleInfo& rule : audit_rules())
    table += fmt::format("| `{}` | {} | {} | {} |\n", rule.id, severity_name(rule.severity), rule.meaning, rule.fix);
  return table;
}

// The document with the text between the table's markers renewed; empty when a marker is missing.
std::string renewed(const std::string& document) {
  const std::string open = "<!-- table: findings -->\n", close = "<!-- end: findings -->";
  const std::size_t begin = document.find(open), end = document.find(close);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return document.substr(0, begin + open.size()) + findings_table() + document.substr(end);
}

// With COREAI_UPDATE_DOCS set the table is written first: scripts/update_docs.
TEST(BundlesDocument, ItsFindingsAreThoseOfTheCode) {
  const fs::path path = kSource / "docs" / "bundles.md";
  const std::string fresh = renewed(read_text_file(path));
  ASSERT_FALSE(fresh.empty()) << "the markers of the table 'findings' are missing in docs/bundles.md";
  if (std::getenv("COREAI_UPDATE_DOCS") != nullptr) write_file_atomically(path, fresh);
  EXPECT_TRUE(read_text_file(path) == fresh) << "docs/bundles.md is stale: run scripts/update_docs";
}

// "Suite.Name" of every test of the bundles and of their tool.
std::set<std::string> known_tests() {
  std::set<std::string> names;
  static const std::regex kTest(R"(TEST(?:_F|_P)?\((\w+), (\w+)\))");
  for (const char* folder : {"tests/bundle", "tests/tools"}) {
    for (const auto& entry : fs::directory_iterator(kSource / folder)) {
      if (entry.path().extension() != ".cpp") continue;
      const std::string text = read_text_file(entry.path());
      for (std::sregex_iterator at(text.begin(), text.end(), kTest), end; at != end; ++at) {
        names.insert((*at)[1].str() + "." + (*at)[2].str());
        names.insert((*at)[1].str() + ".*");
      }
    }
  }
  return names;
}

// Cases of the tables of broken bundles.
int broken_bundles() {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  int count = 0;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const std::string name = all.GetTestSuite(i)->name();
    if (name.ends_with("/BrokenBundle") || name.ends_with("/BrokenKind"))
      count += all.GetTestSuite(i)->total_test_count();
  }
  return count;
}

TEST(BundlesDocument, BrokenBundlesAreAsManyAsItSays) {
  static const std::regex kMany(R"(more than (\d+) (?:ways|broken ones))");
  for (const char* file : {"README.md", "docs/bundles.md"}) {
    const std::string text = read_text_file(kSource / file);
    std::smatch said;
    ASSERT_TRUE(std::regex_search(text, said, kMany)) << file;
    EXPECT_GT(broken_bundles(), std::stoi(said[1])) << file;
  }
}

TEST(BundlesDocument, EveryTestThatItNamesIsThere) {
  const std::set<std::string> known = known_tests();
  const std::string text = read_text_file(kSource / "docs" / "bundles.md");
  const std::size_t section = text.find("\n## What is tested\n");
  ASSERT_NE(section, std::string::npos);
  static const std::regex kName(R"(`([A-Z]\w+\.(?:\w+|\*))`)");
  int named = 0;
  for (std::sregex_iterator at(text.begin() + static_cast<std::ptrdiff_t>(section), text.end(), kName), end; at != end;
       ++at, ++named)
    EXPECT_TRUE(known.contains((*at)[1].str())) << (*at)[1].str();
  EXPECT_GE(named, 27);  // nine kinds, three columns
}

}  // namespace
}  // namespace coreai::test
