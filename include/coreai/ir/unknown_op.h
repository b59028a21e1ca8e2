// Operations that the table does not have, and those that stand for one (`serialization.opaque`): a reader keeps them
// under kSerializationOpaque with the name in `opname`; their own attributes are not kept.
#pragma once

#include "coreai/ir/module.h"

namespace coreai::ir {

// The decomposition that runs in place of such an operation: the one block whose arguments have the types of the
// operands and whose terminator has those of the results. Null when the operation is a known one, or carries no such
// block: nothing can run it then.
const Block* stand_in_body(const Op& op);

}  // namespace coreai::ir
