#include "grammar/expression.h"

#include <gtest/gtest.h>

#include "coreai/base/error.h"
#include "grammar/expression_machine.h"
#include "grammar/naive_regex.h"

namespace coreai::grammar {
namespace {

std::vector<std::string> strings_up_to(std::size_t length) {
  std::vector<std::string> out{""};
  for (std::size_t first = 0; first < out.size(); ++first)
    if (out[first].size() < length)
      for (const char byte : {'a', 'b', 'c'}) out.push_back(out[first] + byte);
  return out;
}

bool matches(ExpressionPool& pool, ExprId e, std::string_view text) {
  for (const char byte : text) e = pool.derive(e, static_cast<std::uint8_t>(byte));
  return pool.nullable(e);
}

TEST(Expression, DerivativesAgreeWithTheDefinitionOnRandomExpressions) {
  std::mt19937 random(7);
  const auto texts = strings_up_to(5);
  for (int round = 0; round < 300; ++round) {
    const NaiveExpr naive = random_expr(random, 3);
    ExpressionPool pool;
    const ExprId e = naive.build(pool);
    for (const std::string& text : texts)
      ASSERT_EQ(matches(pool, e, text), naive.matches(text)) << round << " '" << text << "'";
  }
}

TEST(Expression, EmptinessIsExact) {
  std::mt19937 random(11);
  const auto texts = strings_up_to(5);
  int empty = 0;
  for (int round = 0; round < 300; ++round) {
    const NaiveExpr naive = random_expr(random, 3);
    ExpressionPool pool;
    const ExprId e = naive.build(pool);
    bool member = false;
    for (const std::string& text : texts) member = member || naive.matches(text);
    if (member) {
      EXPECT_FALSE(pool.is_nothing(e)) << round;
    }
    if (pool.is_nothing(e)) {
      ++empty;
      EXPECT_FALSE(member) << round;
    }
  }
  EXPECT_GT(empty, 3);  // the question was put
  ExpressionPool pool;
  const ExprId a = pool.bytes(ByteSet::one('a')), ab = pool.bytes(ByteSet::range('a', 'b'));
  EXPECT_TRUE(pool.is_nothing(
      pool.all_of({pool.repeat(pool.concat(a, a), 1), pool.concat(a, pool.repeat(pool.concat(a, a), 0))})));
  EXPECT_FALSE(pool.is_nothing(pool.all_of({pool.repeat(ab, 500, 600), pool.negate(pool.repeat(a, 0))})));
}

TEST(Expression, EqualExpressionsHaveEqualNumbers) {
  ExpressionPool pool;
  const ExprId a = pool.bytes(ByteSet::one('a')), b = pool.bytes(ByteSet::one('b')), c = pool.bytes(ByteSet::one('c'));
  EXPECT_EQ(pool.any_of({a, b}), pool.bytes(ByteSet::range('a', 'b')));
  EXPECT_EQ(pool.any_of({pool.any_of({a, c}), b}), pool.any_of({b, pool.any_of({c, a})}));
  EXPECT_EQ(pool.concat(pool.concat(a, b), c), pool.concat(a, pool.concat(b, c)));
  EXPECT_EQ(pool.any_of({pool.literal("abc"), pool.literal("abb")}),
            pool.concat({a, b, pool.bytes(ByteSet::range('b', 'c'))}));
  EXPECT_EQ(pool.concat(a, pool.repeat(a, 2, kUnbounded)), pool.repeat(a, 3));
  EXPECT_EQ(pool.concat(pool.repeat(a, 2, 5), pool.repeat(a, 1, 7)), pool.repeat(a, 3, 12));
  EXPECT_EQ(pool.negate(pool.negate(pool.literal("ab"))), pool.literal("ab"));
  EXPECT_EQ(pool.concat(kAnything, kAnything), kAnything);
  EXPECT_EQ(pool.negate(kNothing), kAnything);
  EXPECT_EQ(pool.all_of({a, pool.negate(a)}), kNothing);
  EXPECT_EQ(pool.any_literal({"ab", "a", "", "cb", "ab"}),
            pool.any_of({kEmptyString, pool.literal("a"), pool.literal("ab"), pool.literal("cb")}));
}

TEST(Expression, CountersAreOneNodeAndClampToAKey) {
  ExpressionPool pool;
  const ExprId a = pool.bytes(ByteSet::one('a'));
  const std::size_t before = pool.size();
  const ExprId many = pool.repeat(a, 0, 1'000'000);
  EXPECT_LE(pool.size() - before, 1u);
  ExprId e = many;
  for (int i = 0; i < 1000; ++i) e = pool.derive(e, 'a');
  EXPECT_EQ(e, pool.repeat(a, 0, 999'000));
  EXPECT_EQ(pool.clamp(e, 128), pool.clamp(many, 128));
  EXPECT_NE(pool.clamp(pool.repeat(a, 0, 100), 128), pool.clamp(many, 128));
}

TEST(Expression, ClampedExpressionsTakeTheSameShortTexts) {
  std::mt19937 random(5);
  const auto texts = strings_up_to(4);
  for (int round = 0; round < 200; ++round) {
    NaiveExpr naive{.kind = NaiveExpr::Kind::kRepeat,
                    .children = {random_expr(random, 2)},
                    .min = static_cast<std::uint32_t>(random() % 9),
                    .max = 9 + static_cast<std::uint32_t>(random() % 9)};
    ExpressionPool pool;
    const ExprId e = naive.build(pool), clamped = pool.clamp(e, 4);
    for (const std::string& text : texts) {
      ExprId x = e, y = clamped;
      for (const char byte : text) {
        x = pool.derive(x, static_cast<std::uint8_t>(byte));
        y = pool.derive(y, static_cast<std::uint8_t>(byte));
      }
      ASSERT_EQ(pool.is_nothing(x), pool.is_nothing(y)) << round << text;
      ASSERT_EQ(pool.nullable(x), pool.nullable(y)) << round << text;
    }
  }
}

TEST(Expression, ClassesSeparateWhatDerivativesSeparate) {
  ExpressionPool pool;
  const ExprId e =
      pool.any_of({pool.literal("ax"), pool.concat(pool.bytes(ByteSet::range('a', 'f')), pool.literal("y"))});
  const ByteClasses split = pool.classes(e);
  EXPECT_EQ(split.representatives.size(), 3u);
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(pool.derive(e, static_cast<std::uint8_t>(byte)),
              pool.derive(e, split.representatives[split.class_of[byte]]));
}

// A part that another machine describes says the same as the part itself, in every place.
TEST(Expression, ForeignMachinesComposeAsTheirTextsDo) {
  std::mt19937 random(29);
  const auto texts = strings_up_to(5);
  int composed = 0;
  for (int round = 0; round < 200; ++round) {
    const NaiveExpr one = random_expr(random, 2), two = random_expr(random, 2);
    ExpressionPool pool;
    const auto foreign = [&](const NaiveExpr& of) {
      auto inner = std::make_unique<ExpressionPool>();
      const ExprId e = of.build(*inner);
      return pool.foreign(std::make_shared<ExpressionMachine>(std::move(inner), e));
    };
    ExprId a = kNothing, b = kNothing;
    try {
      a = foreign(one);
      b = foreign(two);
    } catch (const InvalidArgumentError&) {  // without texts there is no machine
      continue;
    }
    ++composed;
    const auto compose = [&](ExprId x, ExprId y) {
      switch (round % 4) {
        case 0:
          return pool.concat({pool.literal("a"), x, y});
        case 1:
          return pool.any_of({pool.concat(x, pool.literal("b")), y});
        case 2:
          return pool.repeat(pool.concat(x, y), 1, 3);
        default:
          return pool.all_of({pool.concat(x, kAnything), pool.negate(y)});
      }
    };
    ExprId got = compose(a, b), wanted = compose(one.build(pool), two.build(pool));
    const ExprId clamped = pool.clamp(got, 5);
    for (const std::string& text : texts) {
      ASSERT_EQ(matches(pool, got, text), matches(pool, wanted, text)) << round << " '" << text << "'";
      ASSERT_EQ(matches(pool, clamped, text), matches(pool, wanted, text)) << round << " '" << text << "'";
    }
    ASSERT_EQ(pool.is_nothing(got), pool.is_nothing(wanted)) << round;
    const ByteClasses split = pool.classes(got);
    for (int byte = 0; byte < 256; ++byte)
      ASSERT_EQ(pool.derive(got, static_cast<std::uint8_t>(byte)),
                pool.derive(got, split.representatives[split.class_of[byte]]));
  }
  EXPECT_GT(composed, 100);
}

TEST(Expression, BudgetsAreTypedErrors) {
  ExpressionPool small(50);
  EXPECT_THROW(small.literal(std::string(200, 'a')), UnsupportedError);
  ExpressionPool impatient(1'000'000, 20);
  const ExprId ab = impatient.bytes(ByteSet::range('a', 'b'));
  const ExprId no_bb = impatient.negate(impatient.concat({kAnything, impatient.literal("bb"), kAnything}));
  const ExprId long_one = impatient.all_of({impatient.repeat(ab, 100, 100), no_bb});
  EXPECT_THROW(impatient.is_nothing(long_one), UnsupportedError);
  EXPECT_THROW(small.repeat(kAnything, 2, 1), InvalidArgumentError);
}

TEST(Expression, LongLiteralsWithACommonBeginningDoNotRecurseWithoutBound) {
  ExpressionPool pool;
  const std::string text(100'000, 'a');
  const ExprId e = pool.any_of({pool.literal(text + "b"), pool.literal(text + "c")});
  ExprId at = e;
  for (const char byte : text) at = pool.derive(at, static_cast<std::uint8_t>(byte));
  EXPECT_EQ(at, pool.bytes(ByteSet::range('b', 'c')));
  const std::string b = text + "b", c = text + "c";
  EXPECT_FALSE(pool.is_nothing(pool.any_literal({b, c})));
}

}  // namespace
}  // namespace coreai::grammar
