#pragma once

#include "compiler/graph.h"

namespace coreai::compiler {

// Sets the shapes of an operation's outputs, and their elements where they are shape arithmetic, from its operands.
// A declared type never overrides an operand. Adds guards for what must hold at run time. Throws NotPlannable.
void infer_shapes(Graph& graph, const Node& node);

// Extents and start of a slice along one axis by the rules of slices (docs/aimodel-format.md), stride 1 or constant.
struct SliceRange {
  Expr start, extent;
  std::int64_t stride = 1;
};
// The ranges of a `slice` (begin, end, stride operands 1, 2, 3) or `slice_update` node over the extents of `input`.
std::vector<SliceRange> slice_ranges(Graph& graph, const Node& node);

// Elements of a host value that are all constants; nothing otherwise.
std::optional<std::vector<std::int64_t>> constant_elements(const Graph& graph, ValueId value);

}  // namespace coreai::compiler
