#include "coreai/base/npy.h"

#include <gtest/gtest.h>

#include "coreai/base/error.h"

namespace coreai {
namespace {

std::vector<std::byte> file_of(const std::string& header, const std::vector<std::uint8_t>& data, char major = 1) {
  std::string text = std::string("\x93NUMPY") + major + '\0';
  text += static_cast<char>(header.size());
  text.append(major == 1 ? 1 : 3, '\0');
  text += header;
  text.append(data.begin(), data.end());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

TEST(Npy, RoundTripsEveryDtypeItHas) {
  for (DType dtype : {DType::kI1, DType::kSI8, DType::kUI8, DType::kSI16, DType::kUI16, DType::kSI32, DType::kUI32,
                      DType::kSI64, DType::kUI64, DType::kF16, DType::kF32, DType::kF64}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0, 4}, Shape{2, 3}}) {
      NDArray array(dtype, shape);
      std::vector<double> values(static_cast<std::size_t>(array.element_count()), 1.0);
      write_from_f64(array, values);
      const std::vector<std::byte> bytes = format_npy(array);
      const NDArray back = parse_npy(bytes, "memory");
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.shape(), shape);
      EXPECT_TRUE(std::equal(back.bytes().begin(), back.bytes().end(), array.bytes().begin(), array.bytes().end()));
      EXPECT_EQ((bytes.size() - array.byte_size()) % 64, 0u);
    }
  }
}

TEST(Npy, WritesTypesThatNumpyLacksAsWiderOnes) {
  NDArray array(DType::kSI4, {3});
  write_from_f64(array, std::vector<double>{-8, 7, -1});
  const NDArray back = parse_npy(format_npy(array), "memory");
  EXPECT_EQ(back.dtype(), DType::kSI8);
  EXPECT_EQ(back.values<std::int8_t>()[0], -8);
  NDArray bf16(DType::kBF16, {1});
  write_from_f64(bf16, std::vector<double>{1.5});
  EXPECT_EQ(parse_npy(format_npy(bf16), "memory").values<float>()[0], 1.5f);
}

TEST(Npy, ReadsVersionsTwoAndThree) {
  const std::string header = "{\"descr\": '<i2', 'shape': (2,), 'fortran_order': False}\n";
  for (const char major : {'\2', '\3'}) {
    const NDArray array = parse_npy(file_of(header, {1, 0, 2, 0}, major), "memory");
    EXPECT_EQ(array.values<std::int16_t>()[1], 2);
  }
}

TEST(Npy, RefusesWhatItCannotRead) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  EXPECT_NO_THROW(parse_npy(file_of(good, {0, 0, 0, 0}), "m"));
  EXPECT_THROW(parse_npy(file_of(good, {0, 0, 0}), "m"), MalformedError);
  EXPECT_THROW(parse_npy(file_of(good, {0, 0, 0, 0}, 9), "m"), UnsupportedError);
  const auto with = [](const std::string& header) { return parse_npy(file_of(header, {0, 0, 0, 0}), "m"); };
  EXPECT_THROW(with("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}"), UnsupportedError);
  EXPECT_THROW(with("{'descr': 'O', 'fortran_order': False, 'shape': (1,)}"), UnsupportedError);
  EXPECT_THROW(with("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}"), UnsupportedError);
  EXPECT_THROW(with("{'descr': '<f4', 'fortran_order': False}"), MalformedError);
  EXPECT_THROW(with("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), MalformedError);
  EXPECT_THROW(with("{'descr': '<f4', 'fortran_order': False, 'shape': (1"), MalformedError);
  EXPECT_THROW(with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), MalformedError);
  EXPECT_THROW(with("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}"), Error);
  const std::vector<std::byte> whole = file_of(good, {0, 0, 0, 0});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(parse_npy(std::span(whole).first(size), "m"), Error) << size;
  }
}

}  // namespace
}  // namespace coreai
