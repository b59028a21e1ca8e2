#include "coreai/ir/unknown_op.h"

#include <algorithm>

namespace coreai::ir {

const Block* stand_in_body(const Op& op) {
  if (op.code != OpCode::kSerializationOpaque || op.regions.size() != 1 || op.regions[0].blocks.size() != 1) {
    return nullptr;
  }
  const Block& block = *op.regions[0].blocks[0];
  if (block.ops.empty()) return nullptr;
  const Op& last = *block.ops.back();
  if (last.code != OpCode::kYield && last.code != OpCode::kOutput) return nullptr;
  // A downgraded file gives the results of a newer operation opaque types, of which nothing can be said.
  const auto fits = [](const Value* inside, const Value* outside) {
    return inside->type == outside->type || outside->type->code() == TypeCode::kSerializationOpaqueType;
  };
  const bool whole =
      std::ranges::equal(block.arguments, op.operands, fits) && std::ranges::equal(last.operands, op.results, fits);
  return whole ? &block : nullptr;
}

}  // namespace coreai::ir
