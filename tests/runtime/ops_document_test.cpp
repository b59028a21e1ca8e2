#include "runtime/ops_document.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "coreai/base/mapped_file.h"

namespace coreai::test {
namespace {

// With COREAI_UPDATE_DOCS set the document is written first: scripts/update_docs.
TEST(OpsDocument, IsUpToDate) {
  const std::string path = std::string(COREAI_SOURCE_DIR) + "/docs/ops.md";
  const std::string fresh = ops_document();
  if (std::getenv("COREAI_UPDATE_DOCS") != nullptr) write_file_atomically(path, fresh);
  EXPECT_TRUE(read_text_file(path) == fresh) << "docs/ops.md is stale: run scripts/update_docs";
}

TEST(OpsDocument, NoCellIsEmpty) {
  std::istringstream lines(ops_document());
  int operations = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.find("|  |"), std::string::npos) << line;
    operations += line.starts_with("| `") && std::ranges::count(line, '|') == 6 ? 1 : 0;
  }
  EXPECT_EQ(operations, 161);
}

}  // namespace
}  // namespace coreai::test
