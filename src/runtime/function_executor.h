// What runs a function behind the public API: the reference executor and the compiled one stand side by side here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>

#include "coreai/asset/asset.h"
#include "coreai/base/ndarray.h"
#include "coreai/base/thread_pool.h"
#include "coreai/runtime/ai_model.h"
#include "coreai/runtime/specialization_options.h"

namespace coreai::detail {

// A state in the layout of the executor that made it. The public State checks arguments before it calls these.
struct StateImpl {
  std::string name;
  DType dtype = DType::kF32;
  Shape declared;  // kDynamic where it may grow
  Shape shape;     // static

  virtual ~StateImpl() = default;
  virtual NDArray read() const = 0;               // in the declared layout
  virtual void write(const NDArray& value) = 0;   // of the state's dtype and shape
  virtual void reset() = 0;                       // zeros
  virtual void grow(const Shape& new_shape) = 0;  // contents keep their indices; sets `shape`
  virtual std::size_t byte_size() const = 0;
};

// Memory that calls of one invocation reuse.
struct Workspace {
  virtual ~Workspace() = default;
  virtual WorkspaceUse use() const { return {}; }
};

// One call. Inputs and states are checked against the descriptor already, in its order.
struct RunRequest {
  std::span<const NDArray> inputs;
  std::span<StateImpl* const> states;
  std::span<const std::int64_t> last_rows;  // one per output; -1 = all
  std::span<NDArray> outputs;               // one per output, to be filled
  std::stop_token stop;
  std::vector<StepProfile>* profile = nullptr;  // to be filled when wanted
};

// Immutable and thread-safe.
class FunctionExecutor {
 public:
  virtual ~FunctionExecutor() = default;
  // A zeroed state; `shape` fits the descriptor and is static.
  virtual std::unique_ptr<StateImpl> make_state(std::size_t index, const Shape& shape) const = 0;
  virtual std::unique_ptr<Workspace> make_workspace() const = 0;
  // Throws ShapeError, ContextLengthError, InvalidArgumentError (a state of another executor), CancelledError.
  virtual void run(Workspace& workspace, const RunRequest& request) const = 0;
  virtual std::string plan_text(std::span<const std::int64_t> extents, bool json) const = 0;
  // "compiled", or why the function runs op by op.
  virtual std::string kind() const = 0;
};

// Shared by the functions of a model.
struct ExecutionResources {
  std::shared_ptr<const ir::Module> module;
  std::shared_ptr<ThreadPool> pool;  // made with the first compiled function
  std::string asset_hash;            // hex; empty for a program in memory, whose packed weights are not kept
};

// The executor for the options' precision. Throws UnsupportedError, VerificationError.
std::unique_ptr<FunctionExecutor> make_executor(ExecutionResources& resources, const ir::Graph& graph,
                                                const FunctionDescriptor& descriptor,
                                                const SpecializationOptions& options);

}  // namespace coreai::detail
