// The order of state accesses. Operations run in any order that data and tokens allow, so two accesses of one state of
// which one writes must hang on one chain of tokens.
#include <fmt/format.h>

#include "ir/verify.h"

namespace coreai::ir {
namespace {

// What a token stands for within one block.
struct Token {
  const Value* handle = nullptr;  // null: a fresh token, good for any state
  std::size_t writes = 0;         // writes of that state which it orders before itself
};

class TokenOrder {
 public:
  explicit TokenOrder(const VerifyScope& scope) : scope_(scope) {}

  void op(const Op& op) {
    switch (op.code) {
      case OpCode::kCreateToken:
        tokens_[op.results[0]] = {};
        return;
      case OpCode::kJoinToken:
        return join(op);
      case OpCode::kReadHandle:
        return access(op, op.operands[1], op.results[1], false);
      case OpCode::kWriteHandle:
        return access(op, op.operands[2], op.results[0], true);
      default:
        // Tokens that pass through regions or calls are not followed: what comes out may stand for any state.
        for (const Value* operand : op.operands) {
          if (operand->type->is_token()) settle(operand);
        }
    }
  }

 private:
  struct State {
    std::size_t writes = 0;
    std::unordered_set<const Value*> open;  // tokens that nothing is ordered behind yet
  };

  void access(const Op& op, const Value* in, const Value* out, bool writes) {
    const Value* handle = op.operands[0];
    State& state = states_[handle];
    const auto known = tokens_.find(in);
    if (known == tokens_.end()) {  // from outside of the block or a call: trusted
      state.open.clear();
    } else {
      const Token& token = known->second;
      if (token.handle != nullptr && token.handle != handle) {
        refuse(scope_, op, "token-state",
               describe_value(scope_, "operand", writes ? 2 : 1, "in_token", in) + " belongs to another state");
      }
      if (token.writes != state.writes) {
        refuse(scope_, op, "token-order",
               describe_value(scope_, "operand", writes ? 2 : 1, "in_token", in) +
                   " does not come after the last write of this state");
      }
    }
    state.open.erase(in);
    if (writes && !state.open.empty()) {
      refuse(scope_, op, "token-order",
             fmt::format("{} does not come after {} other accesses of this state; join their tokens first",
                         describe_value(scope_, "operand", 2, "in_token", in), state.open.size()));
    }
    if (writes) ++state.writes;
    tokens_[out] = {handle, state.writes};
    state.open.insert(out);
  }

  void join(const Op& op) {
    Token joined;
    bool known = true;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const auto found = tokens_.find(op.operands[i]);
      known = known && found != tokens_.end();
      if (found == tokens_.end() || found->second.handle == nullptr) continue;
      if (joined.handle != nullptr && joined.handle != found->second.handle) {
        refuse(scope_, op, "token-state",
               describe_value(scope_, "operand", i, "", op.operands[i]) + " belongs to another state than the others");
      }
      joined.handle = found->second.handle;
      joined.writes = std::max(joined.writes, found->second.writes);
      settle(op.operands[i]);
    }
    if (!known) return;
    tokens_[op.results[0]] = joined;
    if (joined.handle != nullptr) states_[joined.handle].open.insert(op.results[0]);
  }

  void settle(const Value* token) {
    const auto found = tokens_.find(token);
    if (found != tokens_.end() && found->second.handle != nullptr) states_[found->second.handle].open.erase(token);
  }

  const VerifyScope& scope_;
  std::unordered_map<const Value*, Token> tokens_;
  std::unordered_map<const Value*, State> states_;
};

}  // namespace

void verify_token_order(const VerifyScope& scope, const Block& block) {
  TokenOrder order(scope);
  for (const auto& op : block.ops) order.op(*op);
}

}  // namespace coreai::ir
