#include "backend/cpu/delta_rule.h"

#include <algorithm>

namespace coreai::cpu {
namespace {

std::int64_t blocks_of(const DeltaRuleArgs& args) {
  return (args.value_dim + kDeltaColumns - 1) / kDeltaColumns;
}

}  // namespace

std::int64_t delta_units(const DeltaRuleArgs& args) {
  return args.batch * args.heads * blocks_of(args);
}

std::int64_t delta_units_per_chunk(const DeltaRuleArgs& args, std::int64_t chunks) {
  const std::int64_t each = std::max<std::int64_t>((delta_units(args) + chunks - 1) / chunks, 1);
  const std::int64_t blocks = blocks_of(args);
  return each < blocks ? each : (each + blocks - 1) / blocks * blocks;
}

std::size_t delta_scratch_bytes(const DeltaRuleArgs& args) {
  const std::int64_t states = blocks_of(args) * kDeltaColumns;
  return static_cast<std::size_t>(args.key_dim * (states + 2 * kDeltaTokens) + kDeltaTokens) * sizeof(float);
}

}  // namespace coreai::cpu
