// What the body of a composite says that its declaration does not.
#pragma once

#include <optional>

#include "compiler/graph.h"

namespace coreai::compiler {

// Of `gated_delta_update`, whose declaration names its operands only: whether query and key are normalised, and the
// factor of the query. Nothing for a body that prepares its operands in another way before it takes token after token;
// that it then follows the rule is what its name says.
std::optional<DeltaRuleParams> read_delta_rule(const ir::Graph& body);

}  // namespace coreai::compiler
