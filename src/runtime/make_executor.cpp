#include <fmt/format.h>

#include "backend/cpu/reference/evaluator.h"
#include "coreai/compiler/compiler.h"
#include "runtime/compiled_executor.h"
#include "runtime/reference_executor.h"

namespace coreai::detail {

std::unique_ptr<FunctionExecutor> make_executor(ExecutionResources& resources, const ir::Graph& graph,
                                                const FunctionDescriptor& descriptor,
                                                const SpecializationOptions& options) {
  const auto reference = [&](const std::string& why) {
    return std::make_unique<ReferenceExecutor>(resources.module, graph, descriptor, "op by op: " + why);
  };
  if (options.precision == Precision::kStrict) return reference("precision strict asks for it");
  PackedWeightsEntry weights(resources, descriptor.name, options);
  compiler::CompileOptions compile_options;
  compile_options.disabled_passes.insert(options.disabled_passes.begin(), options.disabled_passes.end());
  compiler::CompileResult result =
      compiler::compile(*resources.module, graph, cpu::reference_evaluator(), compile_options);
  if (!result.plan) return reference(result.reason);
  return make_compiled_executor(std::move(*result.plan), weights,
                                reference("this call breaks an assumption of the plan"), resources, descriptor,
                                options);
}

}  // namespace coreai::detail
