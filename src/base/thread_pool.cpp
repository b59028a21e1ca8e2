#include "coreai/base/thread_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "coreai/base/error.h"

#if defined(__SANITIZE_THREAD__)
#define COREAI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COREAI_TSAN 1
#endif
#endif
#if defined(COREAI_TSAN)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
#endif

namespace coreai {
namespace {

// The ticket: step number (global over all runs) above, next chunk of that step in the low 16 bits.
constexpr int kChunkBits = 16;
constexpr std::uint64_t kChunkMask = (std::uint64_t{1} << kChunkBits) - 1;
static_assert(ThreadPool::kMaxChunks <= static_cast<int>(kChunkMask));

// A chunk's state is its step number times 4 plus a phase; anything below the current step's kPublishing is open.
constexpr std::uint64_t kPublishing = 1, kDone = 2;
constexpr std::uint64_t state_of(std::uint64_t sequence, std::uint64_t phase) {
  return sequence << 2 | phase;
}

// Shortest wait before a thread recomputes a chunk that another one holds.
constexpr std::int64_t kHelpAfterNs = 3'000;
// A wait that helping cannot end (a chunk that must not be redone) gives the core away from here on.
constexpr std::int64_t kYieldAfterNs = 100'000;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// How long an idle thread looks for the next run before it sleeps.
constexpr std::int64_t kIdleSpinNs = 50'000;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// A clock that costs a few ns: the time-stamp counter where there is one. Only for how long to wait.
class Clock {
 public:
  static std::int64_t ticks() {
#if defined(__x86_64__)
    return static_cast<std::int64_t>(__rdtsc());
#else
    return std::chrono::steady_clock::now().time_since_epoch().count();
#endif
  }
  static std::int64_t from_ns(std::int64_t ns) {
    static const double ticks_per_ns = measure();
    return static_cast<std::int64_t>(static_cast<double>(ns) * ticks_per_ns);
  }

 private:
  static double measure() {
    using Steady = std::chrono::steady_clock;
    const auto start = Steady::now();
    const std::int64_t first = ticks();
    while (Steady::now() - start < std::chrono::microseconds(50)) relax();
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Steady::now() - start).count();
    const double rate = static_cast<double>(ticks() - first) / static_cast<double>(ns);
    return rate > 0.01 && rate < 100.0 ? rate : 1.0;
  }
};

void sleep_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t value) {
#if defined(__linux__)
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
#else
  word.wait(value);
#endif
}
void wake_all(std::atomic<std::uint32_t>& word) {
#if defined(__linux__)
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
#else
  word.notify_all();
#endif
}

class Scratch {
 public:
  ~Scratch() { release(); }
  void reserve(std::size_t bytes) {
    if (bytes <= capacity_) return;
    release();
    data_ = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64}));
    capacity_ = bytes;
  }
  std::byte* data() const { return data_; }
  std::size_t capacity() const { return capacity_; }

 private:
  void release() {
    if (data_ != nullptr) ::operator delete(data_, std::align_val_t{64});
    data_ = nullptr;
    capacity_ = 0;
  }
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
};

// One thread's own line of state.
struct alignas(64) Slot {
  int index = 0;
  std::atomic<const StepProgram*> inside{nullptr};  // what the thread may be reading: drain() waits for it
  std::int64_t chunk_ticks = 0;                     // duration of its latest chunk
  Scratch scratch;

  Worker worker() const { return {index, scratch.data(), scratch.capacity()}; }
};

thread_local bool inside_chunk = false;

// Late computations read what others overwrite, by design, and are thrown away: not a race worth a report.
void compute_redoable(StepProgram& program, int step, int chunk, const Worker& worker) {
#if defined(COREAI_TSAN)
  struct Ignore {
    Ignore() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
    ~Ignore() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
  } ignore;
#endif
  program.compute(step, chunk, worker);
}

int checked_chunks(const StepInfo& info, int step) {
  if (info.chunks < 0 || info.chunks > ThreadPool::kMaxChunks) {
    throw InvalidArgumentError(fmt::format("step {} has {} chunks", step, info.chunks), "ThreadPool::run",
                               fmt::format("cut a step into 0 to {} chunks", ThreadPool::kMaxChunks));
  }
  return info.chunks;
}

}  // namespace

