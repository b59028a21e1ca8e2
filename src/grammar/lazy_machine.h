// States whose transitions are found once and then read without a lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "grammar/byte_set.h"
#include "grammar/expression.h"
#include "grammar/machine.h"
#include "grammar/token_slice.h"

namespace coreai::grammar {

class LazyMachine : public Machine {
 public:
  LazyMachine();
  ~LazyMachine() override;

  StateId step(StateId state, std::uint8_t byte) final;
  void successors(StateId state, std::array<StateId, 256>& next) final;
  StateId mask_state(StateId state, std::size_t longest) final;
  void fill(StateId state, const TokenizerInfo& tokenizer, std::span<std::uint32_t> mask) final;
  std::optional<std::uint8_t> forced_byte(StateId state) final;

 protected:
  using Row = std::array<StateId, 256>;
  // A run of a state, with the state behind it and that of the whole run.
  struct StateRun {
    Run run;
    StateId rest, whole;
  };
  // A text, with the state behind it, that of the text alone, and that of both. Nothing behind it begins as the text
  // goes on. `absorbed`: units that leave it alive; none where `max` is 0.
  struct StateText {
    ExprId text;
    StateId rest, alone, whole;
    ExpressionPool::Absorbed absorbed{kNothing, 0};
  };
  struct Parts {
    std::vector<StateRun> runs{};
    std::vector<StateText> texts{};
    bool is_whole() const { return runs.empty() && texts.empty(); }
    // Worth leaving the walk for: what else there is takes few tokens.
    bool is_simple() const {
      return !is_whole() && std::ranges::none_of(texts, [](const StateText& text) { return text.absorbed.max != 0; });
    }
    StateId others = kDead;  // unused where it is whole: then the state itself
  };
  // All under the lock.
  virtual StateId find_step(StateId state, std::uint8_t byte) = 0;
  virtual void find_row(StateId state, Row& row) = 0;
  virtual StateId find_mask_state(StateId state, std::size_t longest) = 0;
  // Bytes beside these are dead.
  virtual ByteSet live_bytes(StateId state) = 0;
  // States whose tokens together are those of `state`.
  virtual Parts parts(StateId state) = 0;
  virtual ExpressionPool& pool() = 0;

  mutable std::mutex mutex_;
  std::size_t row_bytes() const;  // rows, steps and parts; under the lock

 private:
  class Walker;

  // Chunk k holds the rows of numbers 2^(k+8) - 256 and up: pointers never move, so that readers need no lock.
  static constexpr int kChunks = 23;
  static constexpr std::size_t kFirstChunk = 256;
  static constexpr std::size_t kMaxRows = 16'384;  // 16 MB; states beyond them are stepped one byte at a time
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
  const Row* make_row(StateId state);
  StateId step_locked(StateId state, std::uint8_t byte);

  // Single steps, and masks' states, by a hash of what they start from: key and result in one word, newest wins.
  static constexpr std::size_t kSteps = 4096, kMaskStates = 1024;
  static constexpr StateId kMaxPacked = 1u << 28;
  struct Remembered {
    std::array<std::atomic<std::uint64_t>, kSteps> steps{};
    std::array<std::atomic<std::uint64_t>, kMaskStates> mask_states{};
  };
  std::optional<StateId> known_step(StateId state, std::uint8_t byte) const;
  const Parts& known_parts(StateId state);

  std::array<std::atomic<std::atomic<Row*>*>, kChunks> chunks_{};
  std::atomic<std::size_t> row_count_ = 0;
  std::unique_ptr<Remembered> remembered_;
  // Under the lock: what parts() said, by the number of the state.
  std::vector<std::uint32_t> parts_of_;  // 0: not asked yet; else 1 + the index in parts_
  std::deque<Parts> parts_;              // the first: of all states without either
};

}  // namespace coreai::grammar
