#include "backend/cpu/executable.h"

#include <chrono>
#include <utility>

#include "backend/cpu/call_frame.h"

namespace coreai::cpu {
namespace {

// A thread that has its core leaves a finished run within this time.
constexpr std::chrono::microseconds kLeaveTime{20};

}  // namespace

Call::Call(std::shared_ptr<const Executable> executable, std::shared_ptr<ThreadPool> pool)
    : executable_(std::move(executable)), pool_(std::move(pool)), memory_(std::make_unique<CallMemory>()) {
  for (auto& frame : frames_) frame = std::make_unique<CallFrame>(*executable_);
}

Call::~Call() {
  for (const auto& frame : frames_) pool_->drain(*frame);
}

void Call::run(std::span<const std::int64_t> values, const CallArrays& arrays, std::stop_token stop) {
  CallFrame& frame = *frames_[turn_ ^= 1];
  pool_->drain(frame);
  frame.bind(values, arrays, *memory_);
  pool_->run(frame, std::move(stop), RunEnd::kLeaveLate);
  if (pool_->drain_for(frame, kLeaveTime)) frame.release();
}

const ArenaLayout& Call::arena_layout() const {
  return frames_[turn_]->arena_layout();
}

std::vector<double> Call::profile(std::span<const std::int64_t> values, const CallArrays& arrays,
                                  std::stop_token stop) {
  using Clock = std::chrono::steady_clock;
  CallFrame& frame = *frames_[turn_ ^= 1];
  pool_->drain(frame);
  frame.bind(values, arrays, *memory_);
  std::vector<double> ms(executable_->plan.steps.size(), 0.0);
  const int phases = frame.step_count();
  struct OnePhase final : StepProgram {
    CallFrame& frame;
    int phase = 0;
    explicit OnePhase(CallFrame& f) : frame(f) {}
    int step_count() const override { return 1; }
    StepInfo step_info(int) const override { return frame.step_info(phase); }
    std::size_t scratch_bytes() const override { return frame.scratch_bytes(); }
    void compute(int, int chunk, const Worker& worker) override { frame.compute(phase, chunk, worker); }
    void publish(int, int chunk, const Worker& worker) override { frame.publish(phase, chunk, worker); }
  } one(frame);
  for (one.phase = 0; one.phase < phases; ++one.phase) {
    const auto start = Clock::now();
    pool_->run(one, stop);
    ms[static_cast<std::size_t>(frame.plan_step(one.phase))] +=
        std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }
  frame.release();
  return ms;
}

}  // namespace coreai::cpu
