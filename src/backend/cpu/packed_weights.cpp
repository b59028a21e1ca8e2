#include "backend/cpu/packed_weights.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "coreai/base/byte_cursor.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using compiler::Plan;

constexpr std::size_t kPage = std::size_t{2} << 20;   // a huge page
constexpr std::uint64_t kMagic = 0x3153544847495743;  // "CWIGHTS1"

std::size_t aligned(std::size_t bytes) {
  return (bytes + kPackAlignment - 1) / kPackAlignment * kPackAlignment;
}

std::vector<bool> weights_of_products(const Plan& plan) {
  std::vector<bool> packed(plan.weights.size(), false);
  for (const compiler::Step& step : plan.steps) {
    if (const auto* linear = std::get_if<compiler::LinearStep>(&step.body))
      packed[static_cast<std::size_t>(linear->weight)] = true;
    if (const auto* experts = std::get_if<compiler::ExpertStep>(&step.body))
      packed[static_cast<std::size_t>(experts->weight)] = true;
  }
  return packed;
}

// Header: magic, number of weights, then offset and size of each (0 and 0 when it is not packed).
std::size_t header_bytes(const Plan& plan) {
  return aligned(16 + plan.weights.size() * 16);
}

}  // namespace

MatrixSource matrix_source(const compiler::WeightSource& w) {
  MatrixSource s;
  s.dtype = w.data.dtype();
  s.data = w.data.bytes();
  s.transposed = w.transposed;
  s.n = w.data.shape()[w.transposed ? 1 : 0];
  s.k = w.data.shape()[w.transposed ? 0 : 1];
  s.row_begin = w.first_row;
  s.row_end = w.first_row + w.rows;
  if (w.table) {
    s.table = w.table->bytes();
    s.table_dtype = w.table->dtype();
    s.table_rows = s.n / w.table->shape()[0];
    s.table_columns = s.k / w.table->shape()[1];
  }
  if (!w.scale) return s;
  s.block = s.k / w.scale->shape()[1];
  s.rows_per_scale = s.n / w.scale->shape()[0];
  s.scale_dtype = w.scale->dtype();
  s.scale = w.scale->bytes();
  s.rounded = w.rounded;
  if (w.zero) s.offset1 = w.zero->bytes();
  if (w.offset) {
    s.offset2_dtype = w.offset->dtype();
    s.offset2 = w.offset->bytes();
  }
  return s;
}

std::shared_ptr<Storage> allocate_huge(std::size_t bytes) {
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
  void* data =
      ::mmap(nullptr, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw ShapeError(fmt::format("no memory for {} bytes of packed weights", bytes));
  const auto base = (reinterpret_cast<std::uintptr_t>(data) + kPage - 1) / kPage * kPage;
  ::madvise(reinterpret_cast<void*>(base), size, MADV_HUGEPAGE);
  std::shared_ptr<void> keep(data, [size](void* p) { ::munmap(p, size + kPage); });
  return Storage::borrow(reinterpret_cast<std::byte*>(base), bytes, true, std::move(keep));
}

PackedWeights PackedWeights::pack(const Plan& plan, ThreadPool& pool, const std::function<void(double)>& progress) {
  const std::vector<bool> packed = weights_of_products(plan);
  std::vector<PackPlan> plans;
  std::vector<std::uint64_t> table(plan.weights.size() * 2, 0);
  std::size_t total = header_bytes(plan);
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (!packed[i]) continue;
    std::vector<MatrixSource> sources;
    for (const auto& w : plan.weights[i]) sources.push_back(matrix_source(w));
    plans.emplace_back(std::move(sources), PackOptions{plan.weight_gated[i], plan.weight_stacked[i]});
    table[2 * i] = total;
    table[2 * i + 1] = plans.back().size();
    total = aligned(total + plans.back().size());
  }
  const auto block = allocate_huge(total);
  const std::uint64_t head[2] = {kMagic, plan.weights.size()};
  std::memcpy(block->data(), head, sizeof head);
  const auto table_bytes = std::as_bytes(std::span(table));  // empty for a plan without weights
  std::copy(table_bytes.begin(), table_bytes.end(), block->data() + sizeof head);
  std::size_t next = 0;
  double done = 0;
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    if (!packed[i]) continue;
    const PackPlan& p = plans[next++];
    std::byte* out = block->data() + table[2 * i];
    p.write_header(out);
    pool.parallel_for(static_cast<int>(p.panels()), [&](int panel) { p.pack_panels(out, panel, panel + 1); });
    done += static_cast<double>(table[2 * i + 1]);
    if (progress) progress(done / static_cast<double>(total));
  }
  return view(plan, block, "packed weights");
}

PackedWeights PackedWeights::view(const Plan& plan, std::shared_ptr<Storage> block, std::string_view where) {
  PackedWeights out;
  ByteCursor cursor({block->data(), block->size()}, std::string(where));
  if (cursor.scalar<std::uint64_t>() != kMagic || cursor.scalar<std::uint64_t>() != plan.weights.size()) {
    cursor.fail("the packed weights belong to another plan");
  }
  const std::vector<bool> packed = weights_of_products(plan);
  out.matrices_.resize(plan.weights.size());
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    const auto offset = cursor.scalar<std::uint64_t>(), size = cursor.scalar<std::uint64_t>();
    if (!packed[i]) continue;
    if (offset % kPackAlignment || offset > block->size() || size > block->size() - offset)
      cursor.fail("a matrix lies outside its file");
    out.matrices_[i] = PackedMatrix::view({block->data() + offset, static_cast<std::size_t>(size)}, where);
    std::int64_t rows = 0;
    for (const auto& w : plan.weights[i])
      rows += plan.weight_stacked[i] ? (w.rows + kPanelRows - 1) / kPanelRows * kPanelRows : w.rows;
    if (out.matrices_[i].n() != rows || out.matrices_[i].k() != plan.weights[i][0].columns)
      cursor.fail("a matrix has other extents");
  }
  out.block_ = std::move(block);
  return out;
}

}  // namespace coreai::cpu
