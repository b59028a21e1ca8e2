// What is said of operations that cannot run here.
#pragma once

#include <string>

#include "coreai/ir/module.h"

namespace coreai::cpu {

struct Refusal {
  std::string problem, next_step;
};
// Names the operation, and what it names: a back-end, a kernel, an operation of another dialect.
Refusal refusal_of(const ir::Op& op);

}  // namespace coreai::cpu
