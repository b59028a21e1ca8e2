// From a function of a module to a plan. docs/compiler.md describes the passes.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/compiler/op_evaluator.h"
#include "coreai/compiler/plan.h"

namespace coreai::compiler {

struct CompileOptions {
  std::set<std::string, std::less<>> disabled_passes;
};

struct CompileResult {
  std::optional<Plan> plan;
  std::string reason;  // why there is none: the function then runs op by op
};

// Names of the passes that can be switched off, in order.
std::span<const std::string_view> pass_names();

// Never fails on a valid program: a function that no plan serves gives a reason. The plan refers to `module`'s
// constants and operations. Throws InvalidArgumentError for an unknown pass name.
CompileResult compile(const ir::Module& module, const ir::Graph& function, const OpEvaluator& evaluator,
                      const CompileOptions& options = {});

}  // namespace coreai::compiler
