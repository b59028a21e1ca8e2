#include "coreai/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "coreai/base/error.h"

namespace coreai {
namespace {

// Each step maps a vector of values to the next one, so that a missed, doubled or early chunk changes the result.
class MixProgram : public StepProgram {
 public:
  MixProgram(int steps, int chunks, int width, bool redoable)
      : steps_(steps), chunks_(chunks), width_(width), redoable_(redoable), a_(chunks * width), b_(chunks * width) {
    std::iota(a_.begin(), a_.end(), 1u);
  }
  int step_count() const override { return steps_; }
  StepInfo step_info(int step) const override { return {step % 5 == 4 ? 1 : chunks_, redoable_ && step % 7 != 3}; }
  std::size_t scratch_bytes() const override { return a_.size() * sizeof(std::uint32_t); }
  void compute(int step, int chunk, const Worker& worker) override {
    const std::vector<std::uint32_t>& in = step % 2 == 0 ? a_ : b_;
    std::vector<std::uint32_t>& out = step % 2 == 0 ? b_ : a_;
    std::uint32_t* to =
        step_info(step).redoable ? reinterpret_cast<std::uint32_t*>(worker.scratch) : out.data() + first(step, chunk);
    const std::size_t n = in.size();
    for (std::size_t i = 0, j = first(step, chunk); i < count(step); ++i, ++j) {
      to[i] = (in[j] * 1664525u + in[(j + static_cast<std::size_t>(width_)) % n]) ^ (in[(j * 7) % n] >> 3);
    }
    computed_.fetch_add(1, std::memory_order_relaxed);
  }
  void publish(int step, int chunk, const Worker& worker) override {
    std::vector<std::uint32_t>& out = step % 2 == 0 ? b_ : a_;
    std::memcpy(out.data() + first(step, chunk), worker.scratch, count(step) * sizeof(std::uint32_t));
    published_.fetch_add(1, std::memory_order_relaxed);
  }
  const std::vector<std::uint32_t>& result() const { return steps_ % 2 == 0 ? a_ : b_; }
  int computed() const { return computed_.load(); }
  int published() const { return published_.load(); }

