#include "coreai/compiler/expr.h"

#include <gtest/gtest.h>

namespace coreai::compiler {
namespace {

TEST(Expr, LinearFormsAreNormal) {
  ExprPool x;
  const Expr q = x.symbol("q"), s = x.symbol("s");
  EXPECT_EQ(x.sub(s, x.sub(s, q)), q);
  EXPECT_EQ(x.add(q, s), x.add(s, q));
  EXPECT_EQ(x.sub(q, q), x.constant(0));
  EXPECT_EQ(x.mul(x.constant(2), x.add(q, x.constant(3))), x.add(x.add(q, q), x.constant(6)));
  EXPECT_EQ(x.mul(q, s), x.mul(s, q));
  EXPECT_EQ(x.text(x.sub(s, q)), "-q + s");
}

TEST(Expr, KnowsSigns) {
  ExprPool x;
  const Expr q = x.symbol("q"), s = x.symbol("s");
  EXPECT_TRUE(x.known_nonnegative(x.sub(q, x.constant(1))));
  EXPECT_FALSE(x.known_nonnegative(x.sub(q, x.constant(2))));
  EXPECT_FALSE(x.known_nonnegative(x.sub(s, q)));
  EXPECT_EQ(x.max(x.add(q, s), q), x.add(q, s));
  EXPECT_EQ(x.min(x.constant(2147483647), x.constant(7)), x.constant(7));
}

TEST(Expr, DividesExactly) {
  ExprPool x;
  const Expr q = x.symbol("q");
  EXPECT_EQ(x.exact_quotient(x.mul(q, x.constant(64)), x.constant(16)), x.mul(q, x.constant(4)));
  EXPECT_EQ(x.exact_quotient(x.mul(q, x.constant(64)), q), x.constant(64));
  EXPECT_FALSE(x.exact_quotient(x.add(q, x.constant(1)), x.constant(2)));
  EXPECT_EQ(x.floor_div(x.constant(-3), x.constant(2)), x.constant(-2));
}

TEST(Expr, EvaluatesEveryKind) {
  ExprPool x;
  const Expr q = x.symbol("q"), s = x.symbol("s");
  const Expr half = x.floor_div(s, x.constant(2)), rest = x.mod(s, q), low = x.min(q, s), high = x.max(q, s);
  const Expr area = x.mul(q, s), zero = x.floor_div(s, x.sub(q, q));
  std::vector<std::int64_t> values(x.size());
  const std::int64_t extents[] = {4, 11};
  x.evaluate(extents, values);
  const auto at = [&](Expr e) { return values[static_cast<std::size_t>(e)]; };
  EXPECT_EQ(at(half), 5);
  EXPECT_EQ(at(rest), 3);
  EXPECT_EQ(at(low), 4);
  EXPECT_EQ(at(high), 11);
  EXPECT_EQ(at(area), 44);
  EXPECT_EQ(at(zero), 0);
}

}  // namespace
}  // namespace coreai::compiler
