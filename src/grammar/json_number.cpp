#include "grammar/json_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

constexpr std::int64_t kMaxDigits = 1000;
constexpr std::uint64_t kMaxDivisor = 20'000;  // states of its remainders

ExprId digit(ExpressionPool& pool, int first = 0, int last = 9) {
  if (first > last) return kNothing;
  return pool.bytes(ByteSet::range(static_cast<std::uint8_t>('0' + first), static_cast<std::uint8_t>('0' + last)));
}
ExprId digits(ExpressionPool& pool, std::uint32_t min, std::uint32_t max = kUnbounded) {
  return pool.repeat(digit(pool), min, max);
}
ExprId zeros(ExpressionPool& pool) {
  return pool.repeat(digit(pool, 0, 0), 0);
}
ExprId point(ExpressionPool& pool) {
  return pool.literal(".");
}
// "", ".0", ".00"...
ExprId zero_fraction(ExpressionPool& pool) {
  return pool.optional(pool.concat({point(pool), digit(pool, 0, 0), zeros(pool)}));
}
ExprId any_fraction(ExpressionPool& pool) {
  return pool.optional(pool.concat(point(pool), digits(pool, 1)));
}
// Of a fraction that is not zero.
ExprId some_fraction(ExpressionPool& pool) {
  return pool.concat({point(pool), zeros(pool), digit(pool, 1, 9), digits(pool, 0)});
}

enum class Side { kAbove, kBelow };

// Fractions above or below that of the bound, equal ones included where `equal` says so.
ExprId fractions(ExpressionPool& pool, const std::string& bound, Side side, bool equal) {
  if (bound.empty()) {
    if (side == Side::kBelow) return equal ? zero_fraction(pool) : kNothing;
    return equal ? any_fraction(pool) : some_fraction(pool);
  }
  // From the last digit to the first: what may follow once all digits before were equal.
  ExprId rest;
  if (side == Side::kAbove)
    rest = equal ? digits(pool, 0) : pool.concat({zeros(pool), digit(pool, 1, 9), digits(pool, 0)});
  else
    rest = equal ? zeros(pool) : kNothing;
  for (std::size_t i = bound.size(); i-- > 0;) {
    const int here = bound[i] - '0';
    std::vector<ExprId> choices{pool.concat(digit(pool, here, here), rest)};
    if (side == Side::kAbove) {
      choices.push_back(pool.concat(digit(pool, here + 1, 9), digits(pool, 0)));
    } else {
      choices.push_back(pool.concat(digit(pool, 0, here - 1), digits(pool, 0)));
      if (i > 0) choices.push_back(kEmptyString);  // shorter is smaller; a point wants a digit after it
    }
    rest = pool.any_of(choices);
  }
  const ExprId written = pool.concat(point(pool), rest);
  return side == Side::kBelow ? pool.optional(written) : written;
}

// Numbers without a sign above or below the size of the bound.
ExprId sizes(ExpressionPool& pool, const Decimal& bound, Side side, bool equal) {
  const std::string whole = bound.whole();
  ExprId rest = fractions(pool, bound.fraction(), side, equal);
  const auto length = static_cast<std::uint32_t>(whole.size());
  for (std::uint32_t i = length; i-- > 0;) {
    const int here = whole[i] - '0';
    const int least = i == 0 && length > 1 ? 1 : 0;
    const ExprId others = side == Side::kAbove ? digit(pool, here + 1, 9) : digit(pool, least, here - 1);
    const ExprId free = pool.concat(digits(pool, length - i - 1, length - i - 1), any_fraction(pool));
    rest = pool.any_of({pool.concat(digit(pool, here, here), rest), pool.concat(others, free)});
  }
  const ExprId tail = any_fraction(pool), lead = digit(pool, 1, 9);
  if (side == Side::kAbove) return pool.any_of({rest, pool.concat({lead, digits(pool, length), tail})});
  if (length == 1) return rest;
  const ExprId shorter = pool.any_of({digit(pool), pool.concat(lead, digits(pool, 0, length - 2))});
  return pool.any_of({rest, pool.concat(shorter, tail)});
}

