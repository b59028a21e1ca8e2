#include <gtest/gtest.h>

#include <limits>

#include "backend/cpu/ops/op_kernel_check.h"

namespace coreai::cpu {
namespace {

using testing::ints;
using testing::OpCheck;
using testing::rounding;
using testing::scalar;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void set(NDArray& array, std::vector<std::pair<std::size_t, float>> changes) {
  std::vector<double> values(static_cast<std::size_t>(array.element_count()));
  read_as_f64(array, values);
  for (const auto& [at, value] : changes) values[at] = static_cast<double>(value);
  write_from_f64(array, values);
}

TEST(SoftmaxKernel, AgreesAlongEveryAxis) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 197, 197}, Shape{1, 1, 1}, Shape{2, 33, 100}, Shape{0, 4, 3},
                               Shape{2, 0, 3}, Shape{1, 2, 3000}}) {
      for (const std::int64_t axis : {0, 1, 2, -1}) {
        check.expect_agrees(ir::OpCode::kSoftmax, {{check.random(dtype, shape, -20.0f, 5.0f)}, scalar(axis)}, dtype,
                            dtype == DType::kF32 ? 4e-6 : rounding(dtype));
      }
    }
  }
}

TEST(SoftmaxKernel, AgreesForRowsThatAreNotFinite) {
  OpCheck check;
  for (const std::int64_t n : {3, 20}) {
    NDArray rows = check.random(DType::kF32, {6, n});
    const auto at = [n](std::int64_t r, std::int64_t i) { return static_cast<std::size_t>(r * n + i); };
    std::vector<std::pair<std::size_t, float>> changes = {{at(1, 2), kNan},  {at(2, 0), kInf},     {at(2, 2), kInf},
                                                          {at(4, 0), -kInf}, {at(5, n - 1), kInf}, {at(5, 0), kNan}};
    for (std::int64_t i = 0; i < n; ++i) changes.push_back({at(3, i), -kInf});
    set(rows, changes);
    check.expect_agrees(ir::OpCode::kSoftmax, {{rows}, scalar(1)}, DType::kF32, 4e-6);
    check.expect_agrees(ir::OpCode::kSoftmax, {{rows}, scalar(0)}, DType::kF32, 4e-6);
    set(rows, {{at(0, 1), -kInf}, {at(1, 1), -kInf}, {at(2, 1), -kInf}, {at(4, 1), -kInf}, {at(5, 1), -kInf}});
    check.expect_agrees(ir::OpCode::kSoftmax, {{rows}, scalar(0)}, DType::kF32, 4e-6);
  }
}

TEST(ReduceKernel, AgreesOverAnyAxes) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    for (const ir::OpCode code :
         {ir::OpCode::kReduceSum, ir::OpCode::kReduceMean, ir::OpCode::kReduceMax, ir::OpCode::kReduceMin}) {
      const auto agrees = [&](const Shape& shape, const std::vector<std::int64_t>& axes) {
        check.expect_agrees(code, {{check.random(dtype, shape)}, ints(axes)}, dtype,
                            dtype == DType::kF32 ? 4e-6 : rounding(dtype));
      };
      agrees({5, 7, 33}, {2});
      agrees({5, 7, 33}, {-2});
      agrees({5, 7, 33}, {0, 1});
      agrees({5, 7, 33}, {0, 1, 2});
      agrees({5, 7, 33}, {});
      agrees({3, 4, 5, 9}, {0, 2, 3});
      agrees({3, 4, 5, 9}, {0, 2});
      agrees({3, 4, 5, 9}, {1, 3});
      agrees({3, 1, 5, 1}, {2});
      agrees({3, 1, 5, 1}, {1, 2});
      agrees({300, 3}, {0});
      agrees({2, 5000}, {1});
      agrees({1, 200, 300}, {1});
      agrees({0, 3}, {1});
    }
  }
}

TEST(ReduceKernel, AgreesForEmptyAndUnusualRows) {
  OpCheck check;
  NDArray x = check.random(DType::kF32, {4, 19});
  set(x, {{3, kNan}, {20, kInf}, {40, -kInf}, {75, kNan}});
  for (const ir::OpCode code :
       {ir::OpCode::kReduceSum, ir::OpCode::kReduceMean, ir::OpCode::kReduceMax, ir::OpCode::kReduceMin}) {
    for (const std::int64_t axis : {0, 1}) {
      check.expect_agrees(code, {{x}, ints({axis})}, DType::kF32, 4e-6);
      check.expect_agrees(code, {{NDArray(DType::kF32, {axis == 0 ? 0 : 3, axis == 0 ? 3 : 0})}, ints({axis})},
                          DType::kF32, 4e-6);
    }
  }
}

TEST(ReduceKernel, FindsTheGreatest) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 300, 3}, Shape{1, 1, 1}, Shape{1, 2, 1000}}) {
      for (const std::int64_t axis : {0, 1, -1}) {
        check.expect_agrees(ir::OpCode::kArgmax, {{check.random(dtype, shape)}, scalar(axis)}, DType::kUI32, 0);
      }
    }
  }
  NDArray x = check.random(DType::kF32, {4, 19});
  set(x, {{3, kNan}, {20, kInf}, {25, kInf}, {38, kNan}, {39, 5.0f}});
  check.expect_agrees(ir::OpCode::kArgmax, {{x}, scalar(1)}, DType::kUI32, 0);
}

TEST(ReduceKernel, RefusesWhatDoesNotFit) {
  OpCheck check;
  const testing::Operand x{check.random(DType::kF32, {3, 4})};
  check.expect_refused(ir::OpCode::kReduceSum, {x, ints({2})}, NDArray(DType::kF32, {3, 1}));
  check.expect_refused(ir::OpCode::kReduceSum, {x, ints({1, -1})}, NDArray(DType::kF32, {3, 1}));
  check.expect_refused(ir::OpCode::kReduceSum, {x, ints({1})}, NDArray(DType::kF32, {1, 4}));
  check.expect_refused(ir::OpCode::kSoftmax, {x, scalar(-3)}, NDArray(DType::kF32, {3, 4}));
  check.expect_refused(ir::OpCode::kArgmax, {{NDArray(DType::kF32, {3, 0})}, scalar(1)}, NDArray(DType::kUI32, {3, 1}));
}

}  // namespace
}  // namespace coreai::cpu
