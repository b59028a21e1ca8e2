// Operations on one element in f32: the instructions of element-wise chains.
#pragma once

#include <cstdint>

namespace coreai::compiler {

enum class ScalarOp : std::uint8_t {
  kLoad,      // dst = operand a (only back-ends)
  kConstant,  // dst = constant
  kStore,     // output `dst` = register a (only back-ends)
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,
  kMin,  // dst = a op b
  kPow,  // dst = a to the power b (C library, per element)
  kFma,  // dst = a * b + c, one rounding
  kNeg,
  kAbs,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kExp,
  kLog,
  kTanh,
  kErf,
  kSigmoid,
  kSilu,      // a * sigmoid(a)
  kGeluErf,   // 0.5 a (1 + erf(a / sqrt 2))
  kGeluTanh,  // 0.5 a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3)))
  kRelu,
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kSin,
  kCos,
  kEqual,
  kLess,
  kLessEqual,  // dst = 1 or 0
  kNot,
  kAnd,
  kOr,      // of values that are 0 or not
  kSelect,  // dst = a != 0 ? b : c
  kRoundF16,
  kRoundBF16,  // to the nearest value of the format
};

}  // namespace coreai::compiler
