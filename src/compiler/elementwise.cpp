// Chains of element-wise operations: each operation becomes one of its own, then joins its reader.
#include <algorithm>
#include <utility>

#include "compiler/matchers.h"
#include "compiler/passes.h"

namespace coreai::compiler {
namespace {

using ir::OpCode;

// The scalar operation of one that takes and gives floats.
std::optional<ScalarOp> float_op(const Node& node) {
  switch (node.code) {
    case OpCode::kAdd:
    case OpCode::kBroadcastingAdd:
      return ScalarOp::kAdd;
    case OpCode::kSub:
    case OpCode::kBroadcastingSub:
      return ScalarOp::kSub;
    case OpCode::kMul:
    case OpCode::kBroadcastingMul:
      return ScalarOp::kMul;
    case OpCode::kDivide:
    case OpCode::kBroadcastingDivide:
      return ScalarOp::kDiv;
    case OpCode::kMaximum:
    case OpCode::kBroadcastingMaximum:
      return ScalarOp::kMax;
    case OpCode::kMinimum:
    case OpCode::kBroadcastingMinimum:
      return ScalarOp::kMin;
    case OpCode::kPow:
    case OpCode::kBroadcastingPow:
      return ScalarOp::kPow;
    case OpCode::kAbs:
      return ScalarOp::kAbs;
    case OpCode::kSqrt:
      return ScalarOp::kSqrt;
    case OpCode::kRsqrt:
      return ScalarOp::kRsqrt;
    case OpCode::kExp:
      return ScalarOp::kExp;
    case OpCode::kLog:
      return ScalarOp::kLog;
    case OpCode::kTanh:
      return ScalarOp::kTanh;
    case OpCode::kErf:
      return ScalarOp::kErf;
    case OpCode::kSigmoid:
      return ScalarOp::kSigmoid;
    case OpCode::kSilu:
      return ScalarOp::kSilu;
    case OpCode::kRelu:
      return ScalarOp::kRelu;
    case OpCode::kRound:
      return ScalarOp::kRound;
    case OpCode::kSin:
      return ScalarOp::kSin;
    case OpCode::kCos:
      return ScalarOp::kCos;
    default:
      return std::nullopt;
  }
}

std::optional<ScalarOp> comparison(OpCode code) {
  switch (code) {
    case OpCode::kEqual:
    case OpCode::kBroadcastingEqual:
    case OpCode::kNotEqual:
    case OpCode::kBroadcastingNotEqual:
      return ScalarOp::kEqual;
    case OpCode::kGreater:
    case OpCode::kBroadcastingGreater:
      return ScalarOp::kLess;
    default:
      return std::nullopt;
  }
}

std::optional<ScalarOp> truth_op(OpCode code) {
  switch (code) {
    case OpCode::kLogicalAnd:
    case OpCode::kBroadcastingLogicalAnd:
    case OpCode::kBitwiseAnd:
    case OpCode::kBroadcastingBitwiseAnd:
      return ScalarOp::kAnd;
    case OpCode::kLogicalOr:
    case OpCode::kBroadcastingLogicalOr:
    case OpCode::kBitwiseOr:
    case OpCode::kBroadcastingBitwiseOr:
      return ScalarOp::kOr;
    default:
      return std::nullopt;
  }
}

class Former {
 public:
  explicit Former(Graph& g) : g_(g) {}

  void run() {
    for (const NodeId id : g_.order()) convert(g_.node(id));
    uses_ = g_.use_counts();
    for (const NodeId id : g_.order()) {
      if (g_.node(id).kind == NodeKind::kElementwise) join_producers(id);
    }
    g_.sweep();
  }

 private:
  using Code = std::vector<ScalarInstruction>;

  DType dtype(ValueId v) const { return g_.value(v).dtype; }

  // ---- one operation ----

  void convert(Node& node) {
    if (node.kind != NodeKind::kOp || node.outputs.size() != 1 || g_.value(node.outputs[0]).constant) return;
    if (!broadcasts(node)) return;
    const Code code = code_of(node);
    if (code.empty()) return;
    node.kind = NodeKind::kElementwise;
    node.params = ElementwiseParams{code};
    fold_scalars(node);
  }

