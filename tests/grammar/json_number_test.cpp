#include "grammar/json_number.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <random>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

bool belongs(ExpressionPool& pool, ExprId language, std::string_view text) {
  for (const char c : text) language = pool.derive(language, static_cast<std::uint8_t>(c));
  return pool.nullable(language);
}

// A small number without an exponent, and its value in millionths.
struct Written {
  std::string text;
  std::int64_t millionths;
};

Written random_number(std::mt19937& random) {
  const std::int64_t whole = static_cast<std::int64_t>(random() % 4 == 0 ? random() % 20'000 : random() % 120);
  const std::size_t places = random() % 4;
  std::string fraction;
  std::int64_t value = whole * 1'000'000, unit = 100'000;
  for (std::size_t i = 0; i < places; ++i, unit /= 10) {
    const int digit = random() % 2 == 0 ? 0 : static_cast<int>(random() % 10);
    fraction += static_cast<char>('0' + digit);
    value += digit * unit;
  }
  const bool negative = random() % 2 == 0;
  return {fmt::format("{}{}{}{}", negative ? "-" : "", whole, places > 0 ? "." : "", fraction),
          negative ? -value : value};
}

TEST(JsonNumber, BoundsAndMultiplesAreThoseOfArithmetic) {
  std::mt19937 random(5);
  for (int round = 0; round < 150; ++round) {
    ExpressionPool pool;
    const Written bound = random_number(random);
    const auto decimal = Decimal::parse(bound.text);
    ASSERT_TRUE(decimal);
    const ExprId least = number_expression(pool, number_at_least(pool, *decimal, false));
    const ExprId above = number_expression(pool, number_at_least(pool, *decimal, true));
    const ExprId most = number_expression(pool, number_at_most(pool, *decimal, false));
    const ExprId below = number_expression(pool, number_at_most(pool, *decimal, true));
    const ExprId equal = number_expression(pool, number_equal(pool, *decimal));
    std::optional<ExprId> multiple;
    if (bound.millionths > 0 && bound.millionths < 20'000'000 && bound.millionths % 10'000 == 0)
      multiple = number_expression(pool, multiple_of(pool, *decimal));
    for (int i = 0; i < 60; ++i) {
      Written number = random_number(random);
      if (i % 10 == 0) number = bound;
      SCOPED_TRACE(number.text + " against " + bound.text);
      EXPECT_EQ(belongs(pool, least, number.text), number.millionths >= bound.millionths);
      EXPECT_EQ(belongs(pool, above, number.text), number.millionths > bound.millionths);
      EXPECT_EQ(belongs(pool, most, number.text), number.millionths <= bound.millionths);
      EXPECT_EQ(belongs(pool, below, number.text), number.millionths < bound.millionths);
      EXPECT_EQ(belongs(pool, equal, number.text), number.millionths == bound.millionths);
      if (multiple) {
        EXPECT_EQ(belongs(pool, *multiple, number.text), number.millionths % bound.millionths == 0);
      }
    }
  }
}

// Every member of a number's set that is written with an exponent has the value that the set asks for.
TEST(JsonNumber, ExponentsNeverLeaveTheSet) {
  std::mt19937 random(6);
  int accepted = 0;
  for (int round = 0; round < 120; ++round) {
    ExpressionPool pool;
    const Written bound = random_number(random);
    const Decimal decimal = *Decimal::parse(bound.text);
    const double limit = static_cast<double>(bound.millionths) / 1e6;
    const ExprId least = number_expression(pool, number_at_least(pool, decimal, false));
    const ExprId below = number_expression(pool, number_at_most(pool, decimal, true));
    const ExprId whole = number_expression(pool, multiple_of(pool, *Decimal::parse("1")));
    for (int i = 0; i < 60; ++i) {
      const std::string text = fmt::format("{}{}{}", random_number(random).text, random() % 2 == 0 ? "e" : "E",
                                           static_cast<int>(random() % 9) - 4);
      const double value = std::stod(text);
      SCOPED_TRACE(text + " against " + bound.text);
      if (belongs(pool, least, text)) {
        EXPECT_GE(value, limit * (1 - 1e-12));
        ++accepted;
      }
      if (belongs(pool, below, text)) {
        EXPECT_LT(value, limit);
        ++accepted;
      }
      if (belongs(pool, whole, text)) {
        EXPECT_EQ(value, std::floor(value));
        ++accepted;
      }
    }
  }
  EXPECT_GT(accepted, 1000);
}

TEST(JsonNumber, FormsWithAnExponent) {
  ExpressionPool pool;
  const auto in = [&](const NumberText& set, std::string_view text) {
    return belongs(pool, number_expression(pool, set), text);
  };
  const NumberText small = number_equal(pool, *Decimal::parse("0.00015"));
  for (const char* text : {"0.00015", "0.000150", "1.5e-4", "1.5E-04", "1.50e-4", "0.00015e0"})
    EXPECT_TRUE(in(small, text)) << text;
  for (const char* text : {"0.0015", "1.5e-5", "1.5e4", "-1.5e-4", "15e-5x"}) EXPECT_FALSE(in(small, text)) << text;
  const NumberText whole = multiple_of(pool, *Decimal::parse("1"));
  for (const char* text : {"1", "-0", "1.0", "1e3", "10.00E+2"}) EXPECT_TRUE(in(whole, text)) << text;
  for (const char* text : {"1.5", "1e-1", "01", "1.", ".5", "+1"}) EXPECT_FALSE(in(whole, text)) << text;
  const NumberText share = number_at_most(pool, *Decimal::parse("1"), false);
  EXPECT_TRUE(in(share, "0.9e-5"));
  EXPECT_FALSE(in(share, "3e-1"));  // 0.3, but only arithmetic can tell
  EXPECT_TRUE(in(any_number(pool), "1e400"));
}

TEST(JsonNumber, DecimalsAreExact) {
  EXPECT_EQ(*Decimal::parse("12e-1"), *Decimal::parse("1.20"));
  EXPECT_EQ(*Decimal::parse("-0.0"), *Decimal::parse("0"));
  EXPECT_EQ(Decimal::parse("100")->text(), "100");
  EXPECT_EQ(Decimal::parse("1e-3")->text(), "0.001");
  EXPECT_FALSE(Decimal::parse("1e999999999999999999999"));
  EXPECT_TRUE(Decimal::parse("0e999999999999999999999"));
  ExpressionPool pool;
  EXPECT_THROW(multiple_of(pool, *Decimal::parse("123456789")), UnsupportedError);
}

}  // namespace
}  // namespace coreai::grammar
