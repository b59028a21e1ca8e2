// A grammar as a deterministic automaton over bytes whose states are made on demand
// (docs/decisions/0003-grammar-machine.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "coreai/grammar/tokenizer_info.h"

namespace coreai::grammar {

// 0 is dead; every other state has a completion. The lowest bit says that the text may end here. Equal numbers of one
// machine mean equal continuations.
using StateId = std::uint32_t;
constexpr StateId kDead = 0;
constexpr bool accepts(StateId state) {
  return (state & 1u) != 0;
}

// Safe to use from several threads at once. Every function throws UnsupportedError when the work budget is used up.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual StateId start() const = 0;
  virtual StateId step(StateId state, std::uint8_t byte) = 0;
  // All steps of a state at once, by byte.
  virtual void successors(StateId state, std::array<StateId, 256>& next) = 0;
  // A state that takes the same texts of at most `longest` bytes and may end after the same of them: states that differ
  // only in what lies further share it, and with it their mask.
  virtual StateId mask_state(StateId state, std::size_t longest) = 0;
  // Sets the bits of all tokens that `state` takes; the others are clear before. `state` is one of mask_state().
  virtual void fill(StateId state, const TokenizerInfo& tokenizer, std::span<std::uint32_t> mask) = 0;
  // The only byte that can follow, if there is one and the text may not end.
  virtual std::optional<std::uint8_t> forced_byte(StateId state) = 0;
  virtual std::size_t memory_bytes() const = 0;

  // Tokens that a grammar names by themselves (grammar/token_terminals.h): whether any may come, what follows token
  // `id` taken so, the bits of all that may come, and the state of what two live ones take.
  virtual bool names_tokens(StateId) { return false; }
  virtual StateId step_token(StateId, std::int32_t) { return kDead; }
  virtual void fill_named_tokens(StateId, std::span<std::uint32_t>) {}
  virtual StateId either(StateId a, StateId) { return a; }
};

}  // namespace coreai::grammar
