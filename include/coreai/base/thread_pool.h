// Runs a program of steps in order on a few threads. Chunks are taken by ticket and a thread that waits recomputes the
// missing chunk itself, so that a descheduled thread does not hold up the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>

namespace coreai {

// The thread that computes a chunk: its index (0 is the caller of run()) and its private memory, aligned to 64 bytes.
struct Worker {
  int index = 0;
  std::byte* scratch = nullptr;
  std::size_t scratch_bytes = 0;
};

struct StepInfo {
  int chunks = 1;  // 0..ThreadPool::kMaxChunks
  // A redoable step computes into the worker's scratch and writes shared memory only in publish(), which runs exactly
  // once per chunk. A step that is not redoable writes its output in compute(), which then runs exactly once.
  bool redoable = false;
};

// Step k+1 starts when every chunk of step k is done and sees all that k wrote. The description (step_count, step_info,
// scratch_bytes) must not change during a run.
//
// A redoable chunk may be computed by several threads at once, and by a late thread while later steps - after
// run(..., RunEnd::kLeaveLate) even later runs - overwrite what it reads. Its result is then discarded, but compute()
// must stay inside its memory whatever values it reads: no index taken from shared data without a clamp.
class StepProgram {
 public:
  virtual ~StepProgram() = default;
  virtual int step_count() const = 0;
  virtual StepInfo step_info(int step) const = 0;
  // Private memory wanted per worker, the largest over all steps. Contents do not survive from chunk to chunk.
  virtual std::size_t scratch_bytes() const = 0;
  virtual void compute(int step, int chunk, const Worker& worker) = 0;
  // Copies a redoable chunk's result from the scratch of the worker that computed it. Must not throw.
  virtual void publish(int step, int chunk, const Worker& worker) = 0;
};

enum class RunEnd {
  kDrain,      // return when no thread is inside the program any more
  kLeaveLate,  // return when every step is done; a late thread may still read (see StepProgram): drain() before the
               // program or anything it reads is changed in extent, moved or freed
};

// Threads sleep between runs (after a short spin) and never inside one. A run allocates nothing once every worker's
// scratch is large enough. Thread-safe: concurrent runs wait for each other; a run from inside a chunk throws.
class ThreadPool {
 public:
  static constexpr int kMaxChunks = 4096;

  // `threads` counts the caller of run(); at least 1. Throws InvalidArgumentError, or std::system_error when no thread
  // can be started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Runs every step. Rethrows the first exception of a chunk and throws CancelledError when `stop` was requested; the
  // remaining steps are then skipped and the pool is drained whatever `end` says.
  void run(StepProgram& program, std::stop_token stop = {}, RunEnd end = RunEnd::kDrain);
  // Waits until no thread is inside `program`.
  void drain(const StepProgram& program);
  // The same for about `time` at most; false when a thread is still inside.
  bool drain_for(const StepProgram& program, std::chrono::nanoseconds time);

  // body(i) for i in [0, count), each once, in pieces taken by ticket.
  template <typename Body>
  void parallel_for(int count, Body&& body, std::stop_token stop = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

template <typename Body>
void ThreadPool::parallel_for(int count, Body&& body, std::stop_token stop) {
  struct Program final : StepProgram {
    Program(int n, Body& f) : count_(n), chunks_(n < kMaxChunks ? n : kMaxChunks), body_(f) {}
    int step_count() const override { return 1; }
    StepInfo step_info(int) const override { return {chunks_, false}; }
    std::size_t scratch_bytes() const override { return 0; }
    void compute(int, int chunk, const Worker&) override {
      const auto bound = [this](int c) { return static_cast<int>(static_cast<long long>(count_) * c / chunks_); };
      for (int i = bound(chunk); i < bound(chunk + 1); ++i) body_(i);
    }
    void publish(int, int, const Worker&) override {}
    int count_, chunks_;
    Body& body_;
  } program(count, body);
  if (count > 0) run(program, std::move(stop));
}

}  // namespace coreai
