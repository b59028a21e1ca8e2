// What the body of a composite says that its declaration does not.
#pragma once

#include <optional>

#include "compiler/graph.h"

namespace coreai::compiler {

// Of `gated_delta_update`, whose declaration names its operands only: whether query and key are normalised, and the
// factor of the query. Nothing for a body of another form.
std::optional<DeltaRuleParams> read_delta_rule(const ir::Graph& body);

}  // namespace coreai::compiler