ExprId with_minus(ExpressionPool& pool, ExprId size) {
  return pool.concat(pool.literal("-"), size);
}
// Zero in every form.
ExprId signed_zero(ExpressionPool& pool) {
  return pool.concat({pool.optional(pool.literal("-")), pool.literal("0"), zero_fraction(pool)});
}
ExprId whole_number(ExpressionPool& pool) {
  return pool.any_of({pool.literal("0"), pool.concat(digit(pool, 1, 9), digits(pool, 0))});
}
ExprId unsigned_number(ExpressionPool& pool) {
  return pool.concat(whole_number(pool), any_fraction(pool));
}

// Of one side of the bound on the line of numbers.
ExprId beyond(ExpressionPool& pool, const Decimal& bound, Side side, bool equal) {
  const bool positive_wanted = side == Side::kAbove;  // all numbers of this sign but for the size
  const auto sign = [&](bool positive, ExprId size) { return positive ? size : with_minus(pool, size); };
  const Decimal none{};
  const ExprId not_zero = sizes(pool, none, Side::kAbove, false);
  if (bound.is_zero()) {
    const ExprId far = sign(positive_wanted, not_zero);
    return equal ? pool.any_of({far, signed_zero(pool)}) : far;
  }
  const bool same_sign = bound.negative != positive_wanted;
  if (same_sign) return sign(positive_wanted, sizes(pool, bound, Side::kAbove, equal));
  // The bound has the other sign: all of the wanted sign, zero, and the smaller ones of the bound's sign.
  return pool.any_of(
      {sign(positive_wanted, unsigned_number(pool)), sign(!positive_wanted, sizes(pool, bound, Side::kBelow, equal))});
}

// Digits of one number in its shortest form with an exponent: d.ddd e n.
ExprId scientific(ExpressionPool& pool, const Decimal& value) {
  const std::int64_t exponent = value.exponent + static_cast<std::int64_t>(value.digits.size()) - 1;
  const std::string tail = value.digits.substr(1);
  const ExprId fraction =
      tail.empty() ? zero_fraction(pool) : pool.concat({point(pool), pool.literal(tail), zeros(pool)});
  const ExprId sign = exponent < 0 ? pool.literal("-") : pool.optional(pool.literal("+"));
  return pool.concat({pool.literal(value.negative ? "-" : ""), pool.literal(value.digits.substr(0, 1)), fraction,
                      pool.bytes(ByteSet::one('e') | ByteSet::one('E')), sign, zeros(pool),
                      pool.literal(fmt::format("{}", exponent < 0 ? -exponent : exponent))});
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal out;
  std::size_t at = 0;
  if (at < text.size() && text[at] == '-') out.negative = true, ++at;
  bool after_point = false;
  for (; at < text.size() && (text[at] == '.' || (text[at] >= '0' && text[at] <= '9')); ++at) {
    if (text[at] == '.') {
      after_point = true;
    } else {
      out.digits += text[at];
      if (after_point) --out.exponent;
    }
  }
  if (at < text.size()) {  // e, E
    std::int64_t exponent = 0;
    std::string_view written = text.substr(at + 1);
    if (written.starts_with('+')) written.remove_prefix(1);
    const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), exponent);
    const bool zero = out.digits.find_first_not_of('0') == std::string::npos;
    if (!zero && (error != std::errc() || exponent > kMaxDigits || exponent < -kMaxDigits)) return std::nullopt;
    out.exponent += zero ? 0 : exponent;
  }
  out.digits.erase(0, std::min(out.digits.find_first_not_of('0'), out.digits.size()));
  while (!out.digits.empty() && out.digits.back() == '0') {
    out.digits.pop_back();
    ++out.exponent;
  }
  if (out.is_zero()) return Decimal{};
  const auto size = static_cast<std::int64_t>(out.digits.size());
  if (size + out.exponent > kMaxDigits || -out.exponent > kMaxDigits || size > kMaxDigits) return std::nullopt;
  return out;
}

