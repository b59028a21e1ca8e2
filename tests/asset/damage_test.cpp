// Damaged files: cut at every byte, every bit flipped, hand-made lies. Each gives a typed error or a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "asset/byte_writer.h"
#include "coreai/base/error.h"
#include "fixtures.h"

namespace coreai {
namespace {

using asset::ByteWriter;
using ::testing::HasSubstr;

std::vector<std::byte> program_of(const std::string& relative) {
  const AIModelAsset asset = AIModelAsset::open(test::fixture(relative));
  return {asset.program_bytes().begin(), asset.program_bytes().end()};
}

// True when the bytes are a program; anything but a typed error escapes and fails the test.
bool reads(std::span<const std::byte> bytes) {
  try {
    const auto module = read_bytecode(test::storage_of(bytes), "damaged");
    summarize(*module);
    return true;
  } catch (const Error&) {
    return false;
  }
}

const char* const kDamaged[] = {"op_assets/relu.aimodel", "op_assets/states_two.aimodel", "op_assets/while.aimodel",
                                "op_assets/composite_rms_norm.aimodel", "format_fixtures/const_resource.aimodel"};

TEST(Damage, CutAtEveryByte) {
  for (const char* name : kDamaged) {
    const std::vector<std::byte> whole = program_of(name);
    ASSERT_TRUE(reads(whole)) << name;
    for (std::size_t length = 0; length < whole.size(); ++length) {
      ASSERT_FALSE(reads(std::span(whole).first(length))) << name << " cut to " << length;
    }
  }
}

TEST(Damage, EveryBitFlipped) {
  for (const char* name : kDamaged) {
    std::vector<std::byte> bytes = program_of(name);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes[i] ^= static_cast<std::byte>(1u << bit);
        reads(bytes);
        bytes[i] ^= static_cast<std::byte>(1u << bit);
      }
    }
    EXPECT_TRUE(reads(bytes));
  }
}

