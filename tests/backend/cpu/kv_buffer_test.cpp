#include "backend/cpu/kv_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"
#include "kernel_test_support.h"

namespace coreai::cpu {
namespace {

using testing::Random;

struct Case {
  KvRole role;
  DType dtype;
  std::int64_t dim;
};
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const KvRole role : {KvRole::kKey, KvRole::kValue, KvRole::kPlain}) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      for (const std::int64_t dim : {1, 7, 64, 130, 600}) out.push_back({role, dtype, dim});
    }
  }
  return out;
}

float rounded(DType dtype, float x) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(x));
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(x));
  return x;
}

TEST(KvBuffer, StoresRoundedRowsAndConvertsToAndFromArrays) {
  for (const Case& c : cases()) {
    const std::int64_t layers = 2, heads = 3, positions = 530;
    KvBuffer buffer(c.role, c.dtype, {layers, heads, c.dim}, positions);
    Random random(static_cast<std::uint64_t>(c.dim));
    const std::int64_t first = 250, count = 20;
    const std::vector<float> rows = random.values(static_cast<std::size_t>(count * (c.dim + 3)), -4.0f, 4.0f);
    buffer.store_rows(1, 2, first, count, rows.data(), c.dim + 3);

    std::vector<float> back(static_cast<std::size_t>(count * c.dim));
    buffer.load_rows(1, 2, first, count, back.data(), c.dim);
    const NDArray array = buffer.to_array();
    ASSERT_EQ(array.shape(), (Shape{layers, 1, heads, positions, c.dim}));
    std::vector<double> all(static_cast<std::size_t>(array.element_count()));
    read_as_f64(array, all);
    double other = 0;
    for (std::int64_t i = 0; i < array.element_count(); ++i) {
      const std::int64_t position = i / c.dim % positions, head = i / c.dim / positions;
      if (head == 1 * heads + 2 && position >= first && position < first + count) {
        const std::int64_t row = position - first, d = i % c.dim;
        const float want = rounded(c.dtype, rows[static_cast<std::size_t>(row * (c.dim + 3) + d)]);
        ASSERT_EQ(all[static_cast<std::size_t>(i)], static_cast<double>(want));
        ASSERT_EQ(back[static_cast<std::size_t>(row * c.dim + d)], want);
      } else {
        other = std::max(other, std::abs(all[static_cast<std::size_t>(i)]));
      }
    }
    ASSERT_EQ(other, 0.0) << "a row was written that was not stored, or memory is not zeroed";

    KvBuffer copy(c.role == KvRole::kKey ? KvRole::kValue : KvRole::kKey, c.dtype, {layers, heads, c.dim}, 0);
    copy.assign(array);
    ASSERT_EQ(copy.positions(), positions);
    const NDArray again = copy.to_array();
    ASSERT_TRUE(std::ranges::equal(again.bytes(), array.bytes()));
  }
}

TEST(KvBuffer, GrowsWithoutMovingWhatIsThere) {
  KvBuffer buffer(KvRole::kKey, DType::kF16, {4, 2, 64}, 100);
  EXPECT_EQ(buffer.block_count(), 1);
  const std::byte* before = buffer.head_block(3, 1, 0);
  std::vector<float> row(64, 1.5f), back(64);
  buffer.store_rows(3, 1, 99, 1, row.data(), 0);
  buffer.grow(2000);
  EXPECT_EQ(buffer.positions(), 2000);
  EXPECT_EQ(buffer.block_count(), 8);
  EXPECT_EQ(buffer.head_block(3, 1, 0), before);
  buffer.load_rows(3, 1, 99, 1, back.data(), 0);
  EXPECT_EQ(back, row);
  buffer.load_rows(3, 1, 1999, 1, back.data(), 0);
  EXPECT_EQ(back, std::vector<float>(64, 0.0f));
  buffer.grow(10);
  EXPECT_EQ(buffer.positions(), 2000);
  EXPECT_EQ(buffer.byte_size(), 8u * 256 * 64 * 2 * 4 * 2);
  for (std::int64_t b = 0; b < 8; ++b) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.head_block(0, 0, b)) % 64, 0u);
  }
}

