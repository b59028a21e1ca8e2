#include "coreai/base/utf8.h"

#include <gtest/gtest.h>

namespace coreai {
namespace {

TEST(Utf8, EveryScalarValueComesBack) {
  for (std::uint32_t point = 0; point <= kMaxCodePoint; ++point) {
    if (point >= kFirstSurrogate && point <= kLastSurrogate) continue;
    std::string text;
    append_utf8(point, text);
    std::size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), point);
    ASSERT_EQ(at, text.size());
    for (std::size_t cut = 1; cut < text.size(); ++cut) {  // cut short, nothing is there and the place stays
      at = 0;
      ASSERT_FALSE(next_code_point(std::string_view(text).substr(0, cut), at)) << point;
      ASSERT_EQ(at, 0u);
    }
  }
}

TEST(Utf8, IllFormedBytesAreFound) {
  for (const char* bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3(", "\xe4\xb8("})
    EXPECT_EQ(invalid_utf8(std::string("\u00e9") + bad), 2u) << bad;
  EXPECT_FALSE(invalid_utf8("a\u00e9\u4e2d\U0001f600"));
  EXPECT_FALSE(invalid_utf8(""));
}

}  // namespace
}  // namespace coreai
