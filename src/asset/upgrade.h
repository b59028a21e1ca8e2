#pragma once

#include "coreai/ir/module.h"

namespace coreai::asset {

// Replaces older versions of operations (`_v1` where a `_v2` exists) by the current form, in place and with the same
// meaning. Throws VerificationError when an old operation has the wrong operands.
void upgrade_old_versions(ir::Module& module);

}  // namespace coreai::asset
