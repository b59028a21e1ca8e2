#include "backend/cpu/gemm.h"

#include <algorithm>

#include "backend/cpu/kernel_tables.h"

namespace coreai::cpu {
namespace {

// Columns of a chunk: their panels of one depth block stay in the second cache.
constexpr std::int64_t kColumns = 192;
// Packing a block of B costs about as much as multiplying a few rows: parts of the rows have at least this many.
constexpr std::int64_t kLeastRows = 48;
constexpr std::int64_t kChunksPerThread = 4;
constexpr std::int64_t kWidestPanel = 32;

std::int64_t parts(std::int64_t n, std::int64_t each) {
  return (n + each - 1) / each;
}

}  // namespace

const GemmKernels& gemm_kernels(Isa isa) {
  return kernel_tables(isa).gemm;
}

std::size_t GemmCut::scratch_bytes() const {
  const std::int64_t columns = parts(columns_per_chunk, kWidestPanel) * kWidestPanel;
  return static_cast<std::size_t>(columns * std::min(k, kDepth)) * sizeof(float);
}

GemmCut cut_gemm(std::int64_t m, std::int64_t k, std::int64_t n, int threads) {
  GemmCut cut{m, k, n};
  if (m <= 0 || n <= 0) return cut;
  cut.columns_per_chunk = std::min(n, kColumns);
  cut.column_chunks = parts(n, cut.columns_per_chunk);
  const std::int64_t wanted = threads == 1 ? 1 : threads * kChunksPerThread;
  const std::int64_t row_parts =
      std::clamp(parts(wanted, cut.column_chunks), std::int64_t{1}, std::max<std::int64_t>(m / kLeastRows, 1));
  cut.rows_per_chunk = parts(m, row_parts);
  cut.row_chunks = parts(m, cut.rows_per_chunk);
  return cut;
}

void gemm_chunk(const GemmKernels& kernels, const GemmCut& cut, std::int64_t chunk, const float* a,
                std::int64_t a_stride, const PanelSource& b, float* c, std::int64_t c_stride, std::byte* scratch) {
  const std::int64_t row = chunk % cut.row_chunks * cut.rows_per_chunk;
  const std::int64_t column = chunk / cut.row_chunks * cut.columns_per_chunk;
  const std::int64_t rows = std::min(cut.rows_per_chunk, cut.m - row);
  const std::int64_t columns = std::min(cut.columns_per_chunk, cut.n - column);
  float* to = c + row * c_stride + column;
  auto* panels = reinterpret_cast<float*>(scratch);
  for (std::int64_t r = 0; cut.k == 0 && r < rows; ++r) std::fill_n(to + r * c_stride, columns, 0.0f);
  for (std::int64_t k = 0; k < cut.k; k += GemmCut::kDepth) {
    const std::int64_t depth = std::min(GemmCut::kDepth, cut.k - k);
    b.pack(k, depth, column, columns, kernels.panel, panels);
    kernels.multiply(a + row * a_stride + k, a_stride, panels, to, c_stride, rows, columns, depth, k > 0);
  }
}

}  // namespace coreai::cpu
