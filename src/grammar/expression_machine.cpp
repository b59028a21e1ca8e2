#include "grammar/expression_machine.h"

#include <algorithm>

#include "coreai/base/error.h"
#include "grammar/token_terminals.h"

namespace coreai::grammar {

ExpressionMachine::ExpressionMachine(std::unique_ptr<ExpressionPool> pool, ExprId language, bool names_tokens)
    : pool_(std::move(pool)), names_tokens_(names_tokens) {
  start_ = state_of(language);
  if (start_ == kDead)
    throw InvalidArgumentError("no text belongs to the grammar", "grammar", "its conditions exclude each other");
}

StateId ExpressionMachine::state_of(ExprId e) {
  if (pool_->is_nothing(e)) return kDead;
  return (e << 1) | static_cast<StateId>(pool_->nullable(e));
}

// The mark of tokens is in no text.
StateId ExpressionMachine::find_step(StateId state, std::uint8_t byte) {
  if (names_tokens_ && byte == kTokenMark) return kDead;
  return state_of(pool_->derive(expression(state), byte));
}

void ExpressionMachine::find_row(StateId state, Row& row) {
  const ByteClasses split = pool_->classes(expression(state));
  std::array<StateId, 256> next;
  for (std::size_t i = 0; i < split.representatives.size(); ++i)
    next[i] = state_of(pool_->derive(expression(state), split.representatives[i]));
  for (std::size_t byte = 0; byte < 256; ++byte) row[byte] = next[split.class_of[byte]];
  if (names_tokens_) row[kTokenMark] = kDead;
}

LazyMachine::Parts ExpressionMachine::parts(StateId state) {
  Parts out;
  std::vector<ExprId> others;
  const std::vector<ExprId> choices = pool_->choices(expression(state));
  for (const ExprId choice : choices) {
    if (const auto run = pool_->run(choice))
      out.runs.push_back({*run, state_of(run->rest), state_of(choice)});
    else if (const auto absorbed = pool_->absorbed(choice))
      out.texts.push_back({choice, kDead, state_of(choice), state_of(choice), *absorbed});
    else
      others.push_back(choice);
  }
  if (others.size() != choices.size()) out.others = state_of(pool_->any_of(others));
  return out;
}

StateId ExpressionMachine::find_mask_state(StateId state, std::size_t longest) {
  if (!pool_->counts(expression(state))) return state;
  return state_of(pool_->clamp(expression(state),
                               static_cast<std::uint32_t>(names_tokens_ ? std::max(longest, kTokenBytes) : longest)));
}

bool ExpressionMachine::names_tokens(StateId state) {
  if (!names_tokens_) return false;
  const std::lock_guard lock(mutex_);
  return !pool_->is_nothing(pool_->derive(expression(state), kTokenMark));
}

StateId ExpressionMachine::step_token(StateId state, std::int32_t id) {
  if (!names_tokens_) return kDead;
  const std::lock_guard lock(mutex_);
  return state_of(after_token(*pool_, expression(state), id));
}

void ExpressionMachine::fill_named_tokens(StateId state, std::span<std::uint32_t> mask) {
  if (!names_tokens_) return;
  const std::lock_guard lock(mutex_);
  set_token_bits(*pool_, expression(state), mask);
}

StateId ExpressionMachine::either(StateId a, StateId b) {
  const std::lock_guard lock(mutex_);
  return state_of(pool_->any_of({expression(a), expression(b)}));
}

std::size_t ExpressionMachine::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return pool_->memory_bytes() + row_bytes();
}

}  // namespace coreai::grammar
