#pragma once

#include "coreai/ir/module.h"

namespace coreai::ir {

// Checks a module against the table of the dialect: operand and result counts, dtypes and ranks, attributes, regions,
// terminators, token and handle rules, callees, function types. Throws VerificationError that names graph, op and rule.
void verify(const Module& module);

}  // namespace coreai::ir
