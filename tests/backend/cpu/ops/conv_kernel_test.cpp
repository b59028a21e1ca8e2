#include <gtest/gtest.h>

#include "backend/cpu/ops/op_kernel_check.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using testing::ints;
using testing::OpCheck;
using testing::Operand;
using testing::rounding;
using testing::scalar;

using List = std::vector<std::int64_t>;

struct Case {
  Shape x, w;
  List stride, dilation;
  std::int64_t groups = 1;
};

// Sums of some hundred products, in another order.
double tolerance(DType dtype) {
  return dtype == DType::kF32 ? 1e-5 : rounding(dtype);
}

void expect_conv(OpCheck& check, const Case& c, DType dtype, bool known_weight) {
  const auto code = c.x.rank() == 4 ? ir::OpCode::kConv2d : ir::OpCode::kConv3d;
  check.expect_agrees(code,
                      {{check.random(dtype, c.x)},
                       {check.random(dtype, c.w), known_weight},
                       ints(c.stride),
                       ints(c.dilation),
                       scalar(c.groups)},
                      dtype, tolerance(dtype));
}

const Case kCases[] = {
    {{1, 3, 9, 11}, {5, 3, 3, 3}, {1, 1}, {1, 1}},
    {{2, 7, 13, 37}, {70, 7, 3, 3}, {1, 1}, {1, 1}},
    {{1, 40, 16, 16}, {96, 40, 3, 3}, {1, 1}, {1, 1}},  // more taps than one depth block
    {{1, 5, 14, 15}, {6, 5, 3, 2}, {2, 3}, {1, 1}},
    {{1, 5, 14, 15}, {6, 5, 3, 2}, {1, 1}, {2, 3}},
    {{1, 3, 33, 32}, {20, 3, 16, 16}, {16, 16}, {1, 1}},  // patches
    {{2, 17, 5, 21}, {9, 17, 1, 1}, {1, 1}, {1, 1}},      // the planes are the matrix
    {{1, 8, 7, 9}, {4, 8, 1, 1}, {2, 2}, {1, 1}},
    {{1, 12, 9, 10}, {8, 3, 3, 3}, {1, 1}, {1, 1}, 4},
    {{1, 6, 1, 50}, {12, 2, 1, 7}, {1, 2}, {1, 1}, 3},
    {{0, 3, 9, 11}, {5, 3, 3, 3}, {1, 1}, {1, 1}},
    {{1, 3, 9, 11}, {0, 3, 3, 3}, {1, 1}, {1, 1}},
    {{1, 4, 20, 3}, {5, 4, 3, 3}, {1, 1}, {1, 1}},  // one column
    {{1, 2, 5, 6, 7}, {3, 2, 2, 3, 3}, {1, 1, 1}, {1, 1, 1}},
    {{1, 3, 4, 28, 28}, {10, 3, 2, 14, 14}, {2, 14, 14}, {1, 1, 1}},
    {{2, 4, 5, 6, 7}, {4, 2, 2, 2, 2}, {2, 1, 2}, {2, 2, 1}, 2},
};
// One input channel per group.
const Case kDepthwise[] = {
    {{1, 5, 9, 11}, {5, 1, 3, 3}, {1, 1}, {1, 1}, 5},
    {{2, 3, 40, 100}, {6, 1, 5, 5}, {1, 1}, {1, 1}, 3},
    {{1, 3, 20, 18}, {3, 1, 3, 3}, {2, 2}, {1, 1}, 3},
    {{1, 3, 20, 18}, {3, 1, 3, 3}, {2, 1}, {2, 3}, 3},
    {{1, 16, 1, 70}, {16, 1, 1, 9}, {1, 1}, {1, 1}, 16},
    {{1, 4, 6, 5}, {4, 1, 3, 3}, {1, 1}, {1, 1}, 4},
    {{1, 2, 5, 6, 9}, {4, 1, 2, 3, 3}, {1, 1, 1}, {2, 1, 1}, 2},
};

TEST(ConvKernel, AgreesForEveryForm) {
  OpCheck check;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (const bool known : {true, false}) {
      for (const Case& c : kCases) expect_conv(check, c, dtype, known);
      for (const Case& c : kDepthwise) expect_conv(check, c, dtype, known);
    }
}

struct Transposed {
  Shape x, w;
  List stride, padding, dilation, extra;
  std::int64_t groups = 1;
};

std::vector<Operand> operands(OpCheck& check, const Transposed& c, DType dtype) {
  return {{check.random(dtype, c.x)},
          {check.random(dtype, c.w), true},
          ints(c.stride),
          ints(c.padding),
          ints(c.dilation),
          ints(c.extra),
          scalar(c.groups)};
}