std::string Decimal::whole() const {
  if (exponent >= 0 && !is_zero()) return digits + std::string(static_cast<std::size_t>(exponent), '0');
  const auto after = static_cast<std::size_t>(-exponent);
  return digits.size() > after ? digits.substr(0, digits.size() - after) : "0";
}

std::string Decimal::fraction() const {
  if (exponent >= 0) return "";
  const auto after = static_cast<std::size_t>(-exponent);
  if (digits.size() >= after) return digits.substr(digits.size() - after);
  return std::string(after - digits.size(), '0') + digits;
}

std::string Decimal::text() const {
  return (negative ? "-" : "") + whole() + (fraction().empty() ? "" : "." + fraction());
}

ExprId plain_number(ExpressionPool& pool) {
  constexpr std::uint64_t kPlainNumber = std::uint64_t{3} << 32;
  return pool.once(kPlainNumber, [&] { return pool.concat(pool.optional(pool.literal("-")), unsigned_number(pool)); });
}

NumberText any_number(ExpressionPool& pool) {
  return {plain_number(pool), true, true, kNothing};
}

NumberText number_equal(ExpressionPool& pool, const Decimal& value) {
  if (value.is_zero()) return {signed_zero(pool), true, true, kNothing};
  const std::string fraction = value.fraction();
  const ExprId tail =
      fraction.empty() ? zero_fraction(pool) : pool.concat({point(pool), pool.literal(fraction), zeros(pool)});
  return {pool.concat({pool.literal(value.negative ? "-" : ""), pool.literal(value.whole()), tail}), false, false,
          scientific(pool, value)};
}

NumberText number_at_least(ExpressionPool& pool, const Decimal& bound, bool exclusive) {
  const bool holds_zero = bound.negative || (bound.is_zero() && !exclusive);
  return {beyond(pool, bound, Side::kAbove, !exclusive), !bound.negative, holds_zero || bound.is_zero(), kNothing};
}

NumberText number_at_most(ExpressionPool& pool, const Decimal& bound, bool exclusive) {
  const bool positive = !bound.negative && !bound.is_zero();
  return {beyond(pool, bound, Side::kBelow, !exclusive), !positive, positive || bound.is_zero(), kNothing};
}

namespace {

// Digits whose value is a multiple of `modulus` once `places` of them stand behind the point: one rule for each
// remainder of the digits so far and each number of digits behind the point.
class Remainders {
 public:
  Remainders(ExpressionPool& pool, std::uint64_t modulus, std::uint32_t places)
      : pool_(pool), modulus_(modulus), places_(places) {
    for (std::uint32_t after = 0; after <= places_; ++after)
      for (std::uint64_t r = 0; r < modulus_; ++r)
        rules_.push_back(reaches(r, after) ? pool_.rule(ends_well(r, after)) : kNothing);
    for (std::uint32_t after = 0; after <= places_; ++after)
      for (std::uint64_t r = 0; r < modulus_; ++r)
        if (const ExprId rule = at(after, r); rule != kNothing) pool_.define(rule, body(after, r));
  }

  ExprId unsigned_multiples() const {
    std::vector<ExprId> choices{
        pool_.concat(pool_.literal("0"), pool_.any_of({kEmptyString, pool_.concat(point(pool_), tail(0))}))};
    for (int d = 1; d <= 9; ++d)
      choices.push_back(pool_.concat(digit(pool_, d, d), at(0, static_cast<unsigned>(d) % modulus_)));
    return pool_.any_of(choices);
  }

