// How much of its fair share the thread pool keeps: a token of 250 steps of 8 us, quiet and with busy processes.
// Prints one line of JSON per figure; exits 1 when a result is wrong.
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "coreai/base/thread_pool.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSteps = 250;
constexpr double kStepUs = 8.0;

// Work that takes core time, not wall time: a descheduled thread makes no progress.
std::uint64_t spin(std::uint64_t seed, std::int64_t rounds) {
  for (std::int64_t i = 0; i < rounds; ++i) seed = seed * 6364136223846793005u + 1442695040888963407u;
  return seed;
}

class Token final : public coreai::StepProgram {
 public:
  Token(int chunks, std::int64_t rounds) : chunks_(chunks), rounds_(rounds), out_(kSteps * chunks) {}
  int step_count() const override { return kSteps; }
  coreai::StepInfo step_info(int) const override { return {chunks_, true}; }
  std::size_t scratch_bytes() const override { return 64; }
  void compute(int step, int chunk, const coreai::Worker& worker) override {
    const std::uint64_t value = spin(static_cast<std::uint64_t>(step * chunks_ + chunk), rounds_);
    std::memcpy(worker.scratch, &value, sizeof value);
  }
  void publish(int step, int chunk, const coreai::Worker& worker) override {
    std::memcpy(&out_[static_cast<std::size_t>(step * chunks_ + chunk)], worker.scratch, sizeof(std::uint64_t));
  }
  bool right() {
    bool ok = true;
    for (std::size_t i = 0; i < out_.size(); i += 97) ok = ok && out_[i] == spin(i, rounds_);
    std::fill(out_.begin(), out_.end(), 0);
    return ok;
  }

 private:
  int chunks_;
  std::int64_t rounds_;
  std::vector<std::uint64_t> out_;
};

class BusyProcess {
 public:
  explicit BusyProcess(int core) : pid_(fork()) {
    if (pid_ != 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(core), &set);
    sched_setaffinity(0, sizeof set, &set);
    volatile std::uint64_t sink = 1;
    for (;;) sink = spin(sink, 1000);
  }
  ~BusyProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  BusyProcess(const BusyProcess&) = delete;
  BusyProcess& operator=(const BusyProcess&) = delete;

 private:
  pid_t pid_;
};

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Rounds of spin() in a microsecond; the best of several tries.
double rounds_per_us() {
  double best = 0;
  volatile std::uint64_t sink = 1;
  for (int i = 0; i < 20; ++i) {
    const auto start = Clock::now();
    sink = spin(sink, 100000);
    best = std::max(best, 100000 / (seconds_since(start) * 1e6));
  }
  return best;
}

bool measure(int threads, int chunks, int busy, double rounds_us, double seconds) {
  coreai::ThreadPool pool(threads);
  Token token(chunks, static_cast<std::int64_t>(rounds_us * kStepUs * threads / chunks));
  std::vector<BusyProcess*> processes;
  for (int i = 0; i < busy; ++i) processes.push_back(new BusyProcess(i));
  bool ok = true;
  for (int i = 0; i < 20; ++i) pool.run(token, {}, coreai::RunEnd::kLeaveLate);
  std::vector<double> times;
  double cpu = 0;
  for (const auto start = Clock::now(); seconds_since(start) < seconds;) {
    const double cpu_before = cpu_seconds();
    const auto before = Clock::now();
    pool.run(token, {}, coreai::RunEnd::kLeaveLate);
    times.push_back(seconds_since(before));
    cpu += cpu_seconds() - cpu_before;
    ok = ok && token.right();
  }
  pool.drain(token);
  for (BusyProcess* process : processes) delete process;
  double sum = 0;
  for (const double t : times) sum += t;
  const double ideal = kSteps * kStepUs * 1e-6;
  // What part of the core time that this process got went into the work itself: holds on a machine with other load too.
  const double efficiency = ideal * threads * static_cast<double>(times.size()) / cpu;
  const double share = ideal * static_cast<double>(times.size()) / sum;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  // A busy process takes half of its core; two threads on the rest share it: 2/3 with one of two cores taken.
  const double cores = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  const double fair = busy == 0 ? 1.0 : std::min(1.0, cores / (threads + busy));
  fmt::print(
      "{{\"benchmark\":\"pool\",\"threads\":{},\"chunks\":{},\"busy\":{},\"share_of_ideal\":{:.3f},\"fair_share\":"
      "{:.3f},\"cpu_efficiency\":{:.3f},\"share_of_fair\":{:.3f},\"median_ms\":{:.3f},\"correct\":{}}}\n",
      threads, chunks, busy, share, fair, efficiency, share / fair, times[times.size() / 2] * 1e3, ok);
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2.0;
  const double rounds_us = rounds_per_us();
  bool ok = true;
  for (const int threads : {1, 2}) {
    for (const int chunks : {4, 8, 16}) {
      for (const int busy : {0, 1, 2}) {
        if (threads == 1 && chunks != 8) continue;
        ok = measure(threads, chunks, busy, rounds_us, seconds) && ok;
      }
    }
  }
  return ok ? 0 : 1;
}
