// The packed weights of one function: from the specialisation cache, else packed and kept there.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "backend/cpu/packed_weights.h"
#include "runtime/function_executor.h"
#include "runtime/specialization_cache.h"

namespace coreai::detail {

class PackedWeightsEntry {
 public:
  // Starts to read the entry, if there is one, beside the compilation that the caller goes on with.
  PackedWeightsEntry(const ExecutionResources& resources, const std::string& function,
                     const SpecializationOptions& options);

  // Waits for the entry and checks it against the plan; without one packs over the pool. Once only. Throws what
  // PackedWeights::pack throws; a bad entry is only made again.
  cpu::PackedWeights take(const compiler::Plan& plan, ThreadPool& pool, const SpecializationOptions& options);

 private:
  SpecializationCache cache_;
  std::string key_;  // empty when nothing is to be read or kept
  std::future<std::shared_ptr<Storage>> block_;
};

}  // namespace coreai::detail
