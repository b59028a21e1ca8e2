// The product kernel of the reference executor.
#pragma once

#include <cstdint>

namespace coreai::cpu::reference {

// c[m, n] = a[m, k] * b[k, n], row-major and dense. Each element sums over k in ascending order in one accumulator, so
// a row does not depend on how many others there are.
void matmul_f32(const float* a, const float* b, float* c, std::int64_t m, std::int64_t k, std::int64_t n);

}  // namespace coreai::cpu::reference
