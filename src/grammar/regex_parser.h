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

// Throws as regex_expression.
RegexTree parse_regex(std::string_view pattern);

}  // namespace coreai::grammar