  // Every operand is a tensor whose extents are those of the result or 1.
  bool broadcasts(const Node& node) const {
    const auto& out = g_.value(node.outputs[0]).shape;
    if (out.size() > ElementwiseStep::kMaxRank || node.inputs.empty()) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
      const auto& in = g_.value(v).shape;
      if (g_.value(v).state >= 0 || in.size() > out.size()) return false;
      if (g_.value(v).host && !g_.value(v).constant) return false;  // arithmetic on extents has no memory
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (in[i] != out[out.size() - in.size() + i] && !g_.exprs.is_constant(in[i], 1)) return false;
      }
      return true;
    });
  }

  bool all_inputs(const Node& node, bool (*accept)(DType)) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return accept(dtype(v)); });
  }

  Code code_of(const Node& node) const {
    const DType out = dtype(node.outputs[0]);
    const bool floats = all_inputs(node, is_working_float);
    const bool truths = all_inputs(node, [](DType d) { return d == DType::kI1; });
    if (node.code == OpCode::kCast) return cast_code(node);
    if (node.code == OpCode::kWhere || node.code == OpCode::kBroadcastingWhere) {
      const bool fits = node.inputs.size() == 3 && dtype(node.inputs[0]) == DType::kI1 && is_working_float(out) &&
                        dtype(node.inputs[1]) == out && dtype(node.inputs[2]) == out;
      return fits ? Code{{ScalarOp::kSelect, 0, 1, 2}} : Code{};
    }
    if (floats && out == DType::kI1) return comparison_code(node);
    if (truths && out == DType::kI1) {
      if (node.code == OpCode::kNot) return {{ScalarOp::kNot, 0}};
      if (const auto op = truth_op(node.code)) return {{*op, 0, 1}};
      return {};
    }
    if (!floats || !is_working_float(out)) return {};
    if (node.code == OpCode::kGelu) return gelu_code(node);
    const auto op = float_op(node);
    if (!op) return {};
    return node.inputs.size() == 2 ? Code{{*op, 0, 1}} : Code{{*op, 0}};
  }

  Code comparison_code(const Node& node) const {
    const auto op = comparison(node.code);
    if (!op) return {};
    if (op == ScalarOp::kLess) return {{ScalarOp::kLess, 1, 0}};  // a > b
    Code code{{ScalarOp::kEqual, 0, 1}};
    if (node.code == OpCode::kNotEqual || node.code == OpCode::kBroadcastingNotEqual)
      code.push_back({ScalarOp::kNot, 2});
    return code;
  }

  Code cast_code(const Node& node) const {
    const DType from = dtype(node.inputs[0]), to = dtype(node.outputs[0]);
    // Integers up to 32 bits round once on their way to f32; 64 bits would twice on their way to a narrower float.
    const bool integer = from == DType::kSI8 || from == DType::kUI8 || from == DType::kI1 || from == DType::kSI32;
    if (is_working_float(to) && (is_working_float(from) || (integer && (to == DType::kF32 || from == DType::kI1))))
      return {{ScalarOp::kLoad, 0}};
    if (to == DType::kI1 && is_working_float(from)) return {{ScalarOp::kNot, 0}, {ScalarOp::kNot, 1}};
    return {};
  }

  Code gelu_code(const Node& node) const {
    const ir::AttrRef kind = node.source->attribute("approximate");
    const std::uint64_t approximate = kind ? kind->as_enum() : 0;
    if (approximate == 0) return {{ScalarOp::kGeluErf, 0}};
    if (approximate == 1) return {{ScalarOp::kGeluTanh, 0}};
    return {};
  }

  // Operands that are one constant become instructions.
  void fold_scalars(Node& node) {
    auto& code = std::get<ElementwiseParams>(node.params).code;
    for (std::size_t i = node.inputs.size(); i-- > 0;) {
      const auto& constant = g_.value(node.inputs[i]).constant;
      if (!constant || constant->element_count() != 1 || node.inputs.size() == 1) continue;
      double value = 0;
      read_as_f64(*constant, std::span(&value, 1));
      replace_operand(node.inputs, code, i,
                      {ScalarInstruction{ScalarOp::kConstant, -1, -1, -1, static_cast<float>(value)}}, {});
    }
  }

  // ---- chains ----

  static void each_operand(ScalarInstruction& i, auto&& visit) {
    for (int* value : {&i.a, &i.b, &i.c}) {
      if (*value >= 0) visit(*value);
    }
  }

  // Puts `inner` (a chain over `operands`) in the place of operand `at` of a chain.
  static void replace_operand(std::vector<ValueId>& inputs, Code& code, std::size_t at, Code inner,
                              const std::vector<ValueId>& operands) {
    const int old_count = static_cast<int>(inputs.size()), place = static_cast<int>(at);
    std::vector<ValueId> joined;
    std::vector<int> place_of_old(inputs.size(), -1), place_of_inner(operands.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i == at) continue;
      place_of_old[i] = static_cast<int>(joined.size());
      joined.push_back(inputs[i]);
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const auto known = std::find(joined.begin(), joined.end(), operands[i]);
      place_of_inner[i] = static_cast<int>(known - joined.begin());
      if (known == joined.end()) joined.push_back(operands[i]);
    }
    const int new_count = static_cast<int>(joined.size()), inner_count = static_cast<int>(operands.size());
    const int inner_length = static_cast<int>(inner.size());
    for (ScalarInstruction& i : inner) {
      each_operand(i, [&](int& v) {
        v = v < inner_count ? place_of_inner[static_cast<std::size_t>(v)] : v - inner_count + new_count;
      });
    }
    for (ScalarInstruction& i : code) {
      each_operand(i, [&](int& v) {
        if (v == place) {
          v = new_count + inner_length - 1;
        } else {
          v = v < old_count ? place_of_old[static_cast<std::size_t>(v)] : v - old_count + new_count + inner_length;
        }
      });
    }
    inner.insert(inner.end(), code.begin(), code.end());
    code = std::move(inner);
    inputs = std::move(joined);
  }

  // Values that are read later, at the place of the chain where most are.
  static int most_live(std::size_t operands, const Code& code) {
    std::vector<int> last(operands + code.size(), -1);
    for (std::size_t i = 0; i < code.size(); ++i) {
      ScalarInstruction copy = code[i];
      each_operand(copy, [&](int v) { last[static_cast<std::size_t>(v)] = static_cast<int>(i); });
    }
    // Operands are loaded where they are read first.
    std::vector<int> first(operands, static_cast<int>(code.size()));
    for (std::size_t i = code.size(); i-- > 0;) {
      ScalarInstruction copy = code[i];
      each_operand(copy, [&](int v) {
        if (v < static_cast<int>(operands)) first[static_cast<std::size_t>(v)] = static_cast<int>(i);
      });
    }
    int most = 0;
    for (int i = 0; i < static_cast<int>(code.size()); ++i) {
      int live = 1;  // the result
      for (std::size_t v = 0; v < operands; ++v) live += first[v] <= i && last[v] >= i ? 1 : 0;
      for (int v = 0; v < i; ++v) live += last[operands + static_cast<std::size_t>(v)] >= i ? 1 : 0;
      most = std::max(most, live);
    }
    return most;
  }

  void join_producers(NodeId id) {
    for (std::size_t at = 0; at < g_.node(id).inputs.size();) {
      at = join_producer(id, at) ? 0 : at + 1;
    }
  }

  bool join_producer(NodeId id, std::size_t at) {
    Node& node = g_.node(id);
    const ValueId v = node.inputs[at];
    const Node* producer = g_.producer(v);
    if (!producer || producer->kind != NodeKind::kElementwise || uses_[static_cast<std::size_t>(v)] != 1) return false;
    if (g_.value(v).shape != g_.value(node.outputs[0]).shape) return false;
    std::vector<ValueId> inputs = node.inputs;
    Code code = std::get<ElementwiseParams>(node.params).code;
    replace_operand(inputs, code, at, std::get<ElementwiseParams>(producer->params).code, producer->inputs);
    if (inputs.size() > ElementwiseStep::kMaxOperands || code.size() > ElementwiseStep::kMaxInstructions ||
        most_live(inputs.size(), code) > ElementwiseStep::kMaxLive) {
      return false;
    }
    // An operand that both read has one reader less.
    for (ValueId read : producer->inputs) {
      if (std::count(node.inputs.begin(), node.inputs.end(), read)) --uses_[static_cast<std::size_t>(read)];
    }
    node.inputs = std::move(inputs);
    std::get<ElementwiseParams>(node.params).code = std::move(code);
    return true;
  }

  Graph& g_;
  std::vector<int> uses_;
};

}  // namespace

void form_elementwise(Graph& graph) {
  Former(graph).run();
}

}  // namespace coreai::compiler
