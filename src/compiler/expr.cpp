#include "coreai/compiler/expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace coreai::compiler {
namespace {

// Wrapping arithmetic: expressions of untrusted programs must not be undefined.
std::int64_t wrap_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t wrap_mul(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0 || (a == std::numeric_limits<std::int64_t>::min() && b == -1)) return 0;
  const std::int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

std::int64_t remainder(std::int64_t a, std::int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

}  // namespace

ExprPool::ExprPool() {
  constant(0);
}

Expr ExprPool::intern(Entry entry) {
  const auto [it, inserted] = entry_index_.try_emplace(std::move(entry), static_cast<Expr>(entries_.size()));
  if (inserted) entries_.push_back(it->first);
  return it->second;
}

Expr ExprPool::constant(std::int64_t value) {
  return intern({value, {}});
}

Expr ExprPool::atom_expr(Atom atom) {
  const auto [it, inserted] = atom_index_.try_emplace(atom, static_cast<std::int32_t>(atoms_.size()));
  if (inserted) atoms_.push_back(atom);
  return intern({0, {{it->second, 1}}});
}

Expr ExprPool::symbol(std::string name) {
  symbols_.push_back(std::move(name));
  return atom_expr({AtomKind::kSymbol, static_cast<std::int32_t>(symbols_.size() - 1), 0});
}

Expr ExprPool::combine(Expr a, std::int64_t factor_b, Expr b) {
  const Entry left = entries_[static_cast<std::size_t>(a)];
  const Entry right = entries_[static_cast<std::size_t>(b)];
  Entry out;
  out.constant = wrap_add(left.constant, wrap_mul(factor_b, right.constant));
  std::size_t i = 0, j = 0;
  while (i < left.terms.size() || j < right.terms.size()) {
    if (j == right.terms.size() || (i < left.terms.size() && left.terms[i].first < right.terms[j].first)) {
      out.terms.push_back(left.terms[i++]);
    } else if (i == left.terms.size() || right.terms[j].first < left.terms[i].first) {
      out.terms.emplace_back(right.terms[j].first, wrap_mul(factor_b, right.terms[j].second));
      ++j;
    } else {
      const std::int64_t c = wrap_add(left.terms[i].second, wrap_mul(factor_b, right.terms[j].second));
      if (c != 0) out.terms.emplace_back(left.terms[i].first, c);
      ++i, ++j;
    }
  }
  return intern(std::move(out));
}

Expr ExprPool::add(Expr a, Expr b) {
  return combine(a, 1, b);
}
Expr ExprPool::sub(Expr a, Expr b) {
  return combine(a, -1, b);
}

Expr ExprPool::mul(Expr a, Expr b) {
  if (const auto c = as_constant(a)) return combine(constant(0), *c, b);
  if (const auto c = as_constant(b)) return combine(constant(0), *c, a);
  return atom_expr({AtomKind::kMul, std::min(a, b), std::max(a, b)});
}

Expr ExprPool::product(std::span<const Expr> factors) {
  Expr p = constant(1);
  for (const Expr e : factors) p = mul(p, e);
  return p;
}

Expr ExprPool::floor_div(Expr a, Expr b) {
  const auto ca = as_constant(a), cb = as_constant(b);
  if (ca && cb) return constant(floor_quotient(*ca, *cb));
  if (const auto exact = exact_quotient(a, b)) return *exact;
  return atom_expr({AtomKind::kFloorDiv, a, b});
}

Expr ExprPool::mod(Expr a, Expr b) {
  const auto ca = as_constant(a), cb = as_constant(b);
  if (ca && cb) return constant(remainder(*ca, *cb));
  return atom_expr({AtomKind::kMod, a, b});
}

Expr ExprPool::max(Expr a, Expr b) {
  if (known_nonnegative(sub(a, b))) return a;
  if (known_nonnegative(sub(b, a))) return b;
  return atom_expr({AtomKind::kMax, std::min(a, b), std::max(a, b)});
}

Expr ExprPool::min(Expr a, Expr b) {
  if (known_nonnegative(sub(a, b))) return b;
  if (known_nonnegative(sub(b, a))) return a;
  return atom_expr({AtomKind::kMin, std::min(a, b), std::max(a, b)});
}

std::optional<std::int64_t> ExprPool::as_constant(Expr e) const {
  const Entry& entry = entries_[static_cast<std::size_t>(e)];
  if (!entry.terms.empty()) return std::nullopt;
  return entry.constant;
}

std::int64_t ExprPool::atom_minimum(const Atom& atom) const {
  constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::min();
  const auto nonnegative = [&](Expr e) { return known_nonnegative(e); };
  switch (atom.kind) {
    case AtomKind::kSymbol:
      return 1;
    case AtomKind::kMul:
    case AtomKind::kMin:
    case AtomKind::kFloorDiv:
      return nonnegative(atom.a) && nonnegative(atom.b) ? 0 : kUnknown;
    case AtomKind::kMod:
      return nonnegative(atom.a) ? 0 : kUnknown;
    case AtomKind::kMax:
      return nonnegative(atom.a) || nonnegative(atom.b) ? 0 : kUnknown;
  }
  return kUnknown;
}

bool ExprPool::known_nonnegative(Expr e) const {
  const Entry& entry = entries_[static_cast<std::size_t>(e)];
  std::int64_t minimum = entry.constant;
  for (const auto& [atom, coefficient] : entry.terms) {
    if (coefficient < 0) return false;
    const std::int64_t low = atom_minimum(atoms_[static_cast<std::size_t>(atom)]);
    if (low == std::numeric_limits<std::int64_t>::min()) return false;
    minimum = wrap_add(minimum, wrap_mul(coefficient, low));
  }
  return minimum >= 0;
}

std::optional<Expr> ExprPool::exact_quotient(Expr a, Expr b) {
  if (a == b) return constant(1);
  const auto divisor = as_constant(b);
  const Entry entry = entries_[static_cast<std::size_t>(a)];
  if (divisor && *divisor > 0) {
    if (entry.constant % *divisor != 0) return std::nullopt;
    Entry out{entry.constant / *divisor, {}};
    for (const auto& [atom, coefficient] : entry.terms) {
      if (coefficient % *divisor != 0) return std::nullopt;
      out.terms.emplace_back(atom, coefficient / *divisor);
    }
    return intern(std::move(out));
  }
  // a = c * b for a linear form b without a constant quotient: compare coefficients.
  const Entry& other = entries_[static_cast<std::size_t>(b)];
  if (other.terms.empty() || entry.terms.size() != other.terms.size()) return std::nullopt;
  const std::int64_t c = other.terms[0].second == 0 ? 0 : entry.terms[0].second / other.terms[0].second;
  if (c == 0 || wrap_mul(c, other.constant) != entry.constant) return std::nullopt;
  for (std::size_t i = 0; i < entry.terms.size(); ++i) {
    if (entry.terms[i].first != other.terms[i].first || wrap_mul(c, other.terms[i].second) != entry.terms[i].second) {
      return std::nullopt;
    }
  }
  return constant(c);
}

std::string ExprPool::text(Expr e) const {
  const Entry& entry = entries_[static_cast<std::size_t>(e)];
  std::string out;
  for (const auto& [index, coefficient] : entry.terms) {
    const Atom& atom = atoms_[static_cast<std::size_t>(index)];
    std::string term;
    switch (atom.kind) {
      case AtomKind::kSymbol:
        term = symbols_[static_cast<std::size_t>(atom.a)];
        break;
      case AtomKind::kMul:
        term = fmt::format("({})*({})", text(atom.a), text(atom.b));
        break;
      case AtomKind::kFloorDiv:
        term = fmt::format("({})/({})", text(atom.a), text(atom.b));
        break;
      case AtomKind::kMod:
        term = fmt::format("({})%({})", text(atom.a), text(atom.b));
        break;
      case AtomKind::kMax:
        term = fmt::format("max({}, {})", text(atom.a), text(atom.b));
        break;
      case AtomKind::kMin:
        term = fmt::format("min({}, {})", text(atom.a), text(atom.b));
        break;
    }
    if (coefficient < 0) {
      out += out.empty() ? "-" : " - ";
    } else if (!out.empty()) {
      out += " + ";
    }
    const std::uint64_t magnitude =
        coefficient < 0 ? 0 - static_cast<std::uint64_t>(coefficient) : static_cast<std::uint64_t>(coefficient);
    out += magnitude == 1 ? term : fmt::format("{}*{}", magnitude, term);
  }
  if (entry.terms.empty()) return fmt::format("{}", entry.constant);
  if (entry.constant > 0) out += fmt::format(" + {}", entry.constant);
  if (entry.constant < 0) out += fmt::format(" - {}", 0 - static_cast<std::uint64_t>(entry.constant));
  return out;
}

std::int64_t ExprPool::evaluate_atom(const Atom& atom, std::span<const std::int64_t> symbols,
                                     std::span<const std::int64_t> values) const {
  if (atom.kind == AtomKind::kSymbol) return symbols[static_cast<std::size_t>(atom.a)];
  const std::int64_t a = values[static_cast<std::size_t>(atom.a)], b = values[static_cast<std::size_t>(atom.b)];
  switch (atom.kind) {
    case AtomKind::kMul:
      return wrap_mul(a, b);
    case AtomKind::kFloorDiv:
      return floor_quotient(a, b);
    case AtomKind::kMod:
      return remainder(a, b);
    case AtomKind::kMax:
      return std::max(a, b);
    case AtomKind::kMin:
      return std::min(a, b);
    default:
      return 0;
  }
}

void ExprPool::evaluate(std::span<const std::int64_t> symbols, std::span<std::int64_t> out) const {
  // An expression's atoms only refer to expressions made before it, so one pass in order suffices.
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    std::int64_t value = entries_[e].constant;
    for (const auto& [atom, coefficient] : entries_[e].terms) {
      value =
          wrap_add(value, wrap_mul(coefficient, evaluate_atom(atoms_[static_cast<std::size_t>(atom)], symbols, out)));
    }
    out[e] = value;
  }
}

}  // namespace coreai::compiler
