// Sets of JSON numbers by their value, as expressions over the ways to write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/expression.h"

namespace coreai::grammar {

// digits * 10^exponent; no zeros at either end of `digits`, which are empty for zero.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  // Of a number as JSON writes it; nothing where it has more than 1,000 digits written out.
  static std::optional<Decimal> parse(std::string_view text);
  bool is_zero() const { return digits.empty(); }
  std::string whole() const;     // digits before the point, "0" where there are none
  std::string fraction() const;  // after it, without zeros at the end
  std::string text() const;      // without an exponent
  bool operator==(const Decimal&) const = default;
};

// A set of numbers. Written without an exponent every member is in `plain`, and nothing else is: sets may be joined,
// intersected and complemented there. With an exponent a number has endlessly many forms whose value no finite
// automaton finds; allowed are those that stay in the set for a reason that needs no arithmetic.
struct NumberText {
  ExprId plain = kNothing;
  bool grows = false;         // 10 x is a member with x: any exponent from zero up may follow
  bool shrinks = false;       // x / 10 is: any exponent below zero may follow
  ExprId further = kNothing;  // other forms of members
};

// Without an exponent: -?(0|[1-9][0-9]*)(.[0-9]+)?
ExprId plain_number(ExpressionPool& pool);
NumberText any_number(ExpressionPool& pool);
NumberText number_equal(ExpressionPool& pool, const Decimal& value);
NumberText number_at_least(ExpressionPool& pool, const Decimal& bound, bool exclusive);
NumberText number_at_most(ExpressionPool& pool, const Decimal& bound, bool exclusive);
// Throws UnsupportedError for a divisor with too many states.
NumberText multiple_of(ExpressionPool& pool, const Decimal& divisor);
// All texts of the set.
ExprId number_expression(ExpressionPool& pool, const NumberText& number);

}  // namespace coreai::grammar
