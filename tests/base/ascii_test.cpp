#include "coreai/base/ascii.h"

#include <gtest/gtest.h>

#include "coreai/base/error.h"

namespace coreai {
namespace {

TEST(Ascii, OnlyAToZHaveACase) {
  EXPECT_EQ(lower_case("KeyCache_1[Z`]"), "keycache_1[z`]");
  EXPECT_EQ(lower_case("Ä"), "Ä");
  EXPECT_TRUE(contains_ignoring_case("outLOGITS", "logit"));
  EXPECT_TRUE(contains_ignoring_case("x", ""));
  EXPECT_FALSE(contains_ignoring_case("logi", "logit"));
  EXPECT_FALSE(contains_ignoring_case("log[t", "log{t"));
}

TEST(Errors, AMalformedErrorTellsItsOffsetOnceWhereverItPasses) {
  const MalformedError first("bad", "", 7, "Stop");
  const MalformedError second(first, "file");
  EXPECT_STREQ(second.what(), "file: bad (at byte 7). Stop");
  EXPECT_EQ(second.offset(), 7u);
}

}  // namespace
}  // namespace coreai
