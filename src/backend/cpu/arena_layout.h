// Where the arena buffers of a call lie: buffers that never live together share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace coreai::cpu {

// The steps that touch a buffer; first < 0: none, it needs no memory.
struct Lifetime {
  int first = -1, last = -1;
};

// Places by falling size, each buffer at the lowest gap left by the placed ones that live with it (greedy by size of
// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020). Not thread-safe.
class ArenaLayout {
 public:
  explicit ArenaLayout(std::vector<Lifetime> lifetimes);

  // One size per buffer, in bytes. A call whose sizes all fit those placed moves nothing, and nothing is allocated.
  void place(std::span<const std::size_t> bytes);

  std::size_t offset(std::size_t buffer) const { return offsets_[buffer]; }
  std::size_t bytes() const { return bytes_; }
  // The largest sum of the sizes placed that live at one step: no layout needs less.
  std::size_t largest_live_bytes() const { return largest_live_bytes_; }

 private:
  bool lives(std::size_t buffer) const { return lifetimes_[buffer].first >= 0; }
  std::size_t lowest_gap(std::size_t buffer) const;
  void sum_live(std::span<const std::size_t> bytes);

  std::vector<Lifetime> lifetimes_;
  std::vector<std::size_t> sizes_, offsets_;  // sizes as placed, rounded up
  std::vector<std::uint32_t> by_size_;        // the buffers that live
  std::vector<std::uint32_t> placed_;         // by rising offset
  std::vector<std::size_t> live_;             // by step
  std::size_t bytes_ = 0, largest_live_bytes_ = 0;
};

}  // namespace coreai::cpu
