// Parts of the pass `recognize`: each turns a node into the composite that it computes, or leaves it.
#pragma once

#include "compiler/graph.h"

namespace coreai::compiler {

bool recognize_rms_norm(Graph& g, Node& node);
bool recognize_layer_norm(Graph& g, Node& node);
bool recognize_rope(Graph& g, Node& node);
bool recognize_attention(Graph& g, Node& node);

}  // namespace coreai::compiler
