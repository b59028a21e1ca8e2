#include "backend/cpu/ops/op_kernel.h"

namespace coreai::cpu {

std::unique_ptr<OpKernel> make_op_kernel(const compiler::GenericStep& step, Isa isa) {
  for (const auto make : {make_matmul, make_conv, make_softmax, make_reduce, make_movement, make_slice_update, make_pad,
                          make_gather, make_pool, make_interpolate, make_sort, make_cast}) {
    if (auto kernel = make(step, isa)) return kernel;
  }
  return nullptr;
}

}  // namespace coreai::cpu
