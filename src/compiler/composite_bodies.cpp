#include "compiler/composite_bodies.h"

#include <algorithm>
#include <array>
#include <set>

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

// What becomes of an argument before the loop over tokens: x rsqrt(sum x^2 + eps), casts, a factor.
struct Prepared {
  std::optional<float> eps;
  float scale = 1;
};

class Follower {
 public:
  explicit Follower(const ir::Block& block) : block_(block) {}

  std::optional<Prepared> follow(const ir::Value* x) const {
    Prepared out;
    while (true) {
      const std::vector<const ir::Op*> users = users_of(x);
      const bool only_parts = std::ranges::all_of(
          users, [](const ir::Op* op) { return op->code == OpCode::kSlice || op->code == OpCode::kGatherAlongAxis; });
      if (only_parts) return out;  // the loop takes token after token
      const ir::Op* next = nullptr;
      if (users.size() == 1) {
        next = users[0];
      } else if (!out.eps && out.scale == 1.0f) {
        next = normalised(x, users);
        if (next) {
          const ir::Value* rsqrt = next->operands[next->operands[0] == x ? 1 : 0];
          out.eps = eps_of(rsqrt);
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
      } else if (next->code != OpCode::kCast || !is_float(next->results[0]->type->dtype())) {
        return std::nullopt;
      }
      x = next->results[0];
    }
  }

 private:
  // But for those that only ask for extents.
  std::vector<const ir::Op*> users_of(const ir::Value* v) const {
    std::vector<const ir::Op*> users;
    for (const auto& op : block_.ops) {
      const bool reads = std::find(op->operands.begin(), op->operands.end(), v) != op->operands.end();
      if (reads && op->code != OpCode::kGetShape) users.push_back(op.get());
    }
    return users;
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

  // eps of rsqrt(sum(x * x) + eps); that the sum is of x's squares is what its only other reader says.
  static std::optional<float> eps_of(const ir::Value* rsqrt) {
    if (!rsqrt->op || rsqrt->op->code != OpCode::kRsqrt) return std::nullopt;
    const ir::Op* sum = rsqrt->op->operands[0]->op;
    if (!sum || (sum->code != OpCode::kAdd && sum->code != OpCode::kBroadcastingAdd)) return std::nullopt;
    for (std::size_t i = 0; i < 2; ++i) {
      const ir::Op* squares = sum->operands[1 - i]->op;
      const auto eps = scalar_of(sum->operands[i]);
      if (eps && squares && squares->code == OpCode::kReduceSum) return eps;
    }
    return std::nullopt;
  }

  const ir::Block& block_;
};

}  // namespace

std::optional<DeltaRuleParams> read_delta_rule(const ir::Graph& body) {
  const ir::Block& block = body.body();
  if (block.arguments.size() != 6) return std::nullopt;
  const Follower follower(block);
  const auto query = follower.follow(block.arguments[0]), key = follower.follow(block.arguments[1]);
  if (!query || !key || query->eps != key->eps || key->scale != 1.0f) return std::nullopt;
  return DeltaRuleParams{query->eps, query->scale};
}

}  // namespace coreai::compiler
