// Operand and result signatures of the op table, parsed once.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "coreai/base/dtype.h"
#include "coreai/ir/op_code.h"

namespace coreai::ir {

enum class OperandKind : std::uint8_t { kAny, kTensor, kToken, kOpaque };

// One operand, result, or variadic group of them.
struct OperandRule {
  std::string_view name;
  bool variadic = false;
  OperandKind kind = OperandKind::kTensor;
  std::uint64_t dtypes = 0;  // bit per DType; of tensors
  int min_rank = 0;
  int max_rank = -1;           // -1 = any rank
  std::int64_t elements = -1;  // of a vector whose length is fixed; -1 = free
  bool static_extents = false;
  bool sparse = false;    // the type must carry a sparse encoding
  std::string_view text;  // the rule as the table spells it

  bool allows(DType dtype) const { return (dtypes >> static_cast<int>(dtype) & 1u) != 0; }
};

struct OpSignature {
  std::vector<OperandRule> operands, results;
};

const OpSignature& op_signature(OpCode code);

// How many of `count` values each rule of the list takes; nothing when they do not fit. `paired` is the number of
// results of an op with a second variadic group (metal4_kernel: one result shape per result), else 0.
std::optional<std::vector<std::size_t>> split_values(const std::vector<OperandRule>& rules, std::size_t count,
                                                     std::size_t paired);

// A dtype set of the table ("F+F8+i1") as bits.
std::uint64_t dtype_set(std::string_view text);

}  // namespace coreai::ir