TEST(Damage, TheErrorSaysWhereAndWhat) {
  std::vector<std::byte> bytes = program_of("op_assets/sin.aimodel");
  const auto message = [](std::span<const std::byte> program) -> std::string {
    try {
      read_bytecode(test::storage_of(program), "x.aimodel/main.mlirb");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({}), HasSubstr("the file is empty"));
  EXPECT_THAT(message(std::span(bytes).first(bytes.size() - 1)), HasSubstr("x.aimodel/main.mlirb"));
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t at = text.find("primitive.sin_v1");
  ASSERT_NE(at, std::string::npos);
  std::vector<std::byte> unknown = bytes;
  unknown[at + 10] = std::byte{'x'};
  EXPECT_EQ(message(unknown), "");  // kept: whoever runs it looks for its decomposition
  const auto module = read_bytecode(test::storage_of(unknown), "x.aimodel/main.mlirb");
  const ir::Op& kept = *module->graphs().at(0).body().ops.at(0);
  EXPECT_EQ(kept.code, ir::OpCode::kSerializationOpaque);
  EXPECT_EQ(kept.required("opname").as_string(), "aicode.primitive.xin_v1");
  std::vector<std::byte> newer = bytes;
  newer[4] = std::byte{7 << 1 | 1};
  EXPECT_THAT(message(newer), HasSubstr("bytecode version 7"));
}

// A file by hand: one dialect, given entries, and a program whose location is attribute 0.
class HandMade {
 public:
  ByteWriter payloads, offsets_tail;
  std::uint64_t attributes = 0;

  void attribute(const ByteWriter& payload) {
    offsets_tail.varint(payload.size() << 1 | 1);
    payloads.append(payload.bytes());
    ++attributes;
  }
  std::string error() const {
    try {
      read_bytecode(test::storage_of(bytes()), "made");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::vector<std::byte> bytes() const {
    ByteWriter file, dialects, version, offsets, ir, strings, resources;
    file.text("ML\xEFR");
    file.varint(6);
    file.u8(0);
    strings.varint(2);
    strings.varint(20);
    strings.varint(7);
    strings.text(std::string_view("aicode\0serialization.asset\0", 27));
    version.varint(2);
    dialects.varint(1);
    dialects.varint(0 << 1 | 1);
    dialects.section(7, version);
    dialects.varint(1);
    dialects.varint(0);
    dialects.varint(1);
    dialects.varint(1 << 1 | 1);
    offsets.varint(attributes);
    offsets.varint(0);
    offsets.varint(0);
    offsets.varint(attributes);
    offsets.append(offsets_tail.bytes());
    ir.varint(1 << 1);
    ir.varint(0);
    ir.u8(0x10);
    ir.varint(0);  // the location
    ir.varint(1 << 1 | 1);
    ByteWriter region;
    region.varint(1);
    region.varint(0);
    region.varint(0);
    ir.section(4, region);
    file.section(1, dialects);
    file.section(3, offsets);
    file.section(2, payloads);
    file.section(4, ir);
    file.section(0, strings);
    return file.release();
  }
};

ByteWriter array_of(std::initializer_list<std::uint64_t> elements) {
  ByteWriter out;
  out.varint(5);
  out.varint(elements.size());
  for (const std::uint64_t element : elements) out.varint(element);
  return out;
}

ByteWriter unit() {
  ByteWriter out;
  out.varint(46);
  return out;
}

TEST(Damage, HandMadeFileIsLegal) {
  HandMade file;
  file.attribute(unit());
  EXPECT_EQ(file.error(), "");
}

TEST(Damage, CirclesAndDepthOfAttributes) {
  HandMade circle;
  circle.attribute(array_of({1}));
  circle.attribute(array_of({0}));
  EXPECT_THAT(circle.error(), HasSubstr("contains itself"));

  HandMade deep;
  for (std::uint64_t i = 0; i < 100'000; ++i) deep.attribute(array_of({i + 1}));
  deep.attribute(unit());
  EXPECT_THAT(deep.error(), HasSubstr("nest deeper"));

  HandMade wide;  // 2^100 parts when written out
  for (std::uint64_t i = 0; i < 100; ++i) wide.attribute(array_of({i + 1, i + 1}));
  wide.attribute(unit());
  EXPECT_THAT(wide.error(), HasSubstr("parts when written out"));
}

TEST(Damage, LyingCountsReserveNothing) {
  for (const std::uint64_t count : {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0} >> 1}) {
    HandMade file;
    ByteWriter list;
    list.varint(5);
    list.varint(count);
    file.attribute(list);
    EXPECT_THAT(file.error(), HasSubstr("announced"));
    HandMade blob;
    ByteWriter dense;
    dense.varint(6);
    dense.u8(0);
    dense.varint(count);
    blob.attribute(dense);
    EXPECT_THAT(blob.error(), HasSubstr("bytes wanted"));
    HandMade number;
    ByteWriter integer;
    integer.varint(2);
    integer.varint(count);
    integer.u8(0);
    integer.varint(1);
    number.attribute(integer);
    EXPECT_NE(number.error(), "");
  }
}

TEST(Damage, UnknownCodesAndHandles) {
  HandMade code;
  ByteWriter unknown;
  unknown.varint(200);
  code.attribute(unknown);
  EXPECT_THAT(code.error(), HasSubstr("unknown code 200"));
  HandMade handle;
  ByteWriter resource;
  resource.varint(7);
  resource.varint(5);
  handle.attribute(resource);
  EXPECT_THAT(handle.error(), HasSubstr("resource 5 of 0"));
  HandMade rest;
  ByteWriter longer = unit();
  longer.u8(1);
  rest.attribute(longer);
  EXPECT_THAT(rest.error(), HasSubstr("left over"));
  // Entries that nothing uses are not looked at.
  HandMade unused;
  unused.attribute(unit());
  unused.attribute(unknown);
  EXPECT_EQ(unused.error(), "");
}

// Under an unknown name a region that sees outer values would be a body that cannot be written again.
TEST(Damage, ARegionOfAnUnknownOperationSeesOnlyItsOwn) {
  std::vector<std::byte> bytes = program_of("op_assets/while.aimodel");
  const std::string_view name = "controlflow.while_v1";
  const auto same = [](std::byte a, char b) { return a == static_cast<std::byte>(b); };
  const auto at = std::search(bytes.begin(), bytes.end(), name.begin(), name.end(), same);
  ASSERT_NE(at, bytes.end());
  at[static_cast<std::ptrdiff_t>(name.find("while"))] = std::byte{'x'};
  try {
    read_bytecode(test::storage_of(bytes), "renamed");
    FAIL() << "read";
  } catch (const MalformedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("outside of a region that sees only its own"));
  }
}

TEST(Damage, BlobsThatLie) {
  const std::vector<std::byte> whole = program_of("format_fixtures/const_shared_blob.aimodel");
  const auto module = read_bytecode(test::storage_of(whole), "x");
  ASSERT_GE(module->resources.size(), 1u);
  const ir::Resource& blob = *module->resources[0];
  // The length stands right before the padding of the data; any other length must be refused.
  int refused = 0;
  for (std::size_t back = 1; back <= 18 && back <= blob.offset; ++back) {
    std::vector<std::byte> bytes = whole;
    if (bytes[blob.offset - back] == std::byte{0xCB}) continue;
    bytes[blob.offset - back] ^= std::byte{0x10};
    EXPECT_FALSE(reads(bytes)) << back;
    ++refused;
    break;
  }
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace coreai
