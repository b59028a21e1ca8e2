#include "backend/cpu/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

// Registers an operation reads.
int operand_count(EwOp op) {
  switch (op) {
    case EwOp::kLoad:
    case EwOp::kConstant:
      return 0;
    case EwOp::kAdd:
    case EwOp::kSub:
    case EwOp::kMul:
    case EwOp::kDiv:
    case EwOp::kMax:
    case EwOp::kMin:
    case EwOp::kPow:
    case EwOp::kEqual:
    case EwOp::kLess:
    case EwOp::kLessEqual:
    case EwOp::kAnd:
    case EwOp::kOr:
      return 2;
    case EwOp::kFma:
    case EwOp::kSelect:
      return 3;
    default:
      return 1;
  }
}

void require(bool condition, std::size_t at, const char* problem) {
  if (!condition) {
    throw InvalidArgumentError(fmt::format("instruction {}: {}", at, problem), "EwProgram::validate");
  }
}

}  // namespace

EwProgram ew_program(const compiler::ElementwiseStep& step) {
  const std::size_t operands = step.operands.size(), length = step.code.size();
  std::vector<std::size_t> last(operands + length, 0);  // instruction that reads a value last
  // A copy is the value that it copies.
  std::vector<int> same(operands + length);
  std::iota(same.begin(), same.end(), 0);
  const auto value_of = [&](int v) { return static_cast<std::size_t>(same[static_cast<std::size_t>(v)]); };
  for (std::size_t i = 0; i < length; ++i) {
    const compiler::ScalarInstruction& in = step.code[i];
    if (in.op == EwOp::kLoad) same[operands + i] = same[static_cast<std::size_t>(in.a)];
    for (const int v : {in.a, in.b, in.c}) {
      if (v >= 0) last[value_of(v)] = i;
    }
  }
  EwProgram program;
  program.inputs = static_cast<int>(operands);
  program.outputs = 1;
  const std::size_t result = value_of(static_cast<int>(operands + length) - 1);
  last[result] = length;
  std::vector<int> place(operands + length, -1);
  std::array<bool, EwProgram::kRegisters> taken{};
  const auto take = [&] {
    const auto free = std::find(taken.begin(), taken.end(), false);
    COREAI_INVARIANT(free != taken.end());
    *free = true;
    return static_cast<std::uint8_t>(free - taken.begin());
  };
  const auto read = [&](int v) -> std::uint8_t {
    if (v < 0) return 0;
    int& at = place[value_of(v)];
    if (at < 0) {
      at = take();
      program.code.push_back({EwOp::kLoad, static_cast<std::uint8_t>(at), static_cast<std::uint8_t>(value_of(v))});
    }
    return static_cast<std::uint8_t>(at);
  };
  for (std::size_t i = 0; i < length; ++i) {
    const compiler::ScalarInstruction& in = step.code[i];
    EwInstruction out{in.op, 0, read(in.a), read(in.b), read(in.c), in.constant};
    for (const int v : {in.a, in.b, in.c}) {
      if (v >= 0 && last[value_of(v)] == i) taken[static_cast<std::size_t>(place[value_of(v)])] = false;
    }
    if (in.op == EwOp::kLoad) continue;
    out.dst = take();
    place[operands + i] = out.dst;
    program.code.push_back(out);
  }
  program.code.push_back({EwOp::kStore, 0, static_cast<std::uint8_t>(place[result])});
  program.validate();
  return program;
}

void EwProgram::validate() const {
  if (inputs < 0 || inputs > kMaxInputs || outputs < 0 || outputs > kMaxOutputs) {
    throw InvalidArgumentError(fmt::format("a program of {} inputs and {} outputs", inputs, outputs),
                               "EwProgram::validate", "split it");
  }
  std::array<bool, kRegisters> written{};
  for (std::size_t at = 0; at < code.size(); ++at) {
    const EwInstruction& i = code[at];
    const std::array<std::uint8_t, 3> reads{i.a, i.b, i.c};
    for (int k = 0; k < operand_count(i.op); ++k) {
      const std::uint8_t r = reads[static_cast<std::size_t>(k)];
      require(r < kRegisters && written[r], at, "reads a register that holds nothing");
    }
    if (i.op == EwOp::kLoad) require(i.a < inputs, at, "loads an input that does not exist");
    if (i.op == EwOp::kStore) {
      require(i.dst < outputs, at, "stores to an output that does not exist");
    } else {
      require(i.dst < kRegisters, at, "writes a register that does not exist");
      written[i.dst] = true;
    }
  }
}

void ew_collapse(const EwProgram& program, EwBinding& b) {
  const auto each_array = [&](auto fn) {
    for (int i = 0; i < program.inputs; ++i) fn(b.inputs[static_cast<std::size_t>(i)]);
    for (int i = 0; i < program.outputs; ++i) fn(b.outputs[static_cast<std::size_t>(i)]);
  };
  const auto remove = [&](std::size_t dim) {
    const auto rank = static_cast<std::size_t>(b.rank);
    for (std::size_t d = dim; d + 1 < rank; ++d) b.extents[d] = b.extents[d + 1];
    each_array([&](EwBinding::Array& a) {
      for (std::size_t d = dim; d + 1 < rank; ++d) a.strides[d] = a.strides[d + 1];
    });
    --b.rank;
  };
  for (int d = b.rank - 1; d >= 0 && b.rank > 1; --d) {
    if (b.extents[static_cast<std::size_t>(d)] == 1) remove(static_cast<std::size_t>(d));
  }
  for (int d = b.rank - 2; d >= 0; --d) {
    const auto outer = static_cast<std::size_t>(d), inner = outer + 1;
    bool alike = true;
    each_array([&](EwBinding::Array& a) { alike = alike && a.strides[outer] == a.strides[inner] * b.extents[inner]; });
    if (!alike) continue;
    b.extents[inner] *= b.extents[outer];
    remove(outer);
  }
}

std::int64_t ew_units(const EwBinding& b) {
  if (b.rank == 0) return 1;
  const std::int64_t last = b.extents[static_cast<std::size_t>(b.rank - 1)];
  std::int64_t units = (last + kEwBlock - 1) / kEwBlock;
  for (int d = 0; d + 1 < b.rank; ++d) units *= b.extents[static_cast<std::size_t>(d)];
  return units;
}

}  // namespace coreai::cpu
