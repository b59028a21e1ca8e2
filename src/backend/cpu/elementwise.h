// Fused element-wise chains: a small register program evaluated over blocks that stay in L1.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/cpu/isa.h"
#include "coreai/base/dtype.h"

namespace coreai::cpu {

enum class EwOp : std::uint8_t {
  kLoad,      // dst = operand a (inputs, see EwInput)
  kConstant,  // dst = constant
  kStore,     // output `dst` = register a
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

struct EwInstruction {
  EwOp op;
  std::uint8_t dst = 0, a = 0, b = 0, c = 0;
  float constant = 0.0f;
};

// Registers hold f32. At most 16 inputs, 4 outputs, 16 registers.
struct EwProgram {
  static constexpr int kRegisters = 16, kMaxInputs = 16, kMaxOutputs = 4;
  std::vector<EwInstruction> code;
  int inputs = 0, outputs = 0;
  // Throws InvalidArgumentError on an index out of range or a register read before it is written.
  void validate() const;
};

struct EwBinding {
  static constexpr int kMaxRank = 6;
  struct Array {
    const void* data = nullptr;  // outputs are written through it
    DType dtype = DType::kF32;   // f32, f16, bf16; inputs also i1, ui8, si8, si32, si64; outputs also i1
    std::array<std::int64_t, kMaxRank> strides{};  // elements; 0 broadcasts
  };
  int rank = 0;
  std::array<std::int64_t, kMaxRank> extents{};
  std::array<Array, EwProgram::kMaxInputs> inputs{};
  std::array<Array, EwProgram::kMaxOutputs> outputs{};
};

// Joins neighbouring dimensions that every array walks alike; call once per binding, before cutting. No allocation.
void ew_collapse(const EwProgram& program, EwBinding& binding);
// Work is cut in units: the pieces of at most kEwBlock elements of the last dimension, in row-major order.
inline constexpr std::int64_t kEwBlock = 256;
std::int64_t ew_units(const EwBinding& binding);
// Units [begin, end). An output may be the very array of an input (same strides).
using EwRun = void (*)(const EwProgram& program, const EwBinding& binding, std::int64_t begin, std::int64_t end);
EwRun elementwise_kernel(Isa isa);

}  // namespace coreai::cpu
