// Dense products in f32: C[m, n] = A[m, k] B[k, n]. B is packed on the way into panels of a few columns, by whoever
// knows where it lies: a matrix, or the taps of a convolution. Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication" (2008).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/isa.h"

namespace coreai::cpu {

// The kernels of one level.
struct GemmKernels {
  std::int64_t panel = 0;  // columns of a panel
  // C[m, n] (+)= A[m, depth] P[depth, n]. A and C are row-major with strides in elements; P is in panels, the last one
  // filled up with anything finite. Every element of C is one chain of fused multiply-adds in ascending depth.
  void (*multiply)(const float* a, std::int64_t a_stride, const float* panels, float* c, std::int64_t c_stride,
                   std::int64_t m, std::int64_t n, std::int64_t depth, bool accumulate) = nullptr;
};
const GemmKernels& gemm_kernels(Isa isa);

// Writes B[k_begin .. + depth, n_begin .. + n] as panels: [ceil(n / panel)][depth][panel].
class PanelSource {
 public:
  virtual ~PanelSource() = default;
  virtual void pack(std::int64_t k_begin, std::int64_t depth, std::int64_t n_begin, std::int64_t n, std::int64_t panel,
                    float* panels) const = 0;
};

// How a product is cut: chunk = (part of the rows, part of the columns), each packing its own part of B.
struct GemmCut {
  static constexpr std::int64_t kDepth = 256;  // of one block of panels: 16 to 32 KiB each, in the first cache
  std::int64_t m = 0, k = 0, n = 0;
  std::int64_t rows_per_chunk = 1, columns_per_chunk = 1, row_chunks = 0, column_chunks = 0;
  std::int64_t chunks() const { return row_chunks * column_chunks; }
  std::size_t scratch_bytes() const;
};
GemmCut cut_gemm(std::int64_t m, std::int64_t k, std::int64_t n, int threads);
// `scratch`: cut.scratch_bytes(), 64-byte aligned. With k = 0 the chunk is zeros.
void gemm_chunk(const GemmKernels& kernels, const GemmCut& cut, std::int64_t chunk, const float* a,
                std::int64_t a_stride, const PanelSource& b, float* c, std::int64_t c_stride, std::byte* scratch);

}  // namespace coreai::cpu
