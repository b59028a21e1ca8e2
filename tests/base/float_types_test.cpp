#include "coreai/base/float_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace coreai {
namespace {

TEST(FloatTypes, HalfRoundTripsEveryCode) {
  for (unsigned code = 0; code < 65536; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = f16_to_f32(bits);
    if (std::isnan(value)) continue;
    EXPECT_EQ(f32_to_f16(value), bits);
    EXPECT_EQ(f64_to_f16(static_cast<double>(value)), bits);
  }
}

TEST(FloatTypes, HalfRoundsToNearestEven) {
  for (unsigned code = 0; code < 0x7c00; ++code) {
    const double low = f16_to_f32(static_cast<std::uint16_t>(code));
    const double high = code == 0x7bff ? 65536.0 : f16_to_f32(static_cast<std::uint16_t>(code + 1));
    const double middle = (low + high) / 2;
    const unsigned even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(f32_to_f16(static_cast<float>(middle)), even) << middle;
    EXPECT_EQ(f64_to_f16(std::nextafter(middle, 0.0)), code);
    EXPECT_EQ(f64_to_f16(std::nextafter(middle, 1e9)), code + 1);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
}

TEST(FloatTypes, SmallFormatsRoundTrip) {
  for (unsigned code = 0; code < 256; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    if (const float v = f8e4m3fn_to_f32(bits); !std::isnan(v)) {
      EXPECT_EQ(f32_to_f8e4m3fn(v), bits);
    }
    if (const float v = f8e5m2_to_f32(bits); !std::isnan(v)) {
      EXPECT_EQ(f32_to_f8e5m2(v), bits);
    }
    if (code < 255) {
      EXPECT_EQ(f32_to_f8e8m0fnu(f8e8m0fnu_to_f32(bits)), bits);
    }
    if (code < 16) {
      EXPECT_EQ(f32_to_f4e2m1fn(f4e2m1fn_to_f32(bits)), bits);
    }
  }
  EXPECT_EQ(f8e4m3fn_to_f32(f32_to_f8e4m3fn(464.0f)), 448.0f);
  EXPECT_TRUE(std::isnan(f8e4m3fn_to_f32(f32_to_f8e4m3fn(465.0f))));
  EXPECT_TRUE(std::isinf(f8e5m2_to_f32(f32_to_f8e5m2(70000.0f))));
}

TEST(FloatTypes, BfloatKeepsNaN) {
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(1.00390625f)), 1.0f);  // a tie goes to even
  EXPECT_EQ(f64_to_bf16(3.4e38), f32_to_bf16(3.4e38f));
}

}  // namespace
}  // namespace coreai
