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

}  // namespace coreai::cpu