class ThreadPool::Impl {
 public:
  explicit Impl(int threads);
  ~Impl() { shut_down(); }

  int threads() const { return static_cast<int>(slots_.size()); }
  void run(StepProgram& program, const std::stop_token& stop, RunEnd end);
  bool drain_until(const StepProgram& program, std::int64_t end);  // in ticks

 private:
  // One run as a thread sees it, copied when it enters.
  struct Run {
    StepProgram* program = nullptr;
    std::uint64_t first = 0;  // step number of step 0
    std::uint64_t steps = 0;
    std::uint64_t end() const { return first + steps; }
  };

  void run_alone(StepProgram& program, const std::stop_token& stop);
  void thread_main(Slot& slot);
  bool enter(Slot& slot, std::uint32_t epoch, Run& run);
  void work(const Run& run, Slot& slot, const std::stop_token* stop);
  void do_chunk(const Run& run, std::uint64_t sequence, int chunk, bool redoable, Slot& slot);
  void wait_for_step(const Run& run, std::uint64_t sequence, const StepInfo& info, Slot& slot);
  bool help(const Run& run, std::uint64_t sequence, int first, int chunks, Slot& slot);
  bool end_early(const Run& run, std::uint64_t sequence);
  bool end_whole_run(const Run& run);
  void fail(const Run& run, std::uint64_t sequence, std::exception_ptr error);
  void shut_down();

  std::uint64_t sequence_now() const { return ticket_.load(std::memory_order_acquire) >> kChunkBits; }

  alignas(64) std::atomic<std::uint64_t> ticket_{std::uint64_t{1} << kChunkBits};
  alignas(64) std::array<std::atomic<std::uint64_t>, kMaxChunks> states_{};
  // Odd while a run is on. Sleeping threads wait on it.
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> quit_{false};
  // The current run; valid when epoch_ is the same odd number before and after reading.
  std::atomic<StepProgram*> program_{nullptr};
  std::atomic<std::uint64_t> first_{0}, steps_{0};

  std::mutex run_mutex_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::int64_t help_after_ = 0, yield_after_ = 0, idle_spin_ = 0;  // in ticks
  std::vector<Slot> slots_;
  std::vector<std::thread> workers_;
};

ThreadPool::Impl::Impl(int threads)
    : help_after_(Clock::from_ns(kHelpAfterNs)),
      yield_after_(Clock::from_ns(kYieldAfterNs)),
      idle_spin_(Clock::from_ns(kIdleSpinNs)),
      slots_(static_cast<std::size_t>(threads)) {
  for (int i = 0; i < threads; ++i) slots_[static_cast<std::size_t>(i)].index = i;
  try {
    workers_.reserve(slots_.size() - 1);
    for (std::size_t i = 1; i < slots_.size(); ++i) workers_.emplace_back([this, i] { thread_main(slots_[i]); });
  } catch (...) {
    shut_down();
    throw;
  }
}

void ThreadPool::Impl::shut_down() {
  quit_.store(true);
  epoch_.fetch_add(2);
  wake_all(epoch_);
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::Impl::run_alone(StepProgram& program, const std::stop_token& stop) {
  Slot& slot = slots_[0];
  slot.scratch.reserve(program.scratch_bytes());
  const Worker worker = slot.worker();
  const int steps = program.step_count();
  for (int step = 0; step < steps; ++step) {
    const StepInfo info = program.step_info(step);
    const int chunks = checked_chunks(info, step);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (stop.stop_requested()) throw CancelledError("the run was cancelled", fmt::format("step {}", step));
      program.compute(step, chunk, worker);
      if (info.redoable) program.publish(step, chunk, worker);
    }
  }
}

