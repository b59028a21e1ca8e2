#include "common/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

namespace coreai::tools {
namespace {

constexpr long kPollNanoseconds = 100'000'000;  // how long the end of the program may wait for the watcher
constexpr int kSignalExit = 128;                // shells report "ended by signal n" as 128 + n

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

InterruptWatcher::InterruptWatcher() {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::jthread([this](const std::stop_token& finished) { watch(finished); });
}

InterruptWatcher::~InterruptWatcher() {
  thread_.request_stop();
  pthread_kill(thread_.native_handle(), SIGTERM);  // wakes it at once
}

std::stop_token InterruptWatcher::arm() {
  armed_ = true;
  return stop_.get_token();
}

void InterruptWatcher::watch(const std::stop_token& finished) {
  const sigset_t set = watched_signals();
  const timespec poll{0, kPollNanoseconds};
  while (!finished.stop_requested()) {
    const int signal = sigtimedwait(&set, nullptr, &poll);
    if (signal < 0 || finished.stop_requested()) continue;
    if (!armed_ || !stop_.request_stop()) ::_exit(kSignalExit + signal);
  }
}

}  // namespace coreai::tools
