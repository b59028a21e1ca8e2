#include "backend/cpu/kernel_tables.h"

#include <fmt/format.h>

#include "coreai/base/error.h"

namespace coreai::cpu {

const KernelTables& kernel_tables(Isa isa) {
  if (!isa_supported(isa)) {
    throw UnsupportedError(fmt::format("this CPU cannot run the kernels of level {}", isa_name(isa)), "kernel_tables",
                           "use detect_isa()");
  }
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return kKernelsAvx2;
  if (isa == Isa::kAvx512) return kKernelsAvx512;
#endif
  return kKernelsPortable;
}

const RowKernels& row_kernels(Isa isa) {
  return kernel_tables(isa).rows;
}

EwRun elementwise_kernel(Isa isa) {
  return kernel_tables(isa).elementwise;
}

}  // namespace coreai::cpu
