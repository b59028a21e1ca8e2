// Evaluates one operation on arrays: the rule by which the compiler folds constants is the rule of the reference
// executor, so that a folded program and an executed one agree to the bit.
#pragma once

#include <span>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/ir/module.h"

namespace coreai::compiler {

// Immutable and thread-safe.
class OpEvaluator {
 public:
  virtual ~OpEvaluator() = default;

  // Whether evaluate() takes this operation: it computes results from operand arrays alone. Constants, calls, control
  // flow, tokens and handles do not.
  virtual bool supports(ir::OpCode code) const = 0;

  // One array per result. An operand of a sparse tensor type is an opaque byte array made by an operation that results
  // in one. Throws ShapeError (extents or indices that do not fit), UnsupportedError (an element type that the
  // operation does not take), both naming operation and operand shapes.
  virtual std::vector<NDArray> evaluate(const ir::Op& op, std::span<const NDArray> inputs) const = 0;
};

}  // namespace coreai::compiler
