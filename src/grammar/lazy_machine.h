// States whose transitions are found once and then read without a lock, in rows of 256.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <mutex>

#include "grammar/machine.h"

namespace coreai::grammar {

class LazyMachine : public Machine {
 public:
  ~LazyMachine() override;

  // A single step makes no row: a counted repetition passes through many states once.
  StateId step(StateId state, std::uint8_t byte) final;
  void successors(StateId state, std::array<StateId, 256>& next) final { next = row(state); }
  void fill(StateId state, const TokenTrie& trie, std::span<std::uint32_t> mask) final;
  std::optional<std::uint8_t> forced_byte(StateId state) final;

 protected:
  using Row = std::array<StateId, 256>;
  // Both under the lock.
  virtual StateId find_step(StateId state, std::uint8_t byte) = 0;
  virtual void find_row(StateId state, Row& row) = 0;

  mutable std::mutex mutex_;
  std::size_t row_bytes() const;

 private:
  // Chunk k holds the rows of numbers 2^(k+8) - 256 and up: pointers never move, so that readers need no lock.
  static constexpr int kChunks = 23;
  static constexpr std::size_t kFirstChunk = 256;
  struct Place {
    std::size_t chunk, index;
  };
  static Place place(StateId state) {
    const std::size_t at = (state >> 1) + kFirstChunk;
    const auto chunk = static_cast<std::size_t>(std::bit_width(at) - std::bit_width(kFirstChunk));
    return {chunk, at - (kFirstChunk << chunk)};
  }
  const Row* known_row(StateId state) const {
    const Place at = place(state);
    const auto* chunk = chunks_[at.chunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk[at.index].load(std::memory_order_acquire);
  }
  const Row& row(StateId state);

  std::array<std::atomic<std::atomic<Row*>*>, kChunks> chunks_{};
  std::atomic<std::size_t> row_count_ = 0;
};

}  // namespace coreai::grammar
