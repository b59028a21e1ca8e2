#include <gtest/gtest.h>

#include "backend/cpu/ops/op_kernel_check.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;
using testing::ints;
using testing::OpCheck;
using testing::Operand;
using testing::scalar;

// One element type per width.
constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kUI8, DType::kSI64};
using List = std::vector<std::int64_t>;

Operand values(OpCheck& check, DType dtype, const Shape& shape) {
  return {check.random(dtype, shape, 0.0f, 200.0f)};
}

TEST(MovementKernel, Transposes) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    const auto agrees = [&](const Shape& shape, const List& order) {
      Operand permutation = ints(order);
      NDArray unsigned_order(DType::kUI32, {static_cast<std::int64_t>(order.size())});
      write_from_f64(unsigned_order, std::vector<double>(order.begin(), order.end()));
      permutation.array = unsigned_order;
      check.expect_agrees(OpCode::kTranspose, {values(check, dtype, shape), permutation}, dtype, 0);
    };
    agrees({5, 7}, {1, 0});
    agrees({64, 48}, {1, 0});
    agrees({100, 333}, {1, 0});
    agrees({2, 30, 4, 17}, {0, 2, 1, 3});
    agrees({2, 30, 4, 17}, {0, 2, 3, 1});
    agrees({2, 30, 4, 17}, {3, 2, 1, 0});
    agrees({3, 1, 5}, {1, 2, 0});
    agrees({3, 0, 5}, {1, 2, 0});
    agrees({1, 5000}, {1, 0});
  }
}

TEST(MovementKernel, SlicesAndReverses) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    const auto agrees = [&](const Shape& shape, const List& begin, const List& end, const List& step) {
      check.expect_agrees(OpCode::kSlice, {values(check, dtype, shape), ints(begin), ints(end), ints(step)}, dtype, 0);
    };
    agrees({9, 40}, {1, 3}, {8, 30}, {1, 1});
    agrees({9, 40}, {1, 3}, {8, 30}, {2, 5});
    agrees({9, 40}, {-1, -1}, {-1, -100}, {-1, -3});  // to index 0
    agrees({9, 40}, {0, 5}, {9, 5}, {1, 1});
    agrees({3, 20, 6}, {0, 10, 0}, {3, 2147483647, 6}, {1, 1, 1});
    check.expect_agrees(OpCode::kReverse, {values(check, dtype, {3, 4, 50}), ints({0, -1})}, dtype, 0);
    check.expect_agrees(OpCode::kReverse, {values(check, dtype, {3, 4, 50}), ints({1})}, dtype, 0);
  }
}

TEST(MovementKernel, JoinsAndSplits) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    for (const std::int64_t axis : {0, 1, -1}) {
      Shape a{3, 4, 5}, b{3, 4, 5}, empty{3, 4, 5};
      const std::size_t at = axis < 0 ? 2 : static_cast<std::size_t>(axis);
      b[at] = 70, empty[at] = 0;
      check.expect_agrees(OpCode::kConcat,
                          {scalar(axis), values(check, dtype, a), values(check, dtype, b), values(check, dtype, empty)},
                          dtype, 0);
      Shape whole{3, 4, 5};
      whole[at] = 70;
      check.expect_agrees(OpCode::kSplit, {values(check, dtype, whole), ints({30, 0, 40}), scalar(axis)}, dtype, 0, {},
                          3);
      check.expect_agrees(OpCode::kSplit, {values(check, dtype, whole), scalar(32), scalar(axis)}, dtype, 0, {}, 3);
    }
    check.expect_agrees(OpCode::kConcat, {scalar(0), values(check, dtype, Shape{}), values(check, dtype, {2})}, dtype,
                        0);
  }
}

TEST(MovementKernel, Repeats) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    check.expect_agrees(OpCode::kBroadcastTo, {values(check, dtype, {3, 1, 5}), ints({2, 3, 40, 5})}, dtype, 0);
    check.expect_agrees(OpCode::kBroadcastTo, {values(check, dtype, {3, 4, 1}), ints({3, 4, 50})}, dtype, 0);
    check.expect_agrees(OpCode::kBroadcastTo, {values(check, dtype, Shape{}), ints({3, 50})}, dtype, 0);
    check.expect_agrees(OpCode::kBroadcastTo, {values(check, dtype, {1, 1}), ints({0, 3})}, dtype, 0);
    check.expect_agrees(OpCode::kBroadcastInDims, {values(check, dtype, {3, 1, 5, 1}), ints({30, 9}), ints({1, -1})},
                        dtype, 0);
    check.expect_agrees(OpCode::kTile, {values(check, dtype, {3, 4, 50}), ints({2, 3})}, dtype, 0);
    check.expect_agrees(OpCode::kTile, {values(check, dtype, {3, 1, 5}), ints({2, 1, 3})}, dtype, 0);
    check.expect_agrees(OpCode::kTile, {values(check, dtype, {3, 4}), ints({0, 2})}, dtype, 0);
  }
}

TEST(MovementKernel, KeepsTheOrder) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    check.expect_agrees(OpCode::kReshape, {values(check, dtype, {30, 40}), ints({5, -1, 8})}, dtype, 0);
    check.expect_agrees(OpCode::kExpandDims, {values(check, dtype, {30, 40}), ints({0, 2})}, dtype, 0);
    check.expect_agrees(OpCode::kShrinkDims, {values(check, dtype, {1, 40, 1}), ints({0, 2})}, dtype, 0);
  }
}

