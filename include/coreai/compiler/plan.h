// What the compiler hands to a back-end: a flat list of steps over buffers whose sizes are expressions, with guards
// under which it is right. Immutable once made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/compiler/expr.h"
#include "coreai/compiler/steps.h"

namespace coreai::compiler {

// A symbol is the extent of one axis of one input or state, or an element of a small integer input that extents or
// positions are computed from.
struct SymbolBinding {
  bool of_state = false;
  std::size_t index = 0;  // of the input or state
  std::size_t axis = 0;   // or the element
  bool of_value = false;  // then the symbol is the element plus 1: like an extent at least 1, unless it is negative
};

enum class GuardKind : std::uint8_t {
  kShape,          // else the function runs op by op for this call
  kStateCapacity,  // else ContextLengthError: a position outside a state
};
// The plan holds only while `nonnegative` >= 0.
struct Guard {
  Expr nonnegative;
  GuardKind kind;
  std::string reason;
};
// Values that the plan relies on: the elements of an integer input must strictly increase (masks made of positions).
struct IncreasingGuard {
  std::size_t input;
};

struct StateSpec {
  std::size_t index = 0;
  // Layout role; neither: an array in its declared layout (Buffer::Kind::kState when the plan touches it).
  bool is_key = false, is_value = false;
  DType dtype = DType::kF16;
};

struct Plan {
  ExprPool exprs;
  std::vector<SymbolBinding> symbols;
  std::vector<Guard> guards;
  std::vector<IncreasingGuard> increasing;
  std::vector<Buffer> buffers;
  std::vector<std::vector<WeightSource>> weights;  // each list is packed as one matrix
  std::vector<bool> weight_gated;                  // rows of two sources interleaved for a gated pair
  std::vector<bool> weight_stacked;                // sources that steps address one by one
  std::vector<Step> steps;
  std::vector<StateSpec> states;
  std::vector<int> output_buffers;  // by output index
  std::vector<std::vector<Expr>> output_shapes;
  std::vector<int> output_row_axis;  // axis that set_last_rows shortens; -1 = none
  std::vector<std::string> notes;    // what a pass reports
};

// Buffers that a step reads and writes.
struct StepBuffers {
  std::vector<int> reads, writes;
};
StepBuffers buffers_of(const Step& step);

// What a step moves at least and computes, for given extents of the plan's symbols.
struct StepCost {
  std::string kernel, detail;
  std::int64_t rows = 0, weight_bytes = 0, read_bytes = 0, written_bytes = 0, multiply_adds = 0;
};
// One per step. Throws InvalidArgumentError unless there is one extent per symbol.
std::vector<StepCost> step_costs(const Plan& plan, std::span<const std::int64_t> extents);

// The steps as a table or as JSON with bytes and multiply-adds, for extents of the plan's symbols in their order.
std::string to_text(const Plan& plan, std::span<const std::int64_t> extents, bool json);

}  // namespace coreai::compiler