TEST(ConvKernel, AgreesTransposed) {
  const Transposed cases[] = {
      {{1, 3, 5, 7}, {3, 4, 2, 2}, {2, 2}, {0, 0}, {1, 1}, {0, 0}},
      {{2, 3, 5, 7}, {3, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}},
      {{1, 5, 6, 19}, {5, 70, 3, 4}, {2, 3}, {1, 2}, {1, 1}, {1, 2}},
      {{1, 4, 6, 5}, {4, 3, 3, 3}, {3, 2}, {0, 1}, {2, 3}, {0, 0}, 2},
      {{1, 4, 6, 5}, {4, 3, 1, 1}, {3, 2}, {0, 0}, {1, 1}, {2, 1}},  // pixels without a tap are zeros
      {{1, 2, 1, 2}, {2, 1, 1, 2}, {5, 9}, {0, 4}, {1, 1}, {0, 0}},
      {{1, 60, 9, 9}, {60, 8, 4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}},
      {{1, 2, 3, 4, 5}, {2, 3, 2, 3, 2}, {2, 1, 2}, {0, 1, 0}, {1, 1, 2}, {1, 0, 0}},
      {{0, 3, 5, 7}, {3, 4, 2, 2}, {2, 2}, {0, 0}, {1, 1}, {0, 0}},
  };
  OpCheck check;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Transposed& c : cases) {
      const auto code = c.x.rank() == 4 ? ir::OpCode::kConvTranspose2d : ir::OpCode::kConvTranspose3d;
      check.expect_agrees(code, operands(check, c, dtype), dtype, tolerance(dtype));
    }
  }
}

// What lies outside the input is not in the sum: an infinite weight makes NaN only of zeros and NaNs that are there.
TEST(ConvKernel, AnInfiniteWeightReachesNoPixelOutside) {
  const Transposed cases[] = {
      {{1, 2, 5, 7}, {2, 3, 3, 3}, {1, 1}, {0, 0}, {1, 1}, {0, 0}},
      {{1, 2, 5, 19}, {2, 70, 3, 4}, {2, 3}, {1, 2}, {1, 1}, {1, 2}},
      {{1, 4, 6, 5}, {4, 3, 3, 3}, {3, 2}, {0, 1}, {2, 3}, {0, 0}, 2},
      {{1, 2, 3, 4, 5}, {2, 3, 2, 3, 2}, {2, 1, 2}, {0, 1, 0}, {1, 1, 2}, {1, 0, 0}},
  };
  OpCheck check;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Transposed& c : cases) {
      std::vector<Operand> all = operands(check, c, dtype);
      NDArray& weight = all[1].array;
      std::vector<double> values(static_cast<std::size_t>(weight.element_count()));
      read_as_f64(weight, values);
      values[0] = INFINITY;
      write_from_f64(weight, values);
      const auto code = c.x.rank() == 4 ? ir::OpCode::kConvTranspose2d : ir::OpCode::kConvTranspose3d;
      check.expect_agrees(code, all, dtype, tolerance(dtype));
    }
  }
}

TEST(ConvKernel, RefusesWhatDoesNotFit) {
  OpCheck check;
  const auto refuses = [&](const Case& c, const Shape& result) {
    check.expect_refused(ir::OpCode::kConv2d,
                         {{check.random(DType::kF32, c.x)},
                          {check.random(DType::kF32, c.w)},
                          ints(c.stride),
                          ints(c.dilation),
                          scalar(c.groups)},
                         NDArray(DType::kF32, result));
  };
  refuses({{1, 3, 9, 9}, {5, 2, 3, 3}, {1, 1}, {1, 1}}, {1, 5, 7, 7});
  refuses({{1, 3, 9, 9}, {5, 3, 3, 3}, {0, 1}, {1, 1}}, {1, 5, 7, 7});
  refuses({{1, 3, 9, 9}, {5, 3, 3, 3}, {1}, {1, 1}}, {1, 5, 7, 7});
  refuses({{1, 3, 9, 9}, {5, 3, 3, 3}, {1, 1}, {5, 1}}, {1, 5, 7, 7});
  refuses({{1, 3, 9, 9}, {5, 3, 3, 3}, {1, 1}, {1, 1}, 2}, {1, 5, 7, 7});
  refuses({{1, 3, 9, 9}, {5, 3, 3, 3}, {1, 1}, {1, 1}}, {1, 5, 7, 8});
  refuses({{1, 3, 9, 9}, {5, 3, 0, 3}, {1, 1}, {1, 1}}, {1, 5, 7, 7});
}

}  // namespace
}  // namespace coreai::cpu
