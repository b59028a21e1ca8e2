// Runs a plan on the CPU: kernels bound to steps, steps cut into chunks for the thread pool.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/kv_buffer.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/packed_weights.h"
#include "coreai/base/thread_pool.h"
#include "coreai/compiler/op_evaluator.h"
#include "coreai/compiler/plan.h"

namespace coreai::cpu {

// A plan with its weights. Immutable and thread-safe.
struct Executable {
  compiler::Plan plan;
  PackedWeights weights;
  const compiler::OpEvaluator* evaluator = nullptr;  // outlives every executable
  Digits digits = Digits::kFaithful;
  Isa isa = Isa::kPortable;
  int threads = 1;
};

// Arrays of one call. Extents and dtypes are checked by the caller; every guard of the plan holds.
struct CallArrays {
  std::span<const NDArray> inputs;
  std::span<KvBuffer* const> states;       // null where a state is an array:
  std::span<NDArray* const> plain_states;  // null where it is a KvBuffer; written in place
  std::span<NDArray> outputs;
  std::int64_t last_rows = -1;  // of the output with a row axis; -1 = all
};

struct CallMemory;
class ArenaLayout;
class CallFrame;

// The workspace of one caller. Allocates nothing once it has seen the largest extents. Not thread-safe.
class Call {
 public:
  Call(std::shared_ptr<const Executable> executable, std::shared_ptr<ThreadPool> pool);
  ~Call();

  // `values` are the plan's expressions, evaluated. Throws CancelledError, InvalidArgumentError (an id outside the
  // vocabulary) and what an operation without a fused kernel throws.
  void run(std::span<const std::int64_t> values, const CallArrays& arrays, std::stop_token stop);
  // The same, phase by phase: wall time per step of the plan, in ms.
  std::vector<double> profile(std::span<const std::int64_t> values, const CallArrays& arrays, std::stop_token stop);
  // Of the frame of the last run.
  const ArenaLayout& arena_layout() const;

 private:
  std::shared_ptr<const Executable> executable_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<CallMemory> memory_;
  // Two take turns: a thread that lost its core inside one run holds up the run after the next at the earliest.
  std::unique_ptr<CallFrame> frames_[2];
  int turn_ = 0;
};

}  // namespace coreai::cpu
