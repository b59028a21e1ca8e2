#include "exporter/repack.h"

#include <gtest/gtest.h>

#include <cstring>

#include "coreai/base/error.h"

namespace coreai {
namespace {

GgufFile fixture() {
  return GgufFile::open(std::filesystem::path(COREAI_FIXTURE_DIR) / "gguf" / "quant_types.gguf");
}

// scale * data + offset in f32, one rounding per operation: what the op set says.
std::vector<float> expand(const BlockwiseWeight& weight) {
  const auto count = static_cast<std::size_t>(weight.data.element_count());
  const auto as_floats = [](const NDArray& array) {
    std::vector<double> values(static_cast<std::size_t>(array.element_count()));
    read_as_f64(array, values);
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> data = as_floats(weight.data), scale = as_floats(weight.scale);
  const std::vector<float> offset = weight.offset ? as_floats(*weight.offset) : std::vector<float>(scale.size(), 0.0f);
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t group = i / static_cast<std::size_t>(weight.block);
    out[i] = scale[group] * data[i] + offset[group];
  }
  return out;
}

class Repack : public testing::TestWithParam<std::string> {};

TEST_P(Repack, LosesNothing) {
  const GgufFile file = fixture();
  ThreadPool pool(2);
  const GgufTensor& expected = file.tensor(GetParam() + ".expected");
  std::vector<float> want(512);
  std::memcpy(want.data(), expected.bytes.data(), expected.bytes.size());
  const BlockwiseWeight weight = repack(file.tensor(GetParam()), RowOrder{}, pool);
  EXPECT_EQ(weight.data.shape(), (Shape{2, 256}));
  EXPECT_EQ(weight.scale.shape(), (Shape{2, 256 / weight.block}));
  const std::vector<float> got = expand(weight);
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(All, Repack, testing::Values("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"));

TEST(RepackRows, LlamaRowsGoFromPairsToHalves) {
  // Heads of 8 rows: pairs (0,1) (2,3) (4,5) (6,7) become the first halves, then the second halves.
  const RowOrder order{8};
  std::vector<std::int64_t> source;
  for (std::int64_t row = 0; row < 16; ++row) source.push_back(order.source(row));
  EXPECT_EQ(source, (std::vector<std::int64_t>{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}));
  EXPECT_EQ(RowOrder{}.source(5), 5);
}

TEST(RepackRows, RowsOfBlocksAndOfFloatsMoveWhole) {
  const GgufFile file = fixture();
  ThreadPool pool(2);
  // Two rows as one head of two: the order of a head of two rows is the same; of dense rows too.
  const BlockwiseWeight plain = repack(file.tensor("Q4_1"), RowOrder{}, pool);
  const BlockwiseWeight ordered = repack(file.tensor("Q4_1"), RowOrder{2}, pool);
  EXPECT_EQ(expand(plain), expand(ordered));
  GgufTensor tall = file.tensor("F32");
  tall.dims = {128, 4};
  const NDArray rows = dense_rows(tall, RowOrder{4}, nullptr);
  std::vector<float> source(512);
  std::memcpy(source.data(), tall.bytes.data(), tall.bytes.size());
  const auto got = rows.values<float>();
  for (std::size_t c = 0; c < 128; ++c) {
    ASSERT_EQ(got[c], source[c]);
    ASSERT_EQ(got[128 + c], source[256 + c]);
    ASSERT_EQ(got[256 + c], source[128 + c]);
    ASSERT_EQ(got[384 + c], source[384 + c]);
  }
  EXPECT_THROW(repack(file.tensor("F16"), RowOrder{}, pool), InternalError);
}

}  // namespace
}  // namespace coreai
