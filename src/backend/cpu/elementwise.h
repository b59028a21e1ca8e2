// Fused element-wise chains: a small register program evaluated over blocks that stay in L1.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/cpu/isa.h"
#include "coreai/base/dtype.h"
#include "coreai/compiler/plan.h"

namespace coreai::cpu {

using EwOp = compiler::ScalarOp;

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

// The program of a plan's chain: operands are loaded where they are read first, registers are used again.
EwProgram ew_program(const compiler::ElementwiseStep& step);

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
