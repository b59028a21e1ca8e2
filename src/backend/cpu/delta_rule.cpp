#include "backend/cpu/delta_rule.h"

namespace coreai::cpu {

std::int64_t delta_units(const DeltaRuleArgs& args) {
  return args.batch * args.heads * ((args.value_dim + kDeltaColumns - 1) / kDeltaColumns);
}

std::size_t delta_scratch_bytes(const DeltaRuleArgs& args) {
  return static_cast<std::size_t>(args.key_dim * (kDeltaColumns + 2)) * sizeof(float);
}

}  // namespace coreai::cpu
