#pragma once

#include "compiler/graph.h"

namespace coreai::compiler {

// Sets the shapes of an operation's outputs, and their elements where they are shape arithmetic, from its operands.
// A declared type never overrides an operand. Adds guards for what must hold at run time. Throws NotPlannable.
void infer_shapes(Graph& graph, const Node& node);

// The plan holds only while a == b: guards unless that is known. False when they are known to differ.
bool require_equal(Graph& graph, Expr a, Expr b, const char* reason);

// Where `type` declares an extent that follows from others, the call must give it: guards for what is not known yet.
// False where the ranks or known extents differ.
bool require_declared(Graph& graph, ir::TypeRef type, const std::vector<Expr>& shape);

// How often a window that reaches over `reach` elements fits into `extent`, in steps of `stride`; `up`: the last window
// may reach out. Nothing when it never does; what is not known yet is a guard.
std::optional<Expr> windows_in(Graph& graph, Expr extent, Expr reach, std::int64_t stride, bool up);

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
