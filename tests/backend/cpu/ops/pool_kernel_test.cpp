#include <gtest/gtest.h>

#include <limits>

#include "backend/cpu/ops/op_kernel_check.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;
using testing::ints;
using testing::OpCheck;
using testing::Operand;
using testing::rounding;
using testing::scalar;
using List = std::vector<std::int64_t>;

TEST(PoolKernel, AgreesForEveryForm) {
  struct Case {
    Shape x;
    List window, stride, dilation;
  };
  const Case cases[] = {
      {{2, 3, 9, 20}, {3, 3}, {2, 2}, {1, 1}},
      {{2, 3, 9, 20}, {2, 2}, {2, 2}, {1, 1}},
      {{1, 5, 9, 21}, {3, 2}, {1, 1}, {2, 3}},
      {{1, 5, 9, 21}, {9, 21}, {1, 1}, {1, 1}},
      {{1, 2, 100, 5}, {90, 1}, {3, 1}, {1, 1}},  // more rows than one block of sums
      {{1, 2, 5, 6, 7}, {2, 3, 2}, {2, 1, 3}, {1, 2, 1}},
      {{0, 2, 5, 6}, {2, 3}, {2, 1}, {1, 1}},
  };
  OpCheck check;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Case& c : cases) {
      const bool flat = c.x.rank() == 4;
      std::vector<Operand> operands = {{check.random(dtype, c.x)}, ints(c.window), ints(c.stride), ints(c.dilation)};
      check.expect_agrees(flat ? OpCode::kSumPool2d : OpCode::kSumPool3d, operands, dtype, rounding(dtype));
      for (const std::int64_t up : {0, 1}) {
        operands.resize(4);
        operands.push_back(scalar(up));
        check.expect_agrees(flat ? OpCode::kMaxPool2d : OpCode::kMaxPool3d, operands, dtype, 0);
      }
    }
  }
}

TEST(PoolKernel, KeepsNan) {
  OpCheck check;
  NDArray x = check.random(DType::kF32, {1, 1, 6, 30});
  std::vector<double> values(180);
  read_as_f64(x, values);
  values[3] = values[95] = std::numeric_limits<double>::quiet_NaN();
  write_from_f64(x, values);
  check.expect_agrees(OpCode::kMaxPool2d, {{x}, ints({2, 2}), ints({2, 2}), ints({1, 1}), scalar(0)}, DType::kF32, 0);
}

TEST(PoolKernel, RefusesWhatDoesNotFit) {
  OpCheck check;
  const auto refuses = [&](const List& window, const List& stride, const Shape& result) {
    check.expect_refused(OpCode::kSumPool2d,
                         {{check.random(DType::kF32, {1, 2, 6, 6})}, ints(window), ints(stride), ints({1, 1})},
                         NDArray(DType::kF32, result));
  };
  refuses({7, 2}, {1, 1}, {1, 2, 1, 5});
  refuses({2, 2}, {0, 1}, {1, 2, 5, 5});
  refuses({2}, {1, 1}, {1, 2, 5, 5});
  refuses({2, 2}, {1, 1}, {1, 2, 5, 6});
}

Operand reals(const List& quarters) {
  NDArray array(DType::kF32, {static_cast<std::int64_t>(quarters.size())});
  std::vector<double> values;
  for (const std::int64_t q : quarters) values.push_back(static_cast<double>(q) / 4);
  write_from_f64(array, values);
  return {array, true};
}

TEST(InterpolateKernel, AgreesForEveryForm) {
  struct Case {
    Shape x;
    List out, scale, offset;  // in quarters
  };
  const Case cases[] = {
      {{2, 3, 9, 20}, {2, 3, 18, 40}, {4, 4, 8, 8}, {0, 0, 0, 0}},
      {{2, 3, 9, 20}, {2, 3, 5, 31}, {4, 4, 2, 6}, {0, 0, 1, -1}},
      {{5}, {17}, {12}, {0}},
      {{2, 3, 4, 5, 6}, {3, 3, 7, 10, 9}, {6, 4, 7, 8, 6}, {0, 0, 1, 2, 0}},
      {{1, 1}, {3, 4}, {12, 16}, {0, 0}},
      {{2, 3}, {0, 4}, {4, 4}, {0, 0}},
      {{2, 3}, {2, 4}, {0, 4}, {0, 0}},  // a scale of 0
  };
  OpCheck check;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Case& c : cases) {
      for (const std::uint64_t mode : {0, 1}) {
        check.expect_agrees(
            OpCode::kInterpolate, {{check.random(dtype, c.x)}, ints(c.out), reals(c.scale), reals(c.offset)}, dtype,
            mode == 1 ? 0 : rounding(dtype),
            {{"interpolation_mode", check.module().context().enum_attr(ir::AttrCode::kInterpolationMode, mode)}});
      }
    }
  }
}

TEST(InterpolateKernel, RefusesWhatDoesNotFit) {
  OpCheck check;
  const Operand x{check.random(DType::kF32, {2, 3})}, one = reals({4, 4}), none = reals({0, 0});
  check.expect_refused(OpCode::kInterpolate, {x, ints({2, 3}), one, reals({0})}, NDArray(DType::kF32, {2, 3}));
  check.expect_refused(OpCode::kInterpolate, {x, ints({2, 4}), one, none}, NDArray(DType::kF32, {2, 3}));
  check.expect_refused(OpCode::kInterpolate, {{NDArray(DType::kF32, {2, 0})}, ints({2, 3}), one, none},
                       NDArray(DType::kF32, {2, 3}));
}

}  // namespace
}  // namespace coreai::cpu
