// What the recorded cases leave out: integer corners, bad shapes, huge requests. Nothing here may crash.
#include <gtest/gtest.h>

#include <limits>

#include "backend/cpu/reference/evaluator.h"
#include "backend/cpu/reference/matmul.h"
#include "coreai/base/error.h"
#include "coreai/ir/builder.h"

namespace coreai::cpu {
namespace {

// One operation on arrays, its result type given.
class ReferenceKernels : public testing::Test {
 protected:
  ReferenceKernels() : builder_(module_) {}

  std::vector<NDArray> run(ir::OpCode code, const std::vector<NDArray>& inputs, DType dtype, const Shape& shape,
                           std::vector<std::pair<std::string, ir::AttrRef>> attributes = {}) {
    ir::GraphSpec spec;
    spec.name = "g" + std::to_string(++graphs_);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      spec.inputs.push_back(
          {"x" + std::to_string(i), module_.context().tensor_type(inputs[i].dtype(), inputs[i].shape()), ""});
    }
    const ir::TypeRef type = module_.context().tensor_type(dtype, shape);
    spec.outputs.push_back({"y", type, ""});
    const ir::Graph graph = builder_.begin_graph(spec);
    const auto& arguments = graph.body().arguments;
    ir::Value* result = builder_.op1(code, {arguments.begin(), arguments.end()}, type, std::move(attributes));
    builder_.end_graph({result});
    return reference_evaluator().evaluate(*result->op, inputs);
  }
  static NDArray array(DType dtype, const Shape& shape, const std::vector<double>& values) {
    NDArray out(dtype, shape);
    write_from_f64(out, values);
    return out;
  }
  static NDArray ints(const std::vector<std::int32_t>& values) {
    return NDArray::from<std::int32_t>(DType::kSI32, {static_cast<std::int64_t>(values.size())}, values);
  }
  static NDArray scalar(std::int32_t value) { return ints({value}).reshaped(Shape{}); }

