// The packed matrices of a plan in one block of memory, as they are kept by the specialisation cache.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/linear.h"
#include "coreai/base/ndarray.h"
#include "coreai/base/thread_pool.h"
#include "coreai/compiler/plan.h"

namespace coreai::cpu {

// What a plan's weight is to the packer.
MatrixSource matrix_source(const compiler::WeightSource& weight);

// Immutable and thread-safe. Entry i belongs to Plan::weights[i]; weights that only an embedding reads are not packed.
class PackedWeights {
 public:
  PackedWeights() = default;

  // Packs everything into huge pages, panels shared out over the pool. Throws UnsupportedError for an element type
  // without a kernel.
  static PackedWeights pack(const compiler::Plan& plan, ThreadPool& pool, const std::function<void(double)>& progress);
  // Reads back what bytes() gave. Throws MalformedError when it does not belong to the plan.
  static PackedWeights view(const compiler::Plan& plan, std::shared_ptr<Storage> block, std::string_view where);

  const PackedMatrix& matrix(int weight) const { return matrices_[static_cast<std::size_t>(weight)]; }
  std::span<const std::byte> bytes() const { return {block_->data(), block_->size()}; }

 private:
  std::shared_ptr<Storage> block_;
  std::vector<PackedMatrix> matrices_;
};

// Memory for packed weights: anonymous huge pages where the system gives them.
std::shared_ptr<Storage> allocate_huge(std::size_t bytes);

}  // namespace coreai::cpu
