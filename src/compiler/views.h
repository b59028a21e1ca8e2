#pragma once

#include <optional>

#include "compiler/graph.h"

namespace coreai::compiler {

// Whether an operation only moves or picks elements, so that its result may be a view.
bool is_movement(const Node& node);

// The view of a movement operation's result (reshape, transpose, expand_dims, shrink_dims, slice, split, broadcasts)
// given the view of its input; nothing when strides cannot express it.
std::optional<View> view_of_movement(Graph& graph, const Node& node, std::size_t result, const View& input);

View contiguous_view(ExprPool& exprs, int buffer, const std::vector<Expr>& extents);
// Whether the elements lie row-major without gaps from offset 0 of the view.
bool is_contiguous(ExprPool& exprs, const View& view);

}  // namespace coreai::compiler
