// The kernels of one level, each table defined in its kernels_*.cpp. Internal to the CPU back-end.
#pragma once

#include "backend/cpu/attention.h"
#include "backend/cpu/delta_rule.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/reduce.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/taps.h"

namespace coreai::cpu {

struct KernelTables {
  AttentionKernels attention;
  RowKernels rows;
  EwRun elementwise;
  GemmKernels gemm;
  TapKernels taps;
  ReduceKernels reduce;
  DeltaRuleKernel delta_rule = nullptr;
};

extern const KernelTables kKernelsPortable;
extern const KernelTables kKernelsAvx2;    // x86-64 only
extern const KernelTables kKernelsAvx512;  // x86-64 only

// Throws UnsupportedError when the level cannot run here.
const KernelTables& kernel_tables(Isa isa);

}  // namespace coreai::cpu
