#include "backend/cpu/arena_layout.h"

#include <algorithm>
#include <bit>

namespace coreai::cpu {
namespace {

// Whole lines, and at most a sixteenth more: an extent that grows by one with every call is then placed anew rarely.
std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t unit = std::max(kLine, std::bit_floor(bytes) / 16);
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

ArenaLayout::ArenaLayout(std::vector<Lifetime> lifetimes) : lifetimes_(std::move(lifetimes)) {
  sizes_.resize(lifetimes_.size());
  offsets_.resize(lifetimes_.size());
  int steps = 0;
  for (std::size_t i = 0; i < lifetimes_.size(); ++i) {
    if (!lives(i)) continue;
    by_size_.push_back(static_cast<std::uint32_t>(i));
    steps = std::max(steps, lifetimes_[i].last + 1);
  }
  placed_.reserve(by_size_.size());
  live_.resize(static_cast<std::size_t>(steps));
}

void ArenaLayout::place(std::span<const std::size_t> bytes) {
  if (std::ranges::all_of(by_size_, [&](std::uint32_t i) { return bytes[i] <= sizes_[i]; })) return;
  for (std::uint32_t i : by_size_) sizes_[i] = rounded(bytes[i]);
  // By index where sizes are equal: std::stable_sort would allocate.
  std::ranges::sort(by_size_, [&](std::uint32_t a, std::uint32_t b) {
    return sizes_[a] != sizes_[b] ? sizes_[a] > sizes_[b] : a < b;
  });
  placed_.clear();
  bytes_ = 0;
  for (std::uint32_t i : by_size_) {
    offsets_[i] = lowest_gap(i);
    bytes_ = std::max(bytes_, offsets_[i] + sizes_[i]);
    const auto at = std::ranges::upper_bound(placed_, offsets_[i], {}, [&](std::uint32_t p) { return offsets_[p]; });
    placed_.insert(at, i);
  }
  sum_live(bytes);
}

std::size_t ArenaLayout::lowest_gap(std::size_t buffer) const {
  const Lifetime life = lifetimes_[buffer];
  std::size_t begin = 0;
  for (std::uint32_t p : placed_) {
    if (lifetimes_[p].first > life.last || lifetimes_[p].last < life.first) continue;
    if (offsets_[p] >= begin + sizes_[buffer]) break;
    begin = std::max(begin, offsets_[p] + sizes_[p]);
  }
  return begin;
}

void ArenaLayout::sum_live(std::span<const std::size_t> bytes) {
  std::ranges::fill(live_, 0);
  for (std::uint32_t i : by_size_) {
    for (int step = lifetimes_[i].first; step <= lifetimes_[i].last; ++step)
      live_[static_cast<std::size_t>(step)] += bytes[i];
  }
  largest_live_bytes_ = live_.empty() ? 0 : std::ranges::max(live_);
}

}  // namespace coreai::cpu
