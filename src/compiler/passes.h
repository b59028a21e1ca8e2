// The passes, in the order in which compile() runs them. Each rewrites the graph in place; docs/compiler.md lists them.
#pragma once

#include "compiler/graph.h"
#include "coreai/compiler/op_evaluator.h"

namespace coreai::compiler {

// fold: operations on constants become constants (small ones: weights stay mapped).
void fold_constants(Graph& graph, const OpEvaluator& evaluator);
// linear: products with a constant matrix, dequantised or not, become linear layers; rows of one become embeddings.
void form_linear_layers(Graph& graph);
// A part of it: convolutions with one tap on a sequence are linear layers of its transposed.
void form_pointwise_layers(Graph& graph);
// recognize: normalisation, rotation and causal attention written out op by op become nodes.
// Nodes named in `kept` (by written_key) stay as written.
void recognize_composites(Graph& graph, const std::set<std::string>& kept);
// What a NotPlannable names of a node that was recognised.
std::string written_key(const Node& node);
// states: updates of a state become stores, and what leads to a store or an attention becomes one Heads node.
void form_states(Graph& graph);
// fusion: biases, activations of gated pairs, residuals; linear layers with one input become one.
void fuse(Graph& graph);
// elementwise: arithmetic on floats and truth values becomes chains that keep what lies between in registers.
void form_elementwise(Graph& graph);

// ---- helpers that passes share ----

// A matrix value that is a constant or a dequantised constant, as [rows, columns]; nothing for others.
std::optional<WeightSource> weight_of(const Graph& graph, ValueId value);
// A constant or a host value of constants as an array; nothing for others.
std::optional<NDArray> constant_array(const Graph& graph, ValueId value);
// All elements of a small float constant, through casts.
std::optional<std::vector<float>> float_elements(const Graph& graph, ValueId value);
// The value behind casts between f32, f16 and bf16 (and refinements of extents).
ValueId strip_casts(const Graph& graph, ValueId value);

// What a value is of a state: a part of one content.
struct StateSlice {
  ValueId content = kNoValue;
  int state = -1;
  std::vector<Expr> start, extent;  // over the axes of the state
};
std::optional<StateSlice> trace_state(Graph& graph, ValueId value);

// The content of a state that a value looks at, through what only moves elements; kNoValue for others.
ValueId content_of(const Graph& graph, ValueId value);

// Of states in their declared layout, which stores change in place: that nobody reads a content after the store that
// replaces it. Throws NotPlannable.
void check_plain_states(const Graph& graph);

}  // namespace coreai::compiler
