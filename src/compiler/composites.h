// Composites that become movements, an element-wise step, a row step, a pooling or a gather.
#pragma once

#include <optional>

#include "compiler/graph.h"

namespace coreai::compiler {

// `pixel_shuffle`: movements, so a view and one copy; `batch_norm` with constant statistics: a scale and a shift per
// channel; `log_softmax` and `linalg_vector_norm`: a row kernel; `avg_pool_2d`, `avg_pool_3d`: a step; the gathers of
// static exports: a step per table. The values of the results, or none for a form that the body must compute.
std::vector<ValueId> lower_composite(Graph& graph, const ir::CompositeDecl& decl, const std::string& symbol,
                                     const ir::Op& call, const std::vector<ValueId>& inputs);

// A scale per channel behind a convolution with a constant f32 weight, and behind the bias between them, goes into the
// weight.
void fold_channel_scales(Graph& graph);

}  // namespace coreai::compiler
