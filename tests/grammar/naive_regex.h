// An oracle for expressions: membership by the definition of each operation, over short strings, without derivatives.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expression.h"

namespace coreai::grammar {

// A tree that is both built in a pool and evaluated naively.
struct NaiveExpr {
  enum class Kind { kBytes, kEmpty, kConcat, kAnyOf, kAllOf, kNot, kRepeat };
  Kind kind = Kind::kEmpty;
  std::string bytes{};  // kBytes: the members
  std::vector<NaiveExpr> children{};
  std::uint32_t min = 0, max = 0;

  ExprId build(ExpressionPool& pool) const {
    std::vector<ExprId> parts;
    for (const NaiveExpr& child : children) parts.push_back(child.build(pool));
    ByteSet set;
    for (const char byte : bytes) set.insert(static_cast<std::uint8_t>(byte));
    switch (kind) {
      case Kind::kBytes:
        return pool.bytes(set);
      case Kind::kEmpty:
        return kEmptyString;
      case Kind::kConcat:
        return pool.concat(parts[0], parts[1]);
      case Kind::kAnyOf:
        return pool.any_of(parts);
      case Kind::kAllOf:
        return pool.all_of(parts);
      case Kind::kNot:
        return pool.negate(parts[0]);
      default:
        return pool.repeat(parts[0], min, max);
    }
  }

  bool matches(std::string_view text) const {
    switch (kind) {
      case Kind::kBytes:
        return text.size() == 1 && bytes.find(text[0]) != std::string::npos;
      case Kind::kEmpty:
        return text.empty();
      case Kind::kConcat:
        for (std::size_t cut = 0; cut <= text.size(); ++cut)
          if (children[0].matches(text.substr(0, cut)) && children[1].matches(text.substr(cut))) return true;
        return false;
      case Kind::kAnyOf:
        return children[0].matches(text) || children[1].matches(text);
      case Kind::kAllOf:
        return children[0].matches(text) && children[1].matches(text);
      case Kind::kNot:
        return !children[0].matches(text);
      default:
        return repeats(text, min, max);
    }
  }

 private:
  // Iterations that consume nothing only help to reach the minimum.
  bool repeats(std::string_view text, std::uint32_t low, std::uint32_t high) const {
    if (text.empty()) return low == 0 || children[0].matches({});
    if (high == 0) return false;
    if (children[0].matches({})) low = 0;
    for (std::size_t cut = 1; cut <= text.size(); ++cut)
      if (children[0].matches(text.substr(0, cut)) &&
          repeats(text.substr(cut), low == 0 ? 0 : low - 1, high == kUnbounded ? high : high - 1))
        return true;
    return false;
  }
};

inline NaiveExpr random_expr(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  NaiveExpr out;
  const int kind = depth == 0 ? pick(2) : pick(9);
  if (kind <= 1) {
    out.kind = kind == 0 || pick(3) != 0 ? NaiveExpr::Kind::kBytes : NaiveExpr::Kind::kEmpty;
    for (const char byte : {'a', 'b', 'c'})
      if (pick(2) == 0) out.bytes += byte;
    if (out.bytes.empty()) out.bytes = "a";
    return out;
  }
  using Kind = NaiveExpr::Kind;
  out.kind = std::vector{Kind::kConcat, Kind::kConcat, Kind::kAnyOf, Kind::kAllOf,
                         Kind::kNot,    Kind::kRepeat, Kind::kRepeat}[kind - 2];
  const int count = out.kind == Kind::kNot || out.kind == Kind::kRepeat ? 1 : 2;
  for (int i = 0; i < count; ++i) out.children.push_back(random_expr(random, depth - 1));
  out.min = static_cast<std::uint32_t>(pick(3));
  out.max = pick(2) == 0 ? kUnbounded : out.min + static_cast<std::uint32_t>(pick(3));
  return out;
}

}  // namespace coreai::grammar
