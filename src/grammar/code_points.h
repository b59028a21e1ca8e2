// Sets of Unicode scalar values, and their UTF-8 bytes as expressions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coreai/base/utf8.h"
#include "grammar/expression.h"

namespace coreai::grammar {

struct CodePointRange {
  std::uint32_t first, last;  // inclusive
  bool operator==(const CodePointRange&) const = default;
};

// Ascending ranges that neither overlap nor touch, without surrogates.
class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges) {
    for (const CodePointRange& range : ranges) insert(range.first, range.last);
  }
  static CodePointSet all() { return {{0, kMaxCodePoint}}; }

  void insert(std::uint32_t first, std::uint32_t last);
  void insert(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet without(const CodePointSet& other) const;
  bool empty() const { return ranges_.empty(); }
  std::span<const CodePointRange> ranges() const { return ranges_; }
  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<CodePointRange> ranges_;
};

// Each member in well-formed UTF-8 (Unicode 15, table 3-7).
ExprId utf8_expression(ExpressionPool& pool, const CodePointSet& set);

// How text is written as bytes: plain UTF-8, or inside a JSON string.
class CodePointEncoder {
 public:
  virtual ~CodePointEncoder() = default;
  // One member of the set, in every way in which it may be written.
  virtual ExprId encode(ExpressionPool& pool, const CodePointSet& set) const = 0;
};

class Utf8Encoder : public CodePointEncoder {
 public:
  ExprId encode(ExpressionPool& pool, const CodePointSet& set) const override { return utf8_expression(pool, set); }
};

}  // namespace coreai::grammar
