#pragma once

#include <set>
#include <string>

#include "compiler/graph.h"

namespace coreai::compiler {

struct LowerOptions {
  bool keep_composites = true;           // Resolve pass
  std::set<std::string> inline_symbols;  // composites that no kernel takes: run by their body
  bool trace = false;                    // fill Graph::origins
  bool value_inputs = false;             // elements of small integer inputs are symbols
};

// Flattens a function: inlines calls, keeps known composites as nodes, turns tokens and handles into values and shape
// arithmetic into expressions. Throws NotPlannable for control flow and other forms that no plan serves.
Graph lower(const ir::Module& module, const ir::Graph& function, const LowerOptions& options);

}  // namespace coreai::compiler
