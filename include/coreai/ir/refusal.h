// What is said of operations that cannot run here.
#pragma once

#include <optional>
#include <string>

#include "coreai/ir/module.h"

namespace coreai::ir {

struct Refusal {
  std::string problem, next_step;
};
// Of operations that no back-end here can ever run: it names what they name, such as a device's back-end, a Metal
// kernel or an operation of another dialect. Nothing for all others.
std::optional<Refusal> refusal_of(const Op& op);
// The same for an operation that a back-end has no kernel for, whatever the reason.
Refusal missing_kernel(const Op& op);

}  // namespace coreai::ir
