// The syntax tree of an ECMA-262 pattern.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/code_points.h"

namespace coreai::grammar {

struct RegexNode {
  enum class Kind : std::uint8_t { kSet, kSequence, kChoice, kRepeat, kStart, kEnd, kLookAhead };
  Kind kind = Kind::kSequence;
  bool negated = false;            // kLookAhead
  bool assertions = false;         // anchors or look-ahead inside
  std::uint32_t min = 0, max = 0;  // kRepeat
  std::size_t offset = 0;          // byte of the pattern
  CodePointSet set{};              // kSet
  std::vector<std::uint32_t> children{};
};

// Children come before their parents; the last node is the root.
struct RegexTree {
  std::vector<RegexNode> nodes;
};

// What patterns of other places than JSON Schema mean.
struct RegexSyntax {
  bool only_line_feeds = false;  // '.' is all but a line feed, and (?i:...), (?s:...), (?-i:...) set what is below
  bool dot_all = false;          // '.' is everything
  bool ignore_case = false;      // of A to Z; other letters are refused
};

// Throws as regex_expression.
RegexTree parse_regex(std::string_view pattern, const RegexSyntax& syntax = {});

}  // namespace coreai::grammar
