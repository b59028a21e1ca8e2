// Shape arithmetic: integer expressions over the unknown extents of a function's inputs. A call evaluates all of them
// once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coreai::compiler {

// Index of an expression in its pool. Equal expressions have equal indices: linear forms are kept in a normal form,
// so that s - (s - q) is q.
using Expr = std::int32_t;

// Owner of expressions. Values are 64-bit and wrap; symbols are extents, at least 1 (a call with an empty extent does
// not use the plan). Not thread-safe while it grows; evaluate() is const and allocates nothing.
class ExprPool {
 public:
  ExprPool();

  Expr constant(std::int64_t value);
  Expr symbol(std::string name);
  Expr add(Expr a, Expr b);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, Expr b);
  Expr product(std::span<const Expr> factors);
  Expr floor_div(Expr a, Expr b);
  Expr mod(Expr a, Expr b);
  Expr max(Expr a, Expr b);
  Expr min(Expr a, Expr b);

  std::optional<std::int64_t> as_constant(Expr e) const;
  bool is_constant(Expr e, std::int64_t value) const { return as_constant(e) == value; }
  // Whether e >= 0 follows from every symbol being at least 1.
  bool known_nonnegative(Expr e) const;
  // a / b when it is exact for every value of the symbols (all coefficients divisible by a constant b, or a == c*b).
  std::optional<Expr> exact_quotient(Expr a, Expr b);

  std::size_t size() const { return entries_.size(); }
  std::size_t symbol_count() const { return symbols_.size(); }
  const std::string& symbol_name(std::size_t i) const { return symbols_[i]; }
  std::string text(Expr e) const;

  // out[e] for every expression; `symbols` in order of creation. Division by zero gives 0.
  void evaluate(std::span<const std::int64_t> symbols, std::span<std::int64_t> out) const;

 private:
  enum class AtomKind : std::uint8_t { kSymbol, kMul, kFloorDiv, kMod, kMax, kMin };
  struct Atom {
    AtomKind kind;
    std::int32_t a, b;  // kSymbol: index; else expressions
    auto operator<=>(const Atom&) const = default;
  };
  struct Entry {
    std::int64_t constant = 0;
    std::vector<std::pair<std::int32_t, std::int64_t>> terms;  // (atom, coefficient), by atom
    auto operator<=>(const Entry&) const = default;
  };
  Expr intern(Entry entry);
  Expr atom_expr(Atom atom);
  Expr combine(Expr a, std::int64_t factor_b, Expr b);
  std::int64_t atom_minimum(const Atom& atom) const;
  std::int64_t evaluate_atom(const Atom& atom, std::span<const std::int64_t> symbols,
                             std::span<const std::int64_t> values) const;

  std::vector<std::string> symbols_;
  std::vector<Atom> atoms_;
  std::map<Atom, std::int32_t> atom_index_;
  std::vector<Entry> entries_;
  std::map<Entry, Expr> entry_index_;
};

}  // namespace coreai::compiler
