#include "backend/cpu/ops/op_kernel_check.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using testing::OpCheck;
using testing::rounding;

TEST(MatmulKernel, AgreesForEveryExtent) {
  OpCheck check;
  for (const std::int64_t m : {1, 2, 5, 6, 7, 13, 100})
    for (const std::int64_t k : {1, 3, 64, 257, 600})
      for (const std::int64_t n : {1, 7, 8, 9, 16, 33, 200}) {
        check.expect_agrees(ir::OpCode::kBatchMatmul,
                            {{check.random(DType::kF32, {m, k})}, {check.random(DType::kF32, {k, n})}}, DType::kF32,
                            rounding(DType::kF32));
      }
}

TEST(MatmulKernel, AgreesForBatchesAndTypes) {
  OpCheck check;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto agrees = [&](const Shape& a, const Shape& b) {
      check.expect_agrees(ir::OpCode::kBroadcastingBatchMatmul, {{check.random(dtype, a)}, {check.random(dtype, b)}},
                          dtype, rounding(dtype));
    };
    agrees({3, 4, 9, 20}, {3, 4, 20, 17});
    agrees({3, 4, 9, 20}, {20, 17});  // shared: more rows of one product
    agrees({3, 4, 9, 20}, {4, 20, 17});
    agrees({4, 9, 20}, {3, 1, 20, 17});
    agrees({1, 1, 9, 20}, {3, 4, 20, 17});
    agrees({2, 300, 33}, {2, 33, 260});
    agrees({0, 9, 20}, {0, 20, 17});
    agrees({9, 0}, {0, 17});
    agrees({3, 0, 20}, {3, 20, 17});
  }
}

TEST(MatmulKernel, LeavesOtherTypesToTheEvaluator) {
  OpCheck check;
  const NDArray a(DType::kSI32, {2, 3}), b(DType::kSI32, {3, 4});
  EXPECT_FALSE(check.has_kernel(ir::OpCode::kBatchMatmul, {{a}, {b}}, DType::kSI32));
}

}  // namespace
}  // namespace coreai::cpu