TEST(MovementKernel, ReplacesAPart) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    const auto agrees = [&](const Shape& shape, const List& begin, const List& end, const List& step,
                            const Shape& update) {
      check.expect_agrees(
          OpCode::kSliceUpdate,
          {values(check, dtype, shape), ints(begin), ints(end), ints(step), values(check, dtype, update)}, dtype, 0);
    };
    agrees({9, 40}, {1, 3}, {8, 30}, {1, 1}, {7, 27});
    agrees({9, 40}, {1, 3}, {8, 30}, {2, 5}, {4, 6});
    agrees({9, 40}, {-1, -1}, {-1, -1}, {-2, -1}, {5, 40});
    agrees({2, 9, 8}, {0, 4, 0}, {2, 5, 8}, {1, 1, 1}, {2, 1, 8});
    agrees({2, 9}, {0, 4}, {2, 4}, {1, 1}, {2, 0});
  }
}

TEST(MovementKernel, Pads) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    for (const std::uint64_t mode : {0, 1, 2, 3, 4}) {
      const auto agrees = [&](const Shape& shape, const List& padding) {
        check.expect_agrees(OpCode::kPad, {values(check, dtype, shape), ints(padding), values(check, dtype, Shape{})},
                            dtype, 0,
                            {{"padding_mode", check.module().context().enum_attr(ir::AttrCode::kPaddingMode, mode)}});
      };
      agrees({3, 4, 50}, {1, 2, 0, 3, 5, 4});
      agrees({3, 4, 50}, {0, 0, 2, 0, 0, 0});
      agrees({20}, {3, 0});
    }
    check.expect_agrees(OpCode::kPad, {values(check, dtype, {2, 0}), ints({1, 1, 2, 3}), values(check, dtype, Shape{})},
                        dtype, 0,
                        {{"padding_mode", check.module().context().enum_attr(ir::AttrCode::kPaddingMode, 1)}});
  }
}

Operand indices(DType dtype, const Shape& shape, const List& elements) {
  NDArray array(dtype, shape);
  std::vector<double> all;
  for (std::int64_t i = 0; i < array.element_count(); ++i)
    all.push_back(static_cast<double>(elements[static_cast<std::size_t>(i) % elements.size()]));
  write_from_f64(array, all);
  return {array};
}

TEST(MovementKernel, Gathers) {
  OpCheck check;
  for (const DType dtype : kTypes) {
    for (const DType index : {DType::kSI32, DType::kSI64}) {
      check.expect_agrees(OpCode::kGatherNd,
                          {values(check, dtype, {5, 6, 40}), indices(index, {7, 3, 2}, {4, -6, 0, 5, -5, 3})}, dtype,
                          0);
      check.expect_agrees(OpCode::kGatherNd, {values(check, dtype, {5, 6}), indices(index, {300, 1}, {4, -5, 0})},
                          dtype, 0);
      check.expect_agrees(OpCode::kGatherNd, {values(check, dtype, {5, 6}), indices(index, {3, 2}, {4, -5})}, dtype, 0);
      check.expect_agrees(OpCode::kGatherNd, {values(check, dtype, {5, 6}), indices(index, {3, 0}, {0})}, dtype, 0);
      for (const std::int64_t axis : {0, 1, -1}) {
        check.expect_agrees(
            OpCode::kGatherAlongAxis,
            {values(check, dtype, {5, 6, 40}), indices(index, {4, 5, 30}, {4, -5, 0, 3, 2, 1}), scalar(axis)}, dtype,
            0);
      }
    }
  }
}

TEST(MovementKernel, RefusesIndicesOutside) {
  OpCheck check;
  const auto refuses = [&](std::int64_t index) {
    check.expect_refused(OpCode::kGatherNd,
                         {values(check, DType::kF32, {5, 6}), indices(DType::kSI32, {3, 1}, {0, index, 1})},
                         NDArray(DType::kF32, {3, 6}));
    check.expect_refused(OpCode::kGatherAlongAxis,
                         {values(check, DType::kF32, {5, 6}), indices(DType::kSI32, {3, 1}, {0, index, 1}), scalar(0)},
                         NDArray(DType::kF32, {3, 1}));
  };
  for (const std::int64_t index : {std::int64_t{5}, std::int64_t{-6}, std::int64_t{2147483647}}) refuses(index);
}

TEST(MovementKernel, RefusesWhatDoesNotFit) {
  OpCheck check;
  const Operand x = values(check, DType::kF32, {3, 4});
  const auto refuses = [&](OpCode code, std::vector<Operand> rest, const Shape& result) {
    rest.insert(rest.begin(), x);
    check.expect_refused(code, rest, NDArray(DType::kF32, result));
  };
  refuses(OpCode::kTranspose, {ints({0, 0})}, {3, 3});
  refuses(OpCode::kTranspose, {ints({1, 0})}, {3, 4});
  refuses(OpCode::kSlice, {ints({0, 0}), ints({3, 4}), ints({1, 0})}, {3, 4});
  refuses(OpCode::kSlice, {ints({0, 0}), ints({3, 4}), ints({1, 1})}, {3, 3});
  refuses(OpCode::kBroadcastTo, {ints({3, 5})}, {3, 5});
  refuses(OpCode::kTile, {ints({2, 2})}, {6, 4});
  refuses(OpCode::kReshape, {ints({3, 5})}, {3, 5});
  refuses(OpCode::kPad, {ints({0, 1, -1, 0}), values(check, DType::kF32, Shape{})}, {4, 3});
  refuses(OpCode::kSliceUpdate, {ints({0, 0}), ints({3, 4}), ints({1, 1}), values(check, DType::kF32, {3, 3})}, {3, 4});
}

}  // namespace
}  // namespace coreai::cpu
