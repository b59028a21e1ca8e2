// A regular language as a machine: states are derivatives, transitions are kept in rows of 256.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <memory>
#include <mutex>

#include "grammar/expression.h"
#include "grammar/machine.h"

namespace coreai::grammar {

class ExpressionMachine final : public Machine {
 public:
  // Throws InvalidArgumentError where `language` has no string.
  ExpressionMachine(std::unique_ptr<ExpressionPool> pool, ExprId language);
  ~ExpressionMachine() override;

  StateId start() const override { return start_; }
  StateId step(StateId state, std::uint8_t byte) override;
  StateId mask_state(StateId state, std::size_t longest) override;
  void fill(StateId state, const TokenTrie& trie, std::span<std::uint32_t> mask) override;
  std::optional<std::uint8_t> forced_byte(StateId state) override;
  std::size_t memory_bytes() const override;

 private:
  using Row = std::array<StateId, 256>;
  // Chunk k holds the rows of expressions 2^(k+8) - 256 and up: pointers never move, so that readers need no lock.
  static constexpr int kChunks = 20;
  static constexpr std::size_t kFirstChunk = 256;
  struct Place {
    int chunk;
    std::size_t index;
  };
  static Place place(ExprId e) {
    const std::size_t at = e + kFirstChunk;
    const int chunk = static_cast<int>(std::bit_width(at)) - static_cast<int>(std::bit_width(kFirstChunk));
    return {chunk, at - (kFirstChunk << chunk)};
  }
  static ExprId expression(StateId state) { return state >> 1; }
  const Row* find_row(StateId state) const {
    const Place at = place(expression(state));
    const auto* chunk = chunks_[static_cast<std::size_t>(at.chunk)].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk[at.index].load(std::memory_order_acquire);
  }
  const Row& row(StateId state);
  StateId state_of(ExprId e);  // under the lock

  mutable std::mutex mutex_;  // of pool_ and for new rows
  std::unique_ptr<ExpressionPool> pool_;
  std::array<std::atomic<std::atomic<Row*>*>, kChunks> chunks_{};
  std::atomic<std::size_t> row_count_ = 0;
  StateId start_ = kDead;
};

}  // namespace coreai::grammar