void ThreadPool::Impl::run(StepProgram& program, const std::stop_token& stop, RunEnd end) {
  if (inside_chunk) {
    throw InvalidArgumentError("a run was started from inside a chunk of a run", "ThreadPool::run",
                               "make the inner work steps of the outer program");
  }
  const std::lock_guard lock(run_mutex_);
  struct Inside {
    Inside() { inside_chunk = true; }
    ~Inside() { inside_chunk = false; }
  } inside;
  if (slots_.size() == 1) return run_alone(program, stop);

  Run run{&program, sequence_now(), static_cast<std::uint64_t>(std::max(program.step_count(), 0))};
  slots_[0].scratch.reserve(program.scratch_bytes());
  program_.store(run.program, std::memory_order_release);
  first_.store(run.first, std::memory_order_release);
  steps_.store(run.steps, std::memory_order_release);
  epoch_.fetch_add(1);
  if (sleepers_.load() > 0) wake_all(epoch_);

  work(run, slots_[0], &stop);

  epoch_.fetch_add(1);
  const bool cancelled = stop.stop_requested() && sequence_now() == run.end() + 1;
  std::exception_ptr error;
  {
    const std::lock_guard error_lock(error_mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (end == RunEnd::kDrain || cancelled || error) drain_until(program, kNever);
  if (!error) {
    // A chunk that failed while the pool was drained.
    const std::lock_guard error_lock(error_mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error) std::rethrow_exception(error);
  if (cancelled) throw CancelledError("the run was cancelled", "ThreadPool::run");
}

bool ThreadPool::Impl::drain_until(const StepProgram& program, std::int64_t end) {
  const std::int64_t start = Clock::ticks();
  for (const Slot& slot : slots_) {
    while (slot.inside.load() == &program) {
      relax();
      const std::int64_t now = Clock::ticks();
      if (now > end) return false;
      if (now - start > yield_after_) std::this_thread::yield();
    }
  }
  return true;
}

void ThreadPool::Impl::thread_main(Slot& slot) {
  inside_chunk = true;
  std::uint32_t finished = 0;
  for (;;) {
    const std::uint32_t epoch = epoch_.load();
    if (quit_.load()) return;
    if ((epoch & 1) != 0 && epoch != finished) {
      Run run;
      if (enter(slot, epoch, run)) {
        work(run, slot, nullptr);
        slot.inside.store(nullptr);
        finished = epoch;
      }
      continue;
    }
    const std::int64_t start = Clock::ticks();
    while (epoch_.load() == epoch && Clock::ticks() - start < idle_spin_) relax();
    if (epoch_.load() != epoch) continue;
    sleepers_.fetch_add(1);
    if (epoch_.load() == epoch) sleep_while_equal(epoch_, epoch);
    sleepers_.fetch_sub(1);
  }
}

// Announces what this thread will read, then makes sure that the run was still on: so drain() misses nobody.
bool ThreadPool::Impl::enter(Slot& slot, std::uint32_t epoch, Run& run) {
  run.program = program_.load(std::memory_order_acquire);
  run.first = first_.load(std::memory_order_acquire);
  run.steps = steps_.load(std::memory_order_acquire);
  slot.inside.store(run.program);
  if (epoch_.load() != epoch) {
    slot.inside.store(nullptr);
    return false;
  }
  try {
    slot.scratch.reserve(run.program->scratch_bytes());
  } catch (...) {
    fail(run, sequence_now(), std::current_exception());
  }
  return true;
}

void ThreadPool::Impl::work(const Run& run, Slot& slot, const std::stop_token* stop) {
  for (;;) {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    const std::uint64_t sequence = ticket >> kChunkBits;
    if (sequence >= run.end()) return;
    if (stop != nullptr && stop->stop_requested() && end_whole_run(run)) return;
    const int step = static_cast<int>(sequence - run.first);
    StepInfo info;
    try {
      info = run.program->step_info(step);
      checked_chunks(info, step);
    } catch (...) {
      fail(run, sequence, std::current_exception());
      continue;
    }
    const int chunk = static_cast<int>(ticket & kChunkMask);
    if (chunk >= info.chunks) {
      wait_for_step(run, sequence, info, slot);
    } else if (ticket_.compare_exchange_strong(ticket, ticket + 1, std::memory_order_acq_rel)) {
      do_chunk(run, sequence, chunk, info.redoable, slot);
    }
  }
}

void ThreadPool::Impl::do_chunk(const Run& run, std::uint64_t sequence, int chunk, bool redoable, Slot& slot) {
  const int step = static_cast<int>(sequence - run.first);
  const Worker worker = slot.worker();
  const std::int64_t start = Clock::ticks();
  std::exception_ptr error;
  try {
    if (redoable) {
      compute_redoable(*run.program, step, chunk, worker);
    } else {
      run.program->compute(step, chunk, worker);
    }
  } catch (...) {
    error = std::current_exception();
  }
  slot.chunk_ticks = Clock::ticks() - start;

  std::atomic<std::uint64_t>& state = states_[static_cast<std::size_t>(chunk)];
  if (redoable) {
    std::uint64_t seen = state.load(std::memory_order_acquire);
    do {
      if (seen >= state_of(sequence, kPublishing)) return;  // another thread was first, or the step is long over
    } while (!state.compare_exchange_weak(seen, state_of(sequence, kPublishing), std::memory_order_acq_rel));
  }
  // A failed chunk is never done, so that its step stays the current one until fail() ends the run.
  if (error) return fail(run, sequence, error);
  if (redoable) run.program->publish(step, chunk, worker);
  state.store(state_of(sequence, kDone), std::memory_order_release);
}

void ThreadPool::Impl::wait_for_step(const Run& run, std::uint64_t sequence, const StepInfo& info, Slot& slot) {
  // A chunk still computed was taken before this thread ran out of chunks, so a thread that has its core needs about
  // one chunk's time more.
  const std::int64_t patience = std::max(help_after_, slot.chunk_ticks + slot.chunk_ticks / 4);
  std::int64_t start = 0;
  int first = 0;
  for (int spins = 0;; ++spins) {
    while (first < info.chunks &&
           states_[static_cast<std::size_t>(first)].load(std::memory_order_acquire) >= state_of(sequence, kDone)) {
      ++first;
    }
    if (first == info.chunks) {
      std::uint64_t expected = sequence << kChunkBits | static_cast<std::uint64_t>(info.chunks);
      ticket_.compare_exchange_strong(expected, (sequence + 1) << kChunkBits, std::memory_order_acq_rel);
      return;
    }
    if (sequence_now() != sequence) return;
    relax();
    const std::int64_t now = Clock::ticks();
    if (spins == 0) start = now;
    if (now - start < patience) continue;
    if (info.redoable && help(run, sequence, first, info.chunks, slot)) continue;
    if (now - start > yield_after_) std::this_thread::yield();
  }
}

// Recomputes an open chunk of the step; each thread starts to look at another place. False when none is open.
bool ThreadPool::Impl::help(const Run& run, std::uint64_t sequence, int first, int chunks, Slot& slot) {
  const int count = chunks - first;
  const int offset = slot.index * count / static_cast<int>(slots_.size());
  for (int k = 0; k < count; ++k) {
    const int chunk = first + (offset + k) % count;
    if (states_[static_cast<std::size_t>(chunk)].load(std::memory_order_acquire) < state_of(sequence, kPublishing)) {
      do_chunk(run, sequence, chunk, true, slot);
      return true;
    }
  }
  return false;
}

// Moves the ticket from step `sequence` past the run's end.
bool ThreadPool::Impl::end_early(const Run& run, std::uint64_t sequence) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (ticket >> kChunkBits == sequence) {
    if (ticket_.compare_exchange_weak(ticket, (run.end() + 1) << kChunkBits, std::memory_order_acq_rel)) return true;
  }
  return false;
}

bool ThreadPool::Impl::end_whole_run(const Run& run) {
  for (std::uint64_t sequence = sequence_now(); sequence < run.end(); sequence = sequence_now()) {
    if (end_early(run, sequence)) return true;
  }
  return false;
}

void ThreadPool::Impl::fail(const Run& run, std::uint64_t sequence, std::exception_ptr error) {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::move(error);
  }
  if (sequence < run.end()) end_early(run, sequence);
}

ThreadPool::ThreadPool(int threads) {
  if (threads < 1 || threads > 1024) {
    throw InvalidArgumentError(fmt::format("a pool of {} threads was asked for", threads), "ThreadPool",
                               "ask for 1 to 1024 threads");
  }
  impl_ = std::make_unique<Impl>(threads);
}
ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const {
  return impl_->threads();
}
void ThreadPool::run(StepProgram& program, std::stop_token stop, RunEnd end) {
  impl_->run(program, stop, end);
}
void ThreadPool::drain(const StepProgram& program) {
  impl_->drain_until(program, kNever);
}
bool ThreadPool::drain_for(const StepProgram& program, std::chrono::nanoseconds time) {
  return impl_->drain_until(program, Clock::ticks() + Clock::from_ns(time.count()));
}

}  // namespace coreai