 private:
  ExprId at(std::uint32_t after, std::uint64_t r) const { return rules_[after * modulus_ + r]; }
  bool ends_well(std::uint64_t r, std::uint32_t after) const {
    for (; after < places_ && r != 0; ++after) r = r * 10 % modulus_;
    return r == 0;
  }
  // Whether any digits lead to a multiple: as many digits as wanted before the point, those left behind it.
  bool reaches(std::uint64_t r, std::uint32_t after) const {
    if (after == 0) return true;
    std::uint64_t span = 1;
    for (; after < places_ && span < modulus_; ++after) {
      span *= 10;
      r = r * 10 % modulus_;
    }
    return span >= modulus_ || r == 0 || modulus_ - r < span;
  }
  ExprId next(std::uint32_t after, std::uint64_t r) const {
    std::vector<ExprId> choices;
    for (int d = 0; d <= 9; ++d)
      choices.push_back(pool_.concat(digit(pool_, d, d), at(after, (r * 10 + static_cast<unsigned>(d)) % modulus_)));
    return pool_.any_of(choices);
  }
  // Behind the point, where at least one digit comes.
  ExprId tail(std::uint64_t r) const {
    if (places_ > 0) return next(1, r);
    return r == 0 ? pool_.concat(digit(pool_, 0, 0), zeros(pool_)) : kNothing;
  }
  ExprId body(std::uint32_t after, std::uint64_t r) const {
    std::vector<ExprId> choices;
    if (ends_well(r, after)) choices.push_back(kEmptyString);
    if (after == 0) {
      choices.push_back(next(0, r));
      choices.push_back(pool_.concat(point(pool_), tail(r)));
    } else {
      choices.push_back(after < places_ ? next(after + 1, r) : zeros(pool_));
    }
    return pool_.any_of(choices);
  }

  ExpressionPool& pool_;
  std::uint64_t modulus_;
  std::uint32_t places_;
  std::vector<ExprId> rules_;
};

}  // namespace

NumberText multiple_of(ExpressionPool& pool, const Decimal& divisor) {
  const auto places = static_cast<std::uint32_t>(divisor.fraction().size());
  std::string scaled = divisor.whole() + divisor.fraction();
  scaled.erase(0, std::min(scaled.find_first_not_of('0'), scaled.size() - 1));
  std::uint64_t modulus = 0;
  const auto [end, error] = std::from_chars(scaled.data(), scaled.data() + scaled.size(), modulus);
  if (error != std::errc() || modulus == 0 || modulus > kMaxDivisor || modulus * (places + 1) > kMaxDivisor)
    throw UnsupportedError(fmt::format("multipleOf {} has too many remainders", divisor.text()), "grammar",
                           "use a divisor with fewer digits");
  const ExprId minus = pool.optional(pool.literal("-"));
  if (modulus == 1 && places == 0)
    return {pool.concat({minus, whole_number(pool), zero_fraction(pool)}), true, false, kNothing};
  return {pool.concat(minus, Remainders(pool, modulus, places).unsigned_multiples()), true, false, kNothing};
}

ExprId number_expression(ExpressionPool& pool, const NumberText& number) {
  const ExprId mark = pool.bytes(ByteSet::one('e') | ByteSet::one('E'));
  std::vector<ExprId> exponents{kEmptyString};
  const ExprId many = digits(pool, 1);
  if (number.grows) exponents.push_back(pool.concat({mark, pool.optional(pool.literal("+")), many}));
  if (number.shrinks) exponents.push_back(pool.concat({mark, pool.literal("-"), many}));
  // x e0 is x.
  const ExprId sign = pool.optional(pool.bytes(ByteSet::one('+') | ByteSet::one('-')));
  exponents.push_back(pool.concat({mark, sign, digit(pool, 0, 0), zeros(pool)}));
  return pool.any_of({pool.concat(number.plain, pool.any_of(exponents)), number.further});
}

}  // namespace coreai::grammar
