// Ctrl-C as a stop token.
#pragma once

#include <atomic>
#include <stop_token>
#include <thread>

namespace coreai::tools {

// From construction on SIGINT and SIGTERM are taken by a thread of its own: before arm() they end the program with the
// shell's code for it, afterwards the first one requests a stop and a second one ends the program.
// Make it before any other thread: threads inherit the blocked signals.
class InterruptWatcher {
 public:
  InterruptWatcher();
  ~InterruptWatcher();
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;

  std::stop_token arm();

 private:
  void watch(const std::stop_token& finished);
  std::atomic<bool> armed_ = false;
  std::stop_source stop_;
  std::jthread thread_;
};

}  // namespace coreai::tools
