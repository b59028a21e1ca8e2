#include "compiler/composite_bodies.h"

#include <algorithm>
#include <array>

#include "coreai/asset/asset.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

bool is_product(const ir::Op& op) {
  return op.code == OpCode::kMul || op.code == OpCode::kBroadcastingMul;
}

// The one element of a float constant.
std::optional<float> scalar_of(const ir::Value* v) {
  if (!v->op || v->op->code != OpCode::kConstant || !is_float(v->type->dtype())) return std::nullopt;
  if (!v->type->shape().is_static() || v->type->shape().element_count() != 1) return std::nullopt;
  std::array<double, 1> element{};
  read_as_f64(ir::constant_value(*v->op), element);
  return static_cast<float>(element[0]);
}

// What becomes of an argument before the loop over tokens: x rsqrt(sum x^2 + eps), casts, a factor, exp.
struct Prepared {
  std::optional<float> eps;
  float scale = 1;
  bool exponential = false;
};

class Follower {
 public:
  explicit Follower(const ir::Block& block) : block_(block) {}

  std::optional<Prepared> follow(const ir::Value* x) const {
    Prepared out;
    while (true) {
      const std::vector<const ir::Op*> users = users_of(x);
      if (users.empty()) return std::nullopt;
      const bool only_parts = std::ranges::all_of(
          users, [](const ir::Op* op) { return op->code == OpCode::kSlice || op->code == OpCode::kGatherAlongAxis; });
      if (only_parts) {  // the loop takes token after token
        const bool enters = std::ranges::all_of(users, [&](const ir::Op* op) { return enters_rule(op->results[0]); });
        return enters ? std::optional(out) : std::nullopt;
      }
      const ir::Op* next = nullptr;
      if (users.size() == 1) {
        next = users[0];
      } else if (!out.eps && out.scale == 1.0f) {
        next = normalised(x, users);
        if (next) {
          const ir::Value* rsqrt = next->operands[next->operands[0] == x ? 1 : 0];
          out.eps = eps_of(rsqrt, next == users[0] ? users[1] : users[0]);
          if (!out.eps) return std::nullopt;
          x = next->results[0];
          continue;
        }
      }
      if (!next) return std::nullopt;
      if (is_product(*next)) {
        const auto factor = scalar_of(next->operands[next->operands[0] == x ? 1 : 0]);
        if (!factor) return std::nullopt;
        out.scale *= *factor;
      } else if (next->code == OpCode::kExp && !out.exponential) {
        out.exponential = true;
      } else if (next->code != OpCode::kCast || !is_float(next->results[0]->type->dtype())) {
        return std::nullopt;
      }
      x = next->results[0];
    }
  }

 private:
  // Whether a token's part goes into the rule as it is: moved at most, then combined with what is neither itself, nor a
  // constant factor, nor a norm.
  bool enters_rule(const ir::Value* part) const {
    while (true) {
      const std::vector<const ir::Op*> users = users_of(part);
      if (users.size() == 1 && moves(*users[0])) {
        part = users[0]->results[0];
        continue;
      }
      return !users.empty() && std::ranges::all_of(users, [&](const ir::Op* op) { return combines(*op, part); });
    }
  }
  static bool moves(const ir::Op& op) {
    return op.code == OpCode::kReshape || op.code == OpCode::kShrinkDims || op.code == OpCode::kExpandDims ||
           op.code == OpCode::kTranspose || op.code == OpCode::kCast;
  }
  static bool combines(const ir::Op& op, const ir::Value* part) {
    const bool known = is_product(op) || op.code == OpCode::kSub || op.code == OpCode::kBroadcastingSub ||
                       op.code == OpCode::kBatchMatmul || op.code == OpCode::kBroadcastingBatchMatmul;
    if (!known || op.operands.size() != 2) return false;
    const ir::Value* other = op.operands[op.operands[0] == part ? 1 : 0];
    return other != part && !scalar_of(other) && !(other->op && other->op->code == OpCode::kRsqrt);
  }

  // Those inside loops as well, but for those that only ask for extents.
  std::vector<const ir::Op*> users_of(const ir::Value* v) const {
    std::vector<const ir::Op*> users;
    collect_users(block_, v, users);
    return users;
  }
  static void collect_users(const ir::Block& block, const ir::Value* v, std::vector<const ir::Op*>& users) {
    for (const auto& op : block.ops) {
      const bool reads = std::find(op->operands.begin(), op->operands.end(), v) != op->operands.end();
      if (reads && op->code != OpCode::kGetShape) users.push_back(op.get());
      for (const ir::Region& region : op->regions)
        for (const auto& inner : region.blocks) collect_users(*inner, v, users);
    }
  }

  // The product of x and what is made of its squares.
  static const ir::Op* normalised(const ir::Value* x, const std::vector<const ir::Op*>& users) {
    if (users.size() != 2) return nullptr;
    const auto squares = [&](const ir::Op* op) {
      return is_product(*op) && op->operands[0] == x && op->operands[1] == x;
    };
    const ir::Op* next = squares(users[0]) ? users[1] : squares(users[1]) ? users[0] : nullptr;
    return next && !squares(next) && is_product(*next) ? next : nullptr;
  }

  // eps of rsqrt(sum(squares) + eps), summed over the last axis.
  static std::optional<float> eps_of(const ir::Value* rsqrt, const ir::Op* squares_of_x) {
    if (!rsqrt->op || rsqrt->op->code != OpCode::kRsqrt) return std::nullopt;
    const ir::Op* sum = rsqrt->op->operands[0]->op;
    if (!sum || (sum->code != OpCode::kAdd && sum->code != OpCode::kBroadcastingAdd)) return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
      const ir::Op* reduced = sum->operands[1 - i]->op;
      const auto eps = scalar_of(sum->operands[i]);
      if (eps && reduced && reduced->code == OpCode::kReduceSum && reduced->operands[0] == squares_of_x->results[0] &&
          over_last_axis(*reduced))
        return eps;
    }
    return std::nullopt;
  }

  static bool over_last_axis(const ir::Op& reduce) {
    const ir::Value* axes = reduce.operands[1];
    if (!axes->op || axes->op->code != OpCode::kConstant || !axes->type->shape().is_static() ||
        axes->type->shape().element_count() != 1)
      return false;
    std::array<double, 1> axis{};
    read_as_f64(ir::constant_value(*axes->op), axis);
    const auto rank = static_cast<double>(reduce.operands[0]->type->shape().rank());
    return axis[0] == -1 || axis[0] == rank - 1;
  }

  const ir::Block& block_;
};

}  // namespace

std::optional<DeltaRuleParams> read_delta_rule(const ir::Graph& body) {
  const ir::Block& block = body.body();
  if (block.arguments.size() != 6) return std::nullopt;
  const Follower follower(block);
  const auto query = follower.follow(block.arguments[0]), key = follower.follow(block.arguments[1]);
  if (!query || !key || query->eps != key->eps || key->scale != 1.0f || query->exponential || key->exponential)
    return std::nullopt;
  // Value and beta enter the loop as they are, the gate through exp.
  for (const std::size_t i : {2u, 3u, 4u}) {
    const auto other = follower.follow(block.arguments[i]);
    if (!other || other->eps || other->scale != 1.0f || other->exponential != (i == 3)) return std::nullopt;
  }
  return DeltaRuleParams{query->eps, query->scale};
}

}  // namespace coreai::compiler
