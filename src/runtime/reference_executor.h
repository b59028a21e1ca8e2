// Runs a function op by op on the interpreter.
#pragma once

#include "backend/cpu/reference/interpreter.h"
#include "runtime/function_executor.h"

namespace coreai::detail {

// A state as an array in its declared layout.
struct DenseState final : StateImpl {
  NDArray value;

  NDArray read() const override { return value.clone(); }
  void write(const NDArray& source) override { value = source.clone(); }
  void reset() override { value = NDArray(dtype, shape); }
  void grow(const Shape& new_shape) override;
  std::size_t byte_size() const override { return value.byte_size(); }
  // For a writer in place: nobody else sees these elements.
  NDArray& own() {
    if (value.storage().use_count() > 1) value = value.clone();
    return value;
  }
};

class ReferenceExecutor final : public FunctionExecutor {
 public:
  // `reason` says why the function runs op by op.
  ReferenceExecutor(std::shared_ptr<const ir::Module> module, const ir::Graph& graph, FunctionDescriptor descriptor,
                    std::string reason);

  std::unique_ptr<StateImpl> make_state(std::size_t index, const Shape& shape) const override;
  std::unique_ptr<Workspace> make_workspace() const override;
  void run(Workspace& workspace, const RunRequest& request) const override;
  std::string plan_text(std::span<const std::int64_t> extents, bool json) const override;
  std::string kind() const override { return reason_; }

 private:
  std::shared_ptr<const ir::Module> module_;
  ir::Graph graph_;
  FunctionDescriptor descriptor_;
  std::string reason_;
  cpu::Interpreter interpreter_;
  std::vector<bool> argument_is_state_, result_is_token_;
};

}  // namespace coreai::detail
