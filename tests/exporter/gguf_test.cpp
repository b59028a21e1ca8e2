#include "coreai/exporter/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "coreai/base/error.h"
#include "exporter/gguf_bytes.h"

namespace coreai {
namespace {

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(COREAI_FIXTURE_DIR) / "gguf" / name;
}
using Bytes = GgufBytes;

void expect_malformed(const Bytes& bytes, const std::string& part) {
  try {
    bytes.parse();
    FAIL() << "no error for: " << part;
  } catch (const MalformedError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

class QuantTypes : public testing::TestWithParam<std::string> {};

TEST_P(QuantTypes, DequantiseAsTheGgufPackageDoes) {
  const GgufFile file = GgufFile::open(fixture("quant_types.gguf"));
  const GgufTensor& tensor = file.tensor(GetParam());
  EXPECT_EQ(ggml_type_name(tensor.type), GetParam());
  EXPECT_EQ(tensor.shape(), (Shape{2, 256}));
  const GgufTensor& expected = file.tensor(GetParam() + ".expected");
  std::vector<float> want(512), got(512);
  std::memcpy(want.data(), expected.bytes.data(), expected.bytes.size());
  dequantize(tensor.type, tensor.bytes, got);
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(All, QuantTypes,
                         testing::Values("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K",
                                         "Q6_K"));

TEST(Dequantize, RefusesSizesThatDoNotFit) {
  std::vector<std::byte> bytes(18);
  std::vector<float> out(31);
  EXPECT_THROW(dequantize(GgmlType::kQ4_0, bytes, out), ShapeError);
  EXPECT_THROW(dequantize(static_cast<GgmlType>(10), bytes, out), UnsupportedError);
}

TEST(GgufMetadata, ReadsEveryType) {
  const GgufFile file = GgufFile::open(fixture("metadata.gguf"));
  EXPECT_EQ(file.require_string("general.architecture"), "none");
  EXPECT_EQ(file.find_unsigned("one.uint8"), 200u);
  EXPECT_EQ(file.find_unsigned("one.uint16"), 60000u);
  EXPECT_EQ(file.find_unsigned("one.uint32"), 4000000000u);
  EXPECT_EQ(file.find_unsigned("one.uint64"), std::uint64_t{1} << 63);
  EXPECT_EQ(std::get<std::int64_t>(file.find("one.int8")->value), -100);
  EXPECT_EQ(std::get<std::int64_t>(file.find("one.int16")->value), -30000);
  EXPECT_EQ(std::get<std::int64_t>(file.find("one.int32")->value), -2000000000);
  EXPECT_EQ(std::get<std::int64_t>(file.find("one.int64")->value), -(std::int64_t{1} << 62));
  EXPECT_EQ(file.find_float("one.float32"), 0.5);
  EXPECT_EQ(file.find_float("one.float64"), 0.1);
  EXPECT_EQ(file.find_bool("one.bool"), true);
  EXPECT_EQ(file.find_string("one.string"), "a text");
  EXPECT_EQ(file.find_integers("array.i32"), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(file.find_floats("array.f32"), (std::vector<float>{0.25f, -4.0f}));
  EXPECT_EQ(file.find_integers("array.bool"), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(*file.find_strings("array.string"), (std::vector<std::string_view>{"x", "", "two words"}));
  EXPECT_EQ(file.find_unsigned("absent"), std::nullopt);
  EXPECT_THROW(file.require_unsigned("absent"), NotFoundError);
  EXPECT_THROW(file.find_unsigned("one.string"), MalformedError);
  EXPECT_THROW(file.find_unsigned("one.int8"), MalformedError);
}

TEST(GgufReader, ReadsVersion2AndTensorsOfUnknownTypesUntilTheyAreWanted) {
  Bytes b;
  b.header(2, 0, 2).tensor("w", {4, 2}, 0, 0).tensor("odd", {256}, 10, 32);
  b.zeros((32 - b.data.size() % 32) % 32).zeros(32);
  const GgufFile file = b.parse();
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.tensor("w").bytes.size(), 32u);
  EXPECT_THROW(file.tensor("odd"), UnsupportedError);
  EXPECT_THROW(file.tensor("none"), NotFoundError);
}

TEST(GgufReader, RefusesOtherFilesAndVersions) {
  expect_malformed(Bytes().put<std::uint32_t>(0x04034b50).zeros(64), "not a GGUF file");
  EXPECT_THROW(Bytes().header(0, 0, 1).parse(), UnsupportedError);
  EXPECT_THROW(Bytes().header(0, 0, 0x03000000).parse(), UnsupportedError);
  EXPECT_THROW(GgufFile::open(fixture("nothing.gguf")), NotFoundError);
}

TEST(GgufReader, RefusesLyingCounts) {
  expect_malformed(Bytes().header(std::uint64_t{1} << 60, 0), "tensors do not fit");
  expect_malformed(Bytes().header(0, std::uint64_t{1} << 62), "metadata pairs do not fit");
  expect_malformed(Bytes().header(0, 1).text("k").put<std::uint32_t>(8).put<std::uint64_t>(~0ull), "bytes wanted");
  expect_malformed(Bytes().header(0, 1).text("k").put<std::uint32_t>(9).put<std::uint32_t>(4).put<std::uint64_t>(~0ull),
                   "array elements do not fit");
  expect_malformed(Bytes().header(0, 1).text("k").put<std::uint32_t>(77).zeros(9), "value type 77");
}

TEST(GgufReader, RefusesDeepNestingAndDuplicates) {
  Bytes nested;
  nested.header(0, 1).text("k").put<std::uint32_t>(9);
  for (int i = 0; i < 100; ++i) nested.put<std::uint32_t>(9).put<std::uint64_t>(1);
  expect_malformed(nested, "nested deeper");
  expect_malformed(
      Bytes().header(0, 2).text("k").put<std::uint32_t>(0).zeros(1).text("k").put<std::uint32_t>(0).zeros(1),
      "'k' appears twice");
  expect_malformed(Bytes().header(2, 0).tensor("t", {1}, 0, 0).tensor("t", {1}, 0, 0).zeros(64), "'t' appears twice");
}

TEST(GgufReader, RefusesTensorsThatDoNotFit) {
  expect_malformed(Bytes().header(1, 0).tensor("t", {1024}, 0, 0).zeros(64), "tensor 't' needs 4096 bytes");
  expect_malformed(Bytes().header(1, 0).tensor("t", {4}, 0, ~0ull - 31).zeros(64), "tensor 't' needs");
  expect_malformed(Bytes().header(1, 0).tensor("t", {4}, 0, 5).zeros(64), "not a multiple of 32");
  expect_malformed(Bytes().header(1, 0).tensor("t", {~0ull, ~0ull}, 0, 0).zeros(64), "more elements");
  expect_malformed(Bytes().header(1, 0).tensor("t", {31, 2}, 2, 0).zeros(64), "not whole Q4_0 blocks");
  expect_malformed(Bytes().header(1, 0).tensor("t", {1, 1, 1, 1, 1}, 0, 0).zeros(64), "5 dimensions");
}

TEST(GgufReader, RefusesAStrangeAlignment) {
  for (const std::uint32_t alignment : {0u, 3u, 0x80000000u}) {
    Bytes b;
    b.header(1, 1).text("general.alignment").put<std::uint32_t>(4).put(alignment).tensor("t", {4}, 0, 0).zeros(256);
    expect_malformed(b, "general.alignment");
  }
}

TEST(GgufReader, EveryTruncationOfAFileIsATypedError) {
  const auto mapping = MappedFile::open(fixture("metadata.gguf"));
  for (std::size_t n = 0; n + 32 < mapping->bytes().size(); ++n) {
    // A copy of exact size, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> part(mapping->bytes().begin(),
                                      mapping->bytes().begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_THROW(GgufFile::parse(part, "part.gguf"), Error) << n;
  }
}

}  // namespace
}  // namespace coreai