TEST(KvBuffer, SharesBlocksUntilTheyAreWritten) {
  KvBuffer a(KvRole::kValue, DType::kF32, {1, 1, 8}, 700);
  const std::vector<float> ones(8, 1.0f), twos(8, 2.0f);
  a.store_rows(0, 0, 0, 700, ones.data(), 0);
  KvBuffer b = a;
  EXPECT_TRUE(a.is_shared(0));
  EXPECT_EQ(a.head_block(0, 0, 1), b.head_block(0, 0, 1));
  b.make_writable(300, 100);
  EXPECT_EQ(a.head_block(0, 0, 0), b.head_block(0, 0, 0));
  EXPECT_NE(a.head_block(0, 0, 1), b.head_block(0, 0, 1));
  EXPECT_FALSE(a.is_shared(1));
  b.store_rows(0, 0, 300, 1, twos.data(), 0);
  std::vector<float> back(8);
  a.load_rows(0, 0, 300, 1, back.data(), 0);
  EXPECT_EQ(back, ones);
  b.load_rows(0, 0, 301, 1, back.data(), 0);
  EXPECT_EQ(back, ones) << "the copy lost what the block held";
  b = KvBuffer();
  EXPECT_FALSE(a.is_shared(0));
  a.clear();
  a.load_rows(0, 0, 5, 1, back.data(), 0);
  EXPECT_EQ(back, std::vector<float>(8, 0.0f));
}

TEST(KvBuffer, ALookKeepsTheMemoryAndIsNoShare) {
  KvBuffer look;
  const std::vector<float> ones(8, 1.0f);
  std::vector<float> back(8);
  {
    KvBuffer a(KvRole::kValue, DType::kF32, {1, 1, 8}, 300);
    look.look_at(a);
    EXPECT_FALSE(a.is_shared(0));
    look.store_rows(0, 0, 299, 1, ones.data(), 0);
    a.load_rows(0, 0, 299, 1, back.data(), 0);
    EXPECT_EQ(back, ones) << "what is stored through a look is stored there";
    a.clear();
  }
  look.load_rows(0, 0, 299, 1, back.data(), 0);
  EXPECT_EQ(back, ones) << "the memory went with the buffer";
  look.look_away();
  EXPECT_EQ(look.positions(), 0);
}

TEST(KvBuffer, RefusesWhatDoesNotFit) {
  EXPECT_THROW(KvBuffer(KvRole::kKey, DType::kSI8, {1, 1, 8}, 1), InvalidArgumentError);
  EXPECT_THROW(KvBuffer(KvRole::kKey, DType::kF16, {0, 1, 8}, 1), InvalidArgumentError);
  EXPECT_THROW(KvBuffer(KvRole::kKey, DType::kF16, {1, 1, 8}, -1), InvalidArgumentError);
  EXPECT_THROW(KvBuffer(KvRole::kKey, DType::kF16, {1 << 30, 1 << 30, 1 << 30}, 1), ShapeError);
  KvBuffer buffer(KvRole::kKey, DType::kF16, {1, 1, 8}, 10);
  EXPECT_THROW(buffer.grow(std::int64_t{1} << 60), ShapeError);
  const std::vector<float> row(8);
  EXPECT_THROW(buffer.store_rows(0, 0, 10, 1, row.data(), 0), InternalError);
  EXPECT_THROW(buffer.store_rows(0, 1, 0, 1, row.data(), 0), InternalError);
  EXPECT_THROW(buffer.assign(NDArray(DType::kF32, Shape{1, 1, 1, 4, 8})), ShapeError);
  EXPECT_THROW(buffer.assign(NDArray(DType::kF16, Shape{1, 1, 2, 4, 8})), ShapeError);
}

}  // namespace
}  // namespace coreai::cpu