 private:
  std::size_t count(int step) const { return a_.size() / static_cast<std::size_t>(step_info(step).chunks); }
  std::size_t first(int step, int chunk) const { return count(step) * static_cast<std::size_t>(chunk); }
  int steps_, chunks_, width_;
  bool redoable_;
  std::vector<std::uint32_t> a_, b_;
  std::atomic<int> computed_{0}, published_{0};
};

std::vector<std::uint32_t> expected(int steps, int chunks, int width, bool redoable) {
  MixProgram program(steps, chunks, width, redoable);
  ThreadPool one(1);
  one.run(program);
  return program.result();
}

TEST(ThreadPool, GivesTheSameResultForEveryThreadCount) {
  for (const bool redoable : {false, true}) {
    const auto want = expected(101, 12, 5, redoable);
    for (const int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      EXPECT_EQ(pool.threads(), threads);
      for (int repeat = 0; repeat < 5; ++repeat) {
        MixProgram program(101, 12, 5, redoable);
        pool.run(program, {}, repeat % 2 == 0 ? RunEnd::kDrain : RunEnd::kLeaveLate);
        pool.drain(program);
        EXPECT_EQ(program.result(), want) << threads;
      }
    }
  }
}

TEST(ThreadPool, SurvivesThousandsOfTinyStepsWhileOtherThreadsTakeTheCores) {
  std::atomic<bool> quit{false};
  std::vector<std::jthread> busy;
  for (int i = 0; i < 2; ++i) {
    busy.emplace_back([&quit] {
      while (!quit.load(std::memory_order_relaxed)) {
      }
    });
  }
  const int steps = 20000;
  const auto want = expected(steps, 8, 3, true);
  ThreadPool pool(3);
  for (int repeat = 0; repeat < 3; ++repeat) {
    MixProgram program(steps, 8, 3, true);
    pool.run(program, {}, RunEnd::kLeaveLate);
    EXPECT_EQ(program.result(), want);
    pool.drain(program);
    // Each redoable chunk is published once however often it was computed.
    int chunks = 0;
    for (int step = 0; step < steps; ++step) {
      if (program.step_info(step).redoable) chunks += program.step_info(step).chunks;
    }
    EXPECT_EQ(program.published(), chunks);
    EXPECT_GE(program.computed(), program.published());
  }
  quit.store(true);
}

// A thread stalls inside a redoable chunk; the others must finish the run without it.
TEST(ThreadPool, HelpsAThreadThatStalls) {
  struct Program : StepProgram {
    int step_count() const override { return 3; }
    StepInfo step_info(int) const override { return {4, true}; }
    std::size_t scratch_bytes() const override { return sizeof(int); }
    void compute(int step, int chunk, const Worker& worker) override {
      if (worker.index == 1 && !stalled.exchange(true)) {
        while (!release.load()) std::this_thread::yield();
      }
      if (step == 0 && worker.index == 0) {
        while (!stalled.load()) std::this_thread::yield();
      }
      const int value = step * 100 + chunk;
      std::memcpy(worker.scratch, &value, sizeof value);
    }
    void publish(int step, int chunk, const Worker& worker) override {
      std::memcpy(&out[step * 4 + chunk], worker.scratch, sizeof(int));
      ++published;
    }
    std::atomic<bool> stalled{false}, release{false};
    std::atomic<int> published{0};
    int out[12] = {};
  } program;
  ThreadPool pool(2);
  pool.run(program, {}, RunEnd::kLeaveLate);
  EXPECT_FALSE(program.release.load());
  EXPECT_FALSE(pool.drain_for(program, std::chrono::milliseconds(1)));
  EXPECT_EQ(program.published.load(), 12);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(program.out[i], i / 4 * 100 + i % 4);
  program.out[0] = -1;
  program.release.store(true);
  pool.drain(program);
  EXPECT_EQ(program.out[0], -1) << "the late thread wrote a shared output";
  EXPECT_EQ(program.published.load(), 12);
}

struct OneStep : StepProgram {
  int step_count() const override { return 2; }
  StepInfo step_info(int) const override { return {8, redoable}; }
  std::size_t scratch_bytes() const override { return 0; }
  void compute(int, int chunk, const Worker&) override {
    if (chunk == fail_at) throw NotFoundError("chunk 5 fails", "test");
    done.fetch_add(1);
  }
  void publish(int, int, const Worker&) override {}
  int fail_at = -1;
  bool redoable = false;
  std::atomic<int> done{0};
};

TEST(ThreadPool, CarriesExceptionsToTheCallerAndStaysUsable) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const bool redoable : {false, true}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        OneStep program;
        program.redoable = redoable;
        program.fail_at = 5;
        EXPECT_THROW(pool.run(program), NotFoundError);
        program.fail_at = -1;
        program.done = 0;
        pool.run(program);
        EXPECT_GE(program.done.load(), 16);
        if (!redoable) {
          EXPECT_EQ(program.done.load(), 16);
        }
      }
    }
  }
}

TEST(ThreadPool, StopsWhenAsked) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    std::stop_source source;
    struct Program : OneStep {
      int step_count() const override { return 1 << 30; }
      void compute(int step, int, const Worker&) override {
        if (step == 50) source->request_stop();
      }
      std::stop_source* source = nullptr;
    } program;
    program.source = &source;
    EXPECT_THROW(pool.run(program, source.get_token()), CancelledError);
    OneStep next;
    pool.run(next);
    EXPECT_EQ(next.done.load(), 16);
  }
}

TEST(ThreadPool, RefusesNestedRunsAndBadSizes) {
  EXPECT_THROW(ThreadPool(0), InvalidArgumentError);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads), other(1);
    EXPECT_THROW(pool.parallel_for(4, [&](int) { pool.parallel_for(2, [](int) {}); }), InvalidArgumentError);
    EXPECT_THROW(pool.parallel_for(4, [&](int) { other.parallel_for(2, [](int) {}); }), InvalidArgumentError);
    struct TooMany : OneStep {
      StepInfo step_info(int) const override { return {ThreadPool::kMaxChunks + 1, false}; }
    } program;
    EXPECT_THROW(pool.run(program), InvalidArgumentError);
  }
}

TEST(ThreadPool, ParallelForVisitsEachIndexOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const int count : {0, 1, 7, 4096, 10001}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      pool.parallel_for(count, [&](int i) { seen[static_cast<std::size_t>(i)].fetch_add(1); });
      for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
    }
  }
}

TEST(ThreadPool, SerialisesSeveralCallers) {
  ThreadPool pool(2);
  const auto want = expected(60, 6, 4, true);
  std::vector<std::jthread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        MixProgram program(60, 6, 4, true);
        pool.run(program);
        if (program.result() != want) wrong.fetch_add(1);
      }
    });
  }
  callers.clear();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace coreai
