#include "coreai/base/ndarray.h"

#include <gtest/gtest.h>

#include "coreai/base/error.h"

namespace coreai {
namespace {

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype) << dtype_name(dtype);
  }
  EXPECT_FALSE(dtype_from_name("si5"));
}

TEST(DType, SubByteElementsFormOneBitStream) {
  EXPECT_EQ(dtype_bytes(DType::kUI3, 8), 3u);
  EXPECT_EQ(dtype_bytes(DType::kUI6, 4), 3u);
  EXPECT_EQ(dtype_bytes(DType::kI1, 5), 5u);
  EXPECT_EQ(dtype_bytes(DType::kSI4, 3), 2u);
}

TEST(NDArray, PackedElementsReadBackSigned) {
  for (DType dtype : {DType::kSI2, DType::kSI4, DType::kUI1, DType::kUI3, DType::kUI6, DType::kUI4}) {
    NDArray array(dtype, {7});
    const bool is_signed = dtype_class(dtype) == DTypeClass::kSigned;
    std::vector<double> values;
    for (int i = 0; i < 7; ++i) values.push_back(is_signed ? (i % 4) - 2 : i % (1 << dtype_bits(dtype)));
    write_from_f64(array, values);
    std::vector<double> back(7);
    read_as_f64(array, back);
    EXPECT_EQ(back, values) << dtype_name(dtype);
  }
}

TEST(NDArray, NarrowingSaturates) {
  NDArray array(DType::kSI8, {4});
  write_from_f64(array, std::vector<double>{300.0, -300.0, -1.9, std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(array.values<std::int8_t>()[0], 127);
  EXPECT_EQ(array.values<std::int8_t>()[1], -128);
  EXPECT_EQ(array.values<std::int8_t>()[2], -1);
  EXPECT_EQ(array.values<std::int8_t>()[3], 0);
}

TEST(NDArray, RefusesWhatDoesNotFit) {
  EXPECT_THROW(NDArray(DType::kF32, Shape{2, kDynamic}), ShapeError);
  EXPECT_THROW(NDArray(DType::kF32, Shape{1LL << 40, 1LL << 40}), ShapeError);
  EXPECT_THROW(NDArray(DType::kF32, Shape{3}, Storage::allocate(8)), ShapeError);
  NDArray read_only(DType::kF32, Shape{1}, Storage::borrow(nullptr, 4, false, nullptr));
  EXPECT_THROW(read_only.mutable_bytes(), InvalidArgumentError);
}

TEST(Shape, HoldsAnyRank) {
  const Shape nine{1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(nine.to_string(), "1x2x3x4x5x6x7x8x9");
  EXPECT_EQ(nine.element_count(), 362880);
  EXPECT_EQ(Shape{}.element_count(), 1);
  EXPECT_EQ((Shape{2, kDynamic}).to_string(), "2x?");
  EXPECT_EQ(broadcast_shapes(Shape{3, 1, 0}, Shape{2, 1}), (Shape{3, 2, 0}));
  EXPECT_FALSE(broadcast_shapes(Shape{3}, Shape{2}));
}

}  // namespace
}  // namespace coreai
