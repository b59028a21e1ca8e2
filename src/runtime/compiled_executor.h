#pragma once

#include "coreai/compiler/compiler.h"
#include "runtime/function_executor.h"
#include "runtime/packed_weights_entry.h"

namespace coreai::detail {

// The executor of a planned function. `reference` runs the calls that the plan does not hold for.
std::unique_ptr<FunctionExecutor> make_compiled_executor(compiler::Plan plan, PackedWeightsEntry& weights,
                                                         std::unique_ptr<FunctionExecutor> reference,
                                                         ExecutionResources& resources,
                                                         const FunctionDescriptor& descriptor,
                                                         const SpecializationOptions& options);

}  // namespace coreai::detail
