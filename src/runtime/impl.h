// What the handles of the public API point to.
#pragma once

#include <map>
#include <mutex>

#include "coreai/runtime/ai_model.h"
#include "runtime/function_executor.h"

namespace coreai::detail {

struct FunctionImpl {
  FunctionDescriptor descriptor;
  std::unique_ptr<FunctionExecutor> executor;
};

struct InvocationImpl {
  std::shared_ptr<const FunctionImpl> function;
  std::unique_ptr<Workspace> workspace;
  std::vector<NDArray> inputs, outputs;
  std::vector<State*> states;
  std::vector<StateImpl*> state_impls;  // of the running call
  std::vector<std::int64_t> last_rows;
};

struct ModelImpl {
  ExecutionResources resources;
  SpecializationOptions options;
  std::vector<FunctionDescriptor> functions;
  std::mutex mutex;  // guards `loaded`
  std::map<std::string, std::shared_ptr<const FunctionImpl>, std::less<>> loaded;
};

}  // namespace coreai::detail
