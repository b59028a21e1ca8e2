#pragma once

#include <filesystem>

#include "coreai/compiler/compiler.h"
#include "runtime/function_executor.h"

namespace coreai::detail {

// What identifies the weights of a function for the specialisation cache; an empty key packs in memory only.
struct SpecializationKey {
  std::string asset_hash;
  std::string function;
};

// The executor of a planned function. `reference` runs the calls that the plan does not hold for.
std::unique_ptr<FunctionExecutor> make_compiled_executor(
    compiler::Plan plan, std::unique_ptr<FunctionExecutor> reference,
    std::shared_ptr<const compiler::OpEvaluator> evaluator, std::shared_ptr<const ir::Module> module,
    const FunctionDescriptor& descriptor, const SpecializationOptions& options, const SpecializationKey& key);

}  // namespace coreai::detail
