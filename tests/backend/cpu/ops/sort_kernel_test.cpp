#include <gtest/gtest.h>

#include <limits>

#include "backend/cpu/ops/op_kernel_check.h"

namespace coreai::cpu {
namespace {

using testing::OpCheck;
using testing::scalar;

testing::Operand flag(bool value) {
  NDArray array(DType::kI1, Shape{});
  write_from_f64(array, std::vector<double>{value ? 1.0 : 0.0});
  return {array, true};
}

// Few distinct values, so that ties are many.
NDArray coarse(OpCheck& check, DType dtype, const Shape& shape) {
  NDArray out = check.random(dtype, shape, -8.0f, 8.0f);
  std::vector<double> values(static_cast<std::size_t>(out.element_count()));
  read_as_f64(out, values);
  for (double& v : values) v = std::round(v);
  write_from_f64(out, values);
  return out;
}

TEST(SortKernel, AgreesAlongEveryAxisInBothDirections) {
  OpCheck check;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kSI32}) {
    for (const Shape& shape : {Shape{3, 5, 7}, Shape{1, 40, 128}, Shape{1, 1, 1}, Shape{2, 0, 3}, Shape{700, 2, 3}}) {
      for (const std::int64_t axis : {0, 1, 2, -1}) {
        for (const bool descending : {false, true}) {
          const NDArray x = coarse(check, dtype, shape);
          const std::vector<testing::Operand> operands = {{x}, scalar(axis), flag(descending), flag(true)};
          check.expect_agrees(ir::OpCode::kSort, operands, dtype, 0);
          check.expect_agrees(ir::OpCode::kArgsort, operands, DType::kSI32, 0);
          check.expect_agrees(ir::OpCode::kArgsort, operands, DType::kUI32, 0);
        }
      }
    }
  }
}

TEST(SortKernel, PutsNanLastAndTakesZerosForEqual) {
  OpCheck check;
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  NDArray x(DType::kF32, {2, 8});
  write_from_f64(x, std::vector<double>{nan, 1, -0.0, 0.0, inf, nan, -inf, -0.0, 2, 2, nan, -inf, 0.0, -0.0, inf, 1});
  for (const bool descending : {false, true}) {
    const std::vector<testing::Operand> operands = {{x}, scalar(1), flag(descending), flag(true)};
    check.expect_agrees(ir::OpCode::kSort, operands, DType::kF32, 0);
    check.expect_agrees(ir::OpCode::kArgsort, operands, DType::kSI32, 0);
  }
}

TEST(SortKernel, RefusesAnAxisOutside) {
  OpCheck check;
  const NDArray x = check.random(DType::kF32, {2, 3});
  check.expect_refused(ir::OpCode::kSort, {{x}, scalar(2), flag(true), flag(true)}, x);
}

TEST(CastKernel, ClampsTruncatesAndKeeps) {
  OpCheck check;
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {0,     1,     -1,    127,    128,      255,          256,           -129,
                                      32767, 32768, 65535, 65536,  16777217, 2147483647.0, -2147483648.0, 4294967295.0,
                                      0.5,   -0.5,  1.999, -1.999, 3e9,      -3e9,         nan,           inf,
                                      -inf};
  const DType types[] = {DType::kUI8, DType::kSI8, DType::kUI16, DType::kSI16, DType::kUI32, DType::kSI32, DType::kF32};
  for (const DType from : types) {
    NDArray x(from, {5, static_cast<std::int64_t>(values.size())});
    std::vector<double> all;
    for (int i = 0; i < 5; ++i) all.insert(all.end(), values.begin(), values.end());
    write_from_f64(x, all);
    for (const DType to : types) check.expect_agrees(ir::OpCode::kCast, {{x}}, to, 0);
  }
  // More than a chunk.
  check.expect_agrees(ir::OpCode::kCast, {{check.random(DType::kSI32, {300, 401}, -1e5f, 1e5f)}}, DType::kUI16, 0);
}

}  // namespace
}  // namespace coreai::cpu
