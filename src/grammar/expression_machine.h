// A regular language as a machine: states are derivatives.
#pragma once

#include <memory>

#include "grammar/expression.h"
#include "grammar/lazy_machine.h"

namespace coreai::grammar {

class ExpressionMachine final : public LazyMachine {
 public:
  // Throws InvalidArgumentError where `language` has no string.
  ExpressionMachine(std::unique_ptr<ExpressionPool> pool, ExprId language);

  StateId start() const override { return start_; }
  std::size_t memory_bytes() const override;

 private:
  StateId find_step(StateId state, std::uint8_t byte) override;
  void find_row(StateId state, Row& row) override;
  StateId find_mask_state(StateId state, std::size_t longest) override;
  ByteSet live_bytes(StateId state) override { return pool_->first_bytes(expression(state)); }
  Parts parts(StateId state) override;
  ExpressionPool& pool() override { return *pool_; }
  static ExprId expression(StateId state) { return state >> 1; }
  StateId state_of(ExprId e);

  std::unique_ptr<ExpressionPool> pool_;
  StateId start_ = kDead;
};

}  // namespace coreai::grammar
