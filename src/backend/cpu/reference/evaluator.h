// The evaluator that compiler and interpreter share.
#pragma once

#include "coreai/compiler/op_evaluator.h"

namespace coreai::cpu {

class ReferenceEvaluator final : public compiler::OpEvaluator {
 public:
  bool supports(ir::OpCode code) const override;
  std::vector<NDArray> evaluate(const ir::Op& op, std::span<const NDArray> inputs) const override;
};

// Whether an operation computes each element of its result from the elements at the same place, with broadcasting.
bool is_elementwise(ir::OpCode code);

// The one instance: it holds no state.
const ReferenceEvaluator& reference_evaluator();

}  // namespace coreai::cpu
