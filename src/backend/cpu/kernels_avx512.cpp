// The attention, row, element-wise and product kernels of one instruction-set level. The order of the includes matters:
// each builds on those above.
#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/simd_avx512.h"

#include "backend/cpu/simd_math.h"

#include "backend/cpu/attention_impl.h"
#include "backend/cpu/row_impl.h"

#include "backend/cpu/delta_rule_impl.h"
#include "backend/cpu/elementwise_impl.h"

#include "backend/cpu/gemm_impl.h"
#include "backend/cpu/reduce_impl.h"
#include "backend/cpu/taps_impl.h"

namespace coreai::cpu {

const KernelTables kKernelsAvx512 = {kAttentionKernels, kRowKernels,    elementwise_run,  kGemmKernels,
                                     kTapKernels,       kReduceKernels, delta_rule_kernel};

}  // namespace coreai::cpu