  ir::Module module_;
  ir::Builder builder_;
  int graphs_ = 0;
};

TEST_F(ReferenceKernels, IntegerDivisionHasNoTrap) {
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
  const std::vector<std::int64_t> a = {7, kLow, -9, -7, 7}, b = {7, -1, 5, 2, -2};
  const NDArray x = NDArray::from<std::int64_t>(DType::kSI64, {5}, a);
  const NDArray y = NDArray::from<std::int64_t>(DType::kSI64, {5}, b);
  const auto of = [&](ir::OpCode code) {
    const NDArray result = run(code, {x, y}, DType::kSI64, {5}).at(0);
    return std::vector<std::int64_t>(result.values<std::int64_t>().begin(), result.values<std::int64_t>().end());
  };
  EXPECT_EQ(of(ir::OpCode::kDivide), (std::vector<std::int64_t>{1, kLow, -1, -3, -3}));
  EXPECT_EQ(of(ir::OpCode::kModulo), (std::vector<std::int64_t>{0, 0, -4, -1, 1}));
  EXPECT_EQ(of(ir::OpCode::kFloorDivide), (std::vector<std::int64_t>{1, kLow, -2, -4, -4}));
  EXPECT_EQ(of(ir::OpCode::kMul)[1], kLow);
  for (const ir::OpCode code : {ir::OpCode::kDivide, ir::OpCode::kModulo, ir::OpCode::kFloorDivide}) {
    EXPECT_THROW(run(code, {x, NDArray(DType::kSI64, {5})}, DType::kSI64, {5}), InvalidArgumentError);
    EXPECT_NO_THROW(run(code, {NDArray(DType::kSI64, {0}), NDArray(DType::kSI64, {1})}, DType::kSI64, {0}));
  }
  EXPECT_EQ(run(ir::OpCode::kAbs, {x}, DType::kSI64, {5}).at(0).values<std::int64_t>()[1], kLow);
}

TEST_F(ReferenceKernels, RefusesWhatDoesNotFit) {
  const NDArray x(DType::kF32, {2, 3});
  const Shape any{kDynamic, kDynamic};
  EXPECT_THROW(run(ir::OpCode::kTranspose, {x, ints({0, 0})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kTranspose, {x, ints({0})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kReshape, {x, ints({4, -1})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kReshape, {x, ints({-1, -1})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kReshape, {x, ints({2147483647, 2147483647})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kSlice, {x, ints({0, 0}), ints({2, 3}), ints({1, 0})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kSlice, {x, ints({0}), ints({2}), ints({1})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kConcat, {scalar(2), x, x}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kConcat, {scalar(1), x, NDArray(DType::kF32, {3, 3})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kGatherNd, {x, ints({2}).reshaped({1, 1})}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kGatherNd, {x, scalar(0)}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kBatchMatmul, {x, x}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kSoftmax, {x, scalar(-3)}, DType::kF32, any), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kAdd, {x, NDArray(DType::kF16, {2, 3})}, DType::kF32, any), UnsupportedError);
  EXPECT_THROW(run(ir::OpCode::kRange, {scalar(0), scalar(9), scalar(0)}, DType::kSI32, {kDynamic}), ShapeError);
  EXPECT_THROW(run(ir::OpCode::kBroadcastTo, {x, ints({4, 3})}, DType::kF32, any), ShapeError);
}

TEST_F(ReferenceKernels, EmptyTensorsPassThrough) {
  const NDArray x(DType::kF32, {0, 3});
  EXPECT_EQ(run(ir::OpCode::kBroadcastingAdd, {x, NDArray(DType::kF32, {1, 3})}, DType::kF32, {0, 3}).at(0).shape(),
            (Shape{0, 3}));
  EXPECT_EQ(run(ir::OpCode::kSlice, {x, ints({0, 0}), ints({9, 2}), ints({-1, 1})}, DType::kF32, {0, 2}).at(0).shape(),
            (Shape{0, 2}));
  EXPECT_EQ(run(ir::OpCode::kReduceMax, {x, ints({0})}, DType::kF32, {1, 3}).at(0).values<float>()[0],
            -std::numeric_limits<float>::infinity());
  const NDArray product = run(ir::OpCode::kBatchMatmul, {NDArray(DType::kF32, {2, 0}), x}, DType::kF32, {2, 3}).at(0);
  EXPECT_EQ(product.values<float>()[5], 0.0f);
}

TEST_F(ReferenceKernels, SubByteElementsMoveAsTheyAre) {
  const NDArray x = array(DType::kSI4, {2, 3}, {-8, -1, 0, 1, 5, 7});
  const NDArray turned = run(ir::OpCode::kTranspose, {x, ints({1, 0})}, DType::kSI4, {3, 2}).at(0);
  std::vector<double> values(6);
  read_as_f64(turned, values);
  EXPECT_EQ(values, (std::vector<double>{-8, 1, -1, 5, 0, 7}));
}

// A row's result has the same bits whatever rows stand beside it.
TEST(ReferenceMatmul, RowsDoNotDependOnEachOther) {
  constexpr std::int64_t kM = 11, kK = 301, kN = 37;
  std::vector<float> a(kM * kK), b(kK * kN), all(kM * kN), one(kN);
  std::uint32_t seed = 1;
  const auto next = [&seed] {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<float>(seed >> 8) / 16777216.0f - 0.5f;
  };
  for (float& v : a) v = next();
  for (float& v : b) v = next();
  reference::matmul_f32(a.data(), b.data(), all.data(), kM, kK, kN);
  for (std::int64_t r = 0; r < kM; ++r) {
    reference::matmul_f32(a.data() + r * kK, b.data(), one.data(), 1, kK, kN);
    for (std::int64_t j = 0; j < kN; ++j) {
      double exact = 0;
      for (std::int64_t k = 0; k < kK; ++k) {
        exact += static_cast<double>(a[static_cast<std::size_t>(r * kK + k)]) *
                 static_cast<double>(b[static_cast<std::size_t>(k * kN + j)]);
      }
      EXPECT_EQ(one[static_cast<std::size_t>(j)], all[static_cast<std::size_t>(r * kN + j)]);
      EXPECT_NEAR(one[static_cast<std::size_t>(j)], exact, 1e-4);
    }
  }
}

}  // namespace
}  // namespace coreai::cpu
