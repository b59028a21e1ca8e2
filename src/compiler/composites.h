// Composites that become movements, an element-wise step or a row step.
#pragma once

#include <optional>

#include "compiler/graph.h"

namespace coreai::compiler {

// `pixel_shuffle`: movements, so a view and one copy; `batch_norm` with constant statistics: a scale and a shift per
// channel; `log_softmax` and `linalg_vector_norm`: a row kernel. The value of the result, or nothing for a form that
// the body must compute.
std::optional<ValueId> lower_composite(Graph& graph, const ir::CompositeDecl& decl, const std::string& symbol,
                                       const ir::Op& call, const std::vector<ValueId>& inputs);

// A scale per channel behind a convolution with a constant f32 weight, and behind the bias between them, goes into the
// weight.
void fold_channel_scales(Graph& graph);

}  // namespace coreai::compiler
