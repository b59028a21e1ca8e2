#include "runtime/packed_weights_entry.h"

#include <fmt/format.h>

#include "coreai/base/error.h"
#include "coreai/base/log.h"
#include "coreai/base/mapped_file.h"

namespace coreai::detail {
namespace {

// Raise it with every change of the packed bytes or of the matrices that a plan packs.
constexpr int kPackedVersion = 7;

// Packed bytes are the same for every CPU level; passes decide which matrices a plan joins.
std::string key_of(const ExecutionResources& resources, const std::string& function,
                   const SpecializationOptions& options) {
  if (!options.use_cache || resources.asset_hash.empty()) return {};
  const std::string name = fmt::format("coreai {}|{}|{}|{}", kPackedVersion, resources.asset_hash, function,
                                       fmt::join(options.disabled_passes, ","));
  return to_hex(sha256(std::as_bytes(std::span(name.data(), name.size()))));
}

}  // namespace

PackedWeightsEntry::PackedWeightsEntry(const ExecutionResources& resources, const std::string& function,
                                       const SpecializationOptions& options)
    : cache_(SpecializationCache::of(options)), key_(key_of(resources, function, options)) {
  if (!key_.empty()) block_ = std::async(std::launch::async, [this] { return cache_.load(key_); });
}

cpu::PackedWeights PackedWeightsEntry::take(const compiler::Plan& plan, ThreadPool& pool,
                                            const SpecializationOptions& options) {
  if (auto block = block_.valid() ? block_.get() : nullptr) {
    try {
      return cpu::PackedWeights::view(plan, std::move(block), key_);
    } catch (const Error& e) {
      log(LogLevel::kWarning, fmt::format("a cache entry is made again: {}", e.what()));
    }
  }
  auto packed = cpu::PackedWeights::pack(plan, pool, [&](double share) {
    if (options.progress) options.progress(share, "packing weights", options.progress_user);
  });
  if (!key_.empty()) cache_.store(key_, packed.bytes());
  return packed;
}

}  // namespace coreai::detail
