// The container of MLIR bytecode: sections, strings, dialects, operation names, entry offsets, blobs, property records.
// Everything is a view of the mapped file; nothing is decoded that is not asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/base/byte_cursor.h"
#include "coreai/ir/type.h"

namespace coreai::asset {

enum class SectionId : std::uint8_t {
  kString = 0,
  kDialect = 1,
  kAttrType = 2,
  kAttrTypeOffset = 3,
  kIr = 4,
  kResource = 5,
  kResourceOffset = 6,
  kDialectVersions = 7,
  kProperties = 8,
};
inline constexpr std::size_t kSectionCount = 9;
inline constexpr std::uint8_t kSectionAligned = 0x80;  // bit of the id byte: an alignment follows the length
inline constexpr std::uint8_t kPadding = 0xCB;
inline constexpr std::uint8_t kMagic[4] = {0x4D, 0x4C, 0xEF, 0x52};
inline constexpr std::uint64_t kBytecodeVersion = 6;
inline constexpr std::uint64_t kOldestBytecodeVersion = 5;  // native property records, which the dialect needs
inline constexpr std::uint64_t kEncodingVersion = 2;        // of the dialect's own payloads

// Bits of the byte behind an operation's name.
namespace op_mask {
inline constexpr std::uint8_t kAttributeDictionary = 0x01;
inline constexpr std::uint8_t kResults = 0x02;
inline constexpr std::uint8_t kOperands = 0x04;
inline constexpr std::uint8_t kSuccessors = 0x08;
inline constexpr std::uint8_t kRegions = 0x10;
inline constexpr std::uint8_t kUseListOrders = 0x20;
inline constexpr std::uint8_t kProperties = 0x40;
}  // namespace op_mask

// PrefixVarInt: the trailing zero bits of the first byte count the bytes that follow.
std::uint64_t read_varint(ByteCursor& cursor);
// Zigzag on top.
std::int64_t read_signed_varint(ByteCursor& cursor);
// A count of items that take at least `bytes_each`: a count that cannot fit into the rest of the cursor is malformed,
// so nothing is ever reserved for it.
std::size_t read_count(ByteCursor& cursor, std::size_t bytes_each, const char* what);

// One section header and its payload. Padding and alignment are checked.
struct SectionView {
  std::uint8_t id;
  ByteCursor payload;
};
SectionView read_section(ByteCursor& cursor);

struct Entry {  // an attribute or a type
  std::uint32_t dialect;
  bool custom;  // binary payload; else text
  std::uint64_t offset, size;
};

struct OpName {
  std::uint32_t dialect;
  std::string_view name;
};

struct Container {
  std::uint64_t version = 0;
  std::string producer;
  std::vector<std::string_view> strings;
  std::vector<std::string_view> dialects;
  std::vector<OpName> op_names;
  std::vector<Entry> attributes, types;
  std::vector<ir::ResourceRef> resources;  // by handle
  std::vector<ByteCursor> property_records;
  std::optional<ByteCursor> attr_type, ir;  // the payloads of these sections

  std::string_view string(std::uint64_t index, const ByteCursor& at) const;
};

// Throws MalformedError, UnsupportedError (bytecode or dialect version, another dialect).
Container read_container(const std::shared_ptr<Storage>& storage, const std::string& where);

}  // namespace coreai::asset
