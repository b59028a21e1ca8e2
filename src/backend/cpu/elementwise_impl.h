// The element-wise interpreter; included once per level after simd_*.h and simd_math.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/row_kernels.h"

namespace coreai::cpu {
namespace {

// One unit: `count` elements from one place of every array on.
struct EwUnit {
  const EwProgram* program;
  const EwBinding* binding;
  std::int64_t count;
  std::int64_t offsets[EwProgram::kMaxInputs + EwProgram::kMaxOutputs];  // elements
  bool may_alias;  // inputs may be read in place: no output is written over one
  float (*own)[kEwBlock];
  const float* registers[EwProgram::kRegisters];
};

template <typename T>
void gather(const void* data, std::int64_t offset, std::int64_t stride, std::int64_t count, float* out) {
  const T* from = static_cast<const T*>(data) + offset;
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(from[i * stride]);
}

void gather_halves(DType dtype, const std::uint16_t* from, std::int64_t stride, std::int64_t count, float* out) {
  std::uint16_t packed[kEwBlock];
  for (std::int64_t i = 0; i < count; ++i) packed[i] = from[i * stride];
  to_f32_kernel(dtype, packed, out, count);
}

void ew_load(EwUnit& u, int input, int dst) {
  const EwBinding::Array& array = u.binding->inputs[static_cast<std::size_t>(input)];
  const std::int64_t offset = u.offsets[input];
  const std::int64_t stride = u.binding->rank == 0 ? 0 : array.strides[static_cast<std::size_t>(u.binding->rank - 1)];
  float* out = u.own[dst];
  u.registers[dst] = out;
  const std::int64_t wanted = stride == 0 ? 1 : u.count;
  switch (array.dtype) {
    case DType::kF32: {
      const float* from = static_cast<const float*>(array.data) + offset;
      if (stride == 1 && u.may_alias && u.count % 16 == 0) {
        u.registers[dst] = from;
        return;
      }
      if (stride == 1) {
        std::memcpy(out, from, static_cast<std::size_t>(u.count) * sizeof(float));
      } else {
        gather<float>(array.data, offset, stride, wanted, out);
      }
      break;
    }
    case DType::kF16:
    case DType::kBF16: {
      const std::uint16_t* from = static_cast<const std::uint16_t*>(array.data) + offset;
      if (stride == 1) {
        to_f32_kernel(array.dtype, from, out, u.count);
      } else {
        gather_halves(array.dtype, from, stride, wanted, out);
      }
      break;
    }
    case DType::kSI8:
      gather<std::int8_t>(array.data, offset, stride, wanted, out);
      break;
    case DType::kSI32:
      gather<std::int32_t>(array.data, offset, stride, wanted, out);
      break;
    case DType::kSI64:
      gather<std::int64_t>(array.data, offset, stride, wanted, out);
      break;
    default:  // i1, ui8
      gather<std::uint8_t>(array.data, offset, stride, wanted, out);
      break;
  }
  if (stride == 0) {
    const V value = splat(out[0]);
    for (std::int64_t i = 0; i < u.count; i += V::kLanes) store(out + i, value);
  }
}

void ew_store(EwUnit& u, int output, int from) {
  const EwBinding::Array& array = u.binding->outputs[static_cast<std::size_t>(output)];
  const std::int64_t offset = u.offsets[EwProgram::kMaxInputs + output];
  const std::int64_t stride = u.binding->rank == 0 ? 1 : array.strides[static_cast<std::size_t>(u.binding->rank - 1)];
  const float* values = u.registers[from];
  void* data = const_cast<void*>(array.data);
  if (array.dtype == DType::kF32) {
    float* to = static_cast<float*>(data) + offset;
    if (stride == 1) {
      std::memmove(to, values, static_cast<std::size_t>(u.count) * sizeof(float));
    } else {
      for (std::int64_t i = 0; i < u.count; ++i) to[i * stride] = values[i];
    }
  } else if (array.dtype == DType::kF16 || array.dtype == DType::kBF16) {
    std::uint16_t* to = static_cast<std::uint16_t*>(data) + offset;
    if (stride == 1) return from_f32_kernel(array.dtype, values, to, u.count);
    std::uint16_t packed[kEwBlock];
    from_f32_kernel(array.dtype, values, packed, u.count);
    for (std::int64_t i = 0; i < u.count; ++i) to[i * stride] = packed[i];
  } else {
    std::uint8_t* to = static_cast<std::uint8_t*>(data) + offset;
    for (std::int64_t i = 0; i < u.count; ++i) to[i * stride] = values[i] != 0.0f ? 1 : 0;
  }
}

// Whole vectors: what lies behind `count` in a register is computed too and never stored.
template <typename Fn>
inline void ew_unary(EwUnit& u, const EwInstruction& i, Fn fn) {
  const float* a = u.registers[i.a];
  float* out = u.own[i.dst];
  for (std::int64_t k = 0; k < u.count; k += V::kLanes) store(out + k, fn(load(a + k)));
  u.registers[i.dst] = out;
}
template <typename Fn>
inline void ew_binary(EwUnit& u, const EwInstruction& i, Fn fn) {
  const float *a = u.registers[i.a], *b = u.registers[i.b];
  float* out = u.own[i.dst];
  for (std::int64_t k = 0; k < u.count; k += V::kLanes) store(out + k, fn(load(a + k), load(b + k)));
  u.registers[i.dst] = out;
}
template <typename Fn>
inline void ew_ternary(EwUnit& u, const EwInstruction& i, Fn fn) {
  const float *a = u.registers[i.a], *b = u.registers[i.b], *c = u.registers[i.c];
  float* out = u.own[i.dst];
  for (std::int64_t k = 0; k < u.count; k += V::kLanes) store(out + k, fn(load(a + k), load(b + k), load(c + k)));
  u.registers[i.dst] = out;
}
template <typename Fn>
inline void ew_scalar(EwUnit& u, const EwInstruction& i, Fn fn) {
  const float *a = u.registers[i.a], *b = u.registers[i.b];
  float* out = u.own[i.dst];
  for (std::int64_t k = 0; k < u.count; ++k) out[k] = fn(a[k], i.op == EwOp::kPow ? b[k] : 0.0f);
  u.registers[i.dst] = out;
}

inline V truth(Mask m) {
  return select(m, splat(1.0f), zero());
}

void ew_rare(EwUnit& u, const EwInstruction& i) {
  switch (i.op) {
    case EwOp::kPow:
      return ew_scalar(u, i, [](float a, float b) {
        return static_cast<float>(__builtin_pow(static_cast<double>(a), static_cast<double>(b)));
      });
    case EwOp::kSin:
      return ew_scalar(u, i, [](float a, float) {
        float s, c;
        sin_cos(a, s, c);
        return s;
      });
    case EwOp::kCos:
      return ew_scalar(u, i, [](float a, float) {
        float s, c;
        sin_cos(a, s, c);
        return c;
      });
    case EwOp::kFloor:
      return ew_unary(u, i, [](V a) { return floor(a); });
    case EwOp::kCeil:
      return ew_unary(u, i, [](V a) { return ceil(a); });
    case EwOp::kRound:
      return ew_unary(u, i, [](V a) { return round_even(a); });
    case EwOp::kTrunc:
      return ew_unary(u, i, [](V a) { return trunc(a); });
    case EwOp::kEqual:
      return ew_binary(u, i, [](V a, V b) { return truth(a == b); });
    case EwOp::kLess:
      return ew_binary(u, i, [](V a, V b) { return truth(a < b); });
    case EwOp::kLessEqual:
      return ew_binary(u, i, [](V a, V b) { return truth(a <= b); });
    case EwOp::kNot:
      return ew_unary(u, i, [](V a) { return truth(a == zero()); });
    case EwOp::kAnd:
      return ew_binary(u, i,
                       [](V a, V b) { return select(a == zero(), zero(), select(b == zero(), zero(), splat(1.0f))); });
    case EwOp::kOr:
      return ew_binary(
          u, i, [](V a, V b) { return select(a == zero(), select(b == zero(), zero(), splat(1.0f)), splat(1.0f)); });
    case EwOp::kSelect:
      return ew_ternary(u, i, [](V a, V b, V c) { return select(a == zero(), c, b); });
    case EwOp::kRoundF16:
      return ew_unary(u, i, [](V a) { return round_to_f16(a); });
    case EwOp::kRoundBF16:
      return ew_unary(u, i, [](V a) { return round_to_bf16(a); });
    default:
      return;
  }
}

void ew_function(EwUnit& u, const EwInstruction& i) {
  switch (i.op) {
    case EwOp::kExp:
      return ew_unary(u, i, [](V a) { return exp(a); });
    case EwOp::kLog:
      return ew_unary(u, i, [](V a) { return log(a); });
    case EwOp::kTanh:
      return ew_unary(u, i, [](V a) { return tanh(a); });
    case EwOp::kErf:
      return ew_unary(u, i, [](V a) { return erf(a); });
    case EwOp::kSigmoid:
      return ew_unary(u, i, [](V a) { return sigmoid(a); });
    case EwOp::kSilu:
      return ew_unary(u, i, [](V a) { return silu(a); });
    case EwOp::kGeluErf:
      return ew_unary(u, i, [](V a) { return gelu_erf(a); });
    case EwOp::kGeluTanh:
      return ew_unary(u, i, [](V a) { return gelu_tanh(a); });
    default:
      return ew_rare(u, i);
  }
}

void ew_step(EwUnit& u, const EwInstruction& i) {
  switch (i.op) {
    case EwOp::kLoad:
      return ew_load(u, i.a, i.dst);
    case EwOp::kStore:
      return ew_store(u, i.dst, i.a);
    case EwOp::kConstant: {
      float* out = u.own[i.dst];
      for (std::int64_t k = 0; k < u.count; k += V::kLanes) store(out + k, splat(i.constant));
      u.registers[i.dst] = out;
      return;
    }
    case EwOp::kAdd:
      return ew_binary(u, i, [](V a, V b) { return a + b; });
    case EwOp::kSub:
      return ew_binary(u, i, [](V a, V b) { return a - b; });
    case EwOp::kMul:
      return ew_binary(u, i, [](V a, V b) { return a * b; });
    case EwOp::kDiv:
      return ew_binary(u, i, [](V a, V b) { return a / b; });
    case EwOp::kMax:  // a NaN on either side gives NaN
      return ew_binary(u, i, [](V a, V b) { return select(a == a, max(a, b), a); });
    case EwOp::kMin:
      return ew_binary(u, i, [](V a, V b) { return select(a == a, min(a, b), a); });
    case EwOp::kFma:
      return ew_ternary(u, i, [](V a, V b, V c) { return fma(a, b, c); });
    case EwOp::kNeg:
      return ew_unary(u, i, [](V a) { return -a; });
    case EwOp::kAbs:
      return ew_unary(u, i, [](V a) { return abs(a); });
    case EwOp::kSqrt:
      return ew_unary(u, i, [](V a) { return sqrt(a); });
    case EwOp::kRsqrt:
      return ew_unary(u, i, [](V a) { return splat(1.0f) / sqrt(a); });
    case EwOp::kReciprocal:
      return ew_unary(u, i, [](V a) { return splat(1.0f) / a; });
    case EwOp::kRelu:
      return ew_unary(u, i, [](V a) { return max(zero(), a); });
    default:
      return ew_function(u, i);
  }
}

bool writes_over_an_input(const EwProgram& program, const EwBinding& binding) {
  for (int o = 0; o < program.outputs; ++o) {
    for (int i = 0; i < program.inputs; ++i) {
      if (binding.outputs[static_cast<std::size_t>(o)].data == binding.inputs[static_cast<std::size_t>(i)].data) {
        return true;
      }
    }
  }
  return false;
}

void elementwise_run(const EwProgram& program, const EwBinding& binding, std::int64_t begin, std::int64_t end) {
  alignas(64) float own[EwProgram::kRegisters][kEwBlock];
  EwUnit u{};
  u.program = &program;
  u.binding = &binding;
  u.own = own;
  u.may_alias = !writes_over_an_input(program, binding);
  const int inner = binding.rank - 1;
  const std::int64_t last = inner < 0 ? 1 : binding.extents[static_cast<std::size_t>(inner)];
  const std::int64_t pieces = (last + kEwBlock - 1) / kEwBlock;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t first = unit % pieces * kEwBlock;
    u.count = last - first < kEwBlock ? last - first : kEwBlock;
    const auto place = [&](const EwBinding::Array& array) {
      std::int64_t rest = unit / pieces;
      std::int64_t offset = inner < 0 ? 0 : first * array.strides[static_cast<std::size_t>(inner)];
      for (int d = inner - 1; d >= 0; --d) {
        const std::int64_t extent = binding.extents[static_cast<std::size_t>(d)];
        offset += rest % extent * array.strides[static_cast<std::size_t>(d)];
        rest /= extent;
      }
      return offset;
    };
    for (int i = 0; i < program.inputs; ++i) u.offsets[i] = place(binding.inputs[static_cast<std::size_t>(i)]);
    for (int o = 0; o < program.outputs; ++o) {
      u.offsets[EwProgram::kMaxInputs + o] = place(binding.outputs[static_cast<std::size_t>(o)]);
    }
    const EwInstruction* code = program.code.data();
    const std::size_t length = program.code.size();
    for (std::size_t k = 0; k < length; ++k) ew_step(u, code[k]);
  }
}

}  // namespace
}  // namespace coreai::cpu
