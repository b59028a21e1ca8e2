// From an asset to functions that run. One direction, no global state:
//   AIModelAsset -> AIModel -> InferenceFunction -> Invocation (the caller's workspace) + State (the caller's buffers)
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coreai/asset/asset.h"
#include "coreai/base/ndarray.h"
#include "coreai/runtime/specialization_options.h"

namespace coreai {

namespace detail {
struct ModelImpl;
struct FunctionImpl;
struct InvocationImpl;
struct StateImpl;
}  // namespace detail

// A mutable buffer that a function reads and writes in place, such as a KV cache. Owned by the caller; the executable
// chooses its layout. Not thread-safe: one running call at a time. Zero when made.
class State {
 public:
  State();
  ~State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;

  const std::string& name() const;
  DType dtype() const;
  const Shape& shape() const;  // static: the capacity it was made with
  // The contents in the declared layout (a copy), and back. write() throws ShapeError when dtype or shape differ.
  NDArray read() const;
  void write(const NDArray& value);
  void reset();  // zeros
  // Enlarges the dimensions that the function declares dynamic; contents keep their indices, the rest is zero.
  // Throws ShapeError when a static extent would change or one would shrink.
  void grow(const Shape& shape);
  std::size_t byte_size() const;  // memory it holds

  detail::StateImpl& impl() { return *impl_; }

 private:
  friend class InferenceFunction;
  std::unique_ptr<detail::StateImpl> impl_;
};

// One caller's workspace for one function. Reusing it costs no allocation once it has seen the largest shapes.
// Not thread-safe; make one per thread.
// One step of a profiled call. Bytes are what it must move at least; 0 where nothing is known.
struct StepProfile {
  std::string kernel, detail;
  std::int64_t calls = 1;  // of an operation in a function that runs op by op
  double ms = 0;           // wall time
  std::int64_t weight_bytes = 0, read_bytes = 0, written_bytes = 0, multiply_adds = 0;
};

// Memory between the steps of a compiled function, as laid out for the last call or a larger one before it, and the
// largest sum of values that live at one time then, which no layout can go below. Zeros where it runs op by op.
struct WorkspaceUse {
  std::size_t bytes = 0, largest_live_bytes = 0;
};

class Invocation {
 public:
  ~Invocation();
  Invocation(Invocation&&) noexcept;
  Invocation& operator=(Invocation&&) noexcept;

  // Positions follow FunctionDescriptor. Arrays are shared, not copied; dtype and static extents are checked by run().
  void set_input(std::size_t index, const NDArray& value);
  void set_state(std::size_t index, State& state);
  // For an output with a row axis (`logits` [1, q, vocab]): compute only its last `rows` rows; its extent is then that
  // many. -1 = all; 0 = none (the output is empty). Functions that cannot do so compute all and drop the rest.
  void set_last_rows(std::size_t output, std::int64_t rows);
  // Throws ShapeError, ContextLengthError (a position outside a state), InvalidArgumentError (missing input or state),
  // CancelledError. After an error the function stays usable; states may hold part of the call's writes.
  void run(std::stop_token stop = {});
  // The same call with the time of every step, each waited for: somewhat slower than run(). In the order of the steps;
  // one entry per kind of operation when the function runs op by op.
  std::vector<StepProfile> profile(std::stop_token stop = {});
  WorkspaceUse workspace_use() const;
  // Valid until the next run of this invocation.
  const NDArray& output(std::size_t index) const;

 private:
  friend class InferenceFunction;
  explicit Invocation(std::unique_ptr<detail::InvocationImpl> impl);
  void run(std::stop_token stop, std::vector<StepProfile>* profile);
  std::unique_ptr<detail::InvocationImpl> impl_;
};

using NamedArrays = std::vector<std::pair<std::string, NDArray>>;

// A function of a model, ready to run. Immutable, cheap to copy, thread-safe: calls differ in Invocation and States.
class InferenceFunction {
 public:
  const FunctionDescriptor& descriptor() const;
  const std::string& name() const { return descriptor().name; }
  // A zeroed state of that name. `shape` resolves the declared shape: equal where that is static. Throws NotFoundError,
  // ShapeError.
  State make_state(std::string_view name, const Shape& shape) const;
  Invocation make_invocation() const;
  // One call by names. Throws as Invocation::run, and NotFoundError for an unknown name.
  NamedArrays run(const NamedArrays& inputs, std::span<State*> states = {}) const;
  // The steps of the executable as text, with bytes and multiply-adds, for extents of the dynamic input dimensions
  // given by "input.axis" ("input_ids.1") in order of declaration.
  std::string plan_text(std::span<const std::int64_t> extents, bool json = false) const;
  // "compiled", or why the function runs op by op.
  std::string execution_kind() const;

 private:
  friend class AIModel;
  std::shared_ptr<const detail::FunctionImpl> impl_;
};

// A specialised model. Immutable, cheap to copy, thread-safe.
class AIModel {
 public:
  // Opens and specialises. Throws as AIModelAsset::open, plus UnsupportedError, VerificationError.
  static AIModel load(const std::filesystem::path& asset, const SpecializationOptions& options = {});
  // A program in memory (exporters, tests).
  static AIModel from_module(std::unique_ptr<ir::Module> module, const SpecializationOptions& options = {});

  std::vector<std::string> function_names() const;
  const FunctionDescriptor* function_descriptor(std::string_view name) const;  // null for an unknown name
  // Throws NotFoundError that lists the functions there are.
  InferenceFunction load_function(std::string_view name = "main") const;
  const SpecializationOptions& options() const;

 private:
  std::shared_ptr<detail::ModelImpl> impl_;
};

}  // namespace coreai
