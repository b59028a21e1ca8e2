#include "entry_reader.h"

#include <fmt/format.h>

#include "coreai/base/error.h"

namespace coreai::asset {

using ir::AttrCode;
using ir::AttrRef;
using ir::FieldKind;
using ir::TypeCode;
using ir::TypeRef;

// Counts the depth and marks one entry busy while its fields are read.
struct EntryReader::Visit {
  Visit(EntryReader& owner, std::vector<bool>& busy_entries, std::size_t index, const ByteCursor& at)
      : reader(owner), busy(busy_entries), entry(index) {
    if (busy[entry]) at.fail("an attribute or type contains itself");
    if (reader.depth_ >= kMaxDepth) at.fail(fmt::format("attributes and types nest deeper than {}", kMaxDepth));
    busy[entry] = true;
    ++reader.depth_;
  }
  ~Visit() {
    busy[entry] = false;
    --reader.depth_;
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  EntryReader& reader;
  std::vector<bool>& busy;
  std::size_t entry;
};

EntryReader::EntryReader(const Container& container, ir::Context& context)
    : container_(container),
      context_(context),
      attributes_(container.attributes.size()),
      types_(container.types.size()),
      attribute_busy_(container.attributes.size()),
      type_busy_(container.types.size()) {}

ByteCursor EntryReader::payload(const Entry& entry) const {
  ByteCursor cursor = *container_.attr_type;
  cursor.skip(entry.offset);
  return cursor.sub(entry.size);
}

void EntryReader::require_decodable(const Entry& entry, const ByteCursor& at, const char* what) const {
  const std::string_view dialect = container_.dialects[entry.dialect];
  if (dialect != "aicode") {
    throw UnsupportedError(fmt::format("{} of the dialect `{}` stands where one of `aicode` is needed", what, dialect),
                           fmt::format("{} at byte {}", at.where(), at.offset()));
  }
  if (!entry.custom) {
    ByteCursor text = payload(entry);
    throw UnsupportedError(fmt::format("{} is stored as text: {}", what, text.c_string().substr(0, 80)),
                           fmt::format("{} at byte {}", at.where(), text.offset()),
                           "Save the asset again with coreai-core 1.0, which writes the binary form");
  }
}

template <typename Ref>
Ref EntryReader::accept(Ref entry, const ByteCursor& at) const {
  if (entry->extent().depth > kMaxDepth) at.fail(fmt::format("attributes and types nest deeper than {}", kMaxDepth));
  if (entry->extent().nodes > kMaxNodes) {
    at.fail(fmt::format("an attribute or type has more than {} parts when written out", kMaxNodes));
  }
  return entry;
}

AttrRef EntryReader::attribute(std::uint64_t index, const ByteCursor& at) {
  if (index >= attributes_.size()) at.fail(fmt::format("attribute {} of {} does not exist", index, attributes_.size()));
  const auto i = static_cast<std::size_t>(index);
  if (attributes_[i]) return attributes_[i];
  const Entry& entry = container_.attributes[i];
  require_decodable(entry, at, "an attribute");
  const Visit visit(*this, attribute_busy_, i, at);
  ByteCursor cursor = payload(entry);
  const std::uint64_t code = read_varint(cursor);
  const ir::CodeInfo* info = ir::find_attr_info(code);
  if (!info) {
    throw UnsupportedError(fmt::format("attribute {} has the unknown code {}", index, code),
                           fmt::format("{} at byte {}", cursor.where(), cursor.offset()),
                           "The asset is newer than this program: update it");
  }
  std::vector<ir::Field> values = fields(*info, cursor);
  attributes_[i] = accept(context_.attribute(static_cast<AttrCode>(code), std::move(values)), cursor);
  return attributes_[i];
}

TypeRef EntryReader::type(std::uint64_t index, const ByteCursor& at) {
  if (index >= types_.size()) at.fail(fmt::format("type {} of {} does not exist", index, types_.size()));
  const auto i = static_cast<std::size_t>(index);
  if (types_[i]) return types_[i];
  const Entry& entry = container_.types[i];
  require_decodable(entry, at, "a type");
  const Visit visit(*this, type_busy_, i, at);
  ByteCursor cursor = payload(entry);
  const std::uint64_t code = read_varint(cursor);
  const ir::CodeInfo* info = ir::find_type_info(code);
  if (!info) {
    throw UnsupportedError(fmt::format("type {} has the unknown code {}", index, code),
                           fmt::format("{} at byte {}", cursor.where(), cursor.offset()),
                           "The asset is newer than this program: update it");
  }
  std::vector<ir::Field> values = fields(*info, cursor);
  types_[i] = accept(context_.type(static_cast<TypeCode>(code), std::move(values)), cursor);
  return types_[i];
}

std::vector<ir::Field> EntryReader::fields(const ir::CodeInfo& info, ByteCursor& cursor) {
  std::vector<ir::Field> values;
  values.reserve(info.fields.size());
  for (const ir::FieldInfo& row : info.fields) values.push_back(field(row.kind, values, cursor));
  if (!cursor.at_end()) {
    cursor.fail(fmt::format("{} bytes are left over after a {}", cursor.remaining(), info.disk_name));
  }
  return values;
}

namespace {

template <typename T, typename Read>
std::vector<T> read_list(ByteCursor& cursor, Read read) {
  const std::size_t count = read_count(cursor, 1, "list entries");
  std::vector<T> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) values.push_back(read());
  return values;
}

}  // namespace

ir::Field EntryReader::field(FieldKind kind, const std::vector<ir::Field>& before, ByteCursor& cursor) {
  switch (kind) {
    case FieldKind::kVarint:
      return read_varint(cursor);
    case FieldKind::kSVarint:
      return read_signed_varint(cursor);
    case FieldKind::kByte:
      return std::uint64_t{cursor.u8()};
    case FieldKind::kString:
      return std::string(container_.string(read_varint(cursor), cursor));
    case FieldKind::kAttr:
      return attribute(read_varint(cursor), cursor);
    case FieldKind::kType:
      return type(read_varint(cursor), cursor);
    case FieldKind::kResource:
      return resource(cursor);
    case FieldKind::kSVarintList:
      return read_list<std::int64_t>(cursor, [&] { return read_signed_varint(cursor); });
    case FieldKind::kVarintList:
      return read_list<std::uint64_t>(cursor, [&] { return read_varint(cursor); });
    case FieldKind::kStringList:
      return read_list<std::string>(cursor,
                                    [&] { return std::string(container_.string(read_varint(cursor), cursor)); });
    case FieldKind::kAttrList:
      return read_list<AttrRef>(cursor, [&] { return attribute(read_varint(cursor), cursor); });
    case FieldKind::kTypeList:
      return read_list<TypeRef>(cursor, [&] { return type(read_varint(cursor), cursor); });
    case FieldKind::kBlob: {
      const auto bytes = cursor.take(read_varint(cursor));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    }
    case FieldKind::kOptionalVarint: {
      const std::uint8_t present = cursor.u8();
      if (present > 1) cursor.fail(fmt::format("the presence byte of an optional value is {}", present));
      return present ? std::vector<std::uint64_t>{read_varint(cursor)} : std::vector<std::uint64_t>{};
    }
    case FieldKind::kApInt:
    case FieldKind::kApFloat:
      // The width is the first field of both integer and float attributes.
      return ap_words(std::get<std::uint64_t>(before.at(0)), cursor);
  }
  cursor.fail("a field kind is unknown");
}

std::vector<std::uint64_t> EntryReader::ap_words(std::uint64_t width, ByteCursor& cursor) const {
  constexpr std::uint64_t kMaxWidth = std::uint64_t{1} << 20;
  if (width == 0 || width > kMaxWidth) cursor.fail(fmt::format("a number of {} bits is not legal", width));
  const std::uint64_t top_bits = width % 64 == 0 ? 64 : width % 64;
  const std::uint64_t mask = top_bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << top_bits) - 1;
  if (width <= 8) return {cursor.u8() & mask};
  if (width <= 64) return {static_cast<std::uint64_t>(read_signed_varint(cursor)) & mask};
  const std::size_t needed = static_cast<std::size_t>((width + 63) / 64);
  const std::size_t count = read_count(cursor, 1, "words");
  if (count > needed) cursor.fail(fmt::format("a number of {} bits has {} words", width, count));
  std::vector<std::uint64_t> words(needed, 0);
  for (std::size_t i = 0; i < count; ++i) words[i] = static_cast<std::uint64_t>(read_signed_varint(cursor));
  words.back() &= mask;
  return words;
}

ir::ResourceRef EntryReader::resource(ByteCursor& cursor) const {
  const std::uint64_t handle = read_varint(cursor);
  if (handle >= container_.resources.size()) {
    cursor.fail(fmt::format("resource {} of {} does not exist", handle, container_.resources.size()));
  }
  const ir::ResourceRef& found = container_.resources[static_cast<std::size_t>(handle)];
  if (!found) cursor.fail(fmt::format("resource {} holds no bytes", handle));
  return found;
}

AttrRef EntryReader::location(std::uint64_t index, const ByteCursor& at) {
  if (index < container_.attributes.size()) {
    const Entry& entry = container_.attributes[static_cast<std::size_t>(index)];
    if (container_.dialects[entry.dialect] == "builtin") return builtin_location(index, at);
  }
  return attribute(index, at);
}

namespace {

// Codes of MLIR's own attributes (mlir/IR/BuiltinDialectBytecode.td) that a location may consist of.
enum class BuiltinCode : std::uint64_t {
  kString = 2,
  kCallSiteLocation = 10,
  kFileLineColumn = 11,
  kFused = 12,
  kFusedWithMetadata = 13,
  kName = 14,
  kUnknown = 15,
  kFileLineColumnRange = 22,
};

}  // namespace

std::string EntryReader::builtin_string(std::uint64_t index, const ByteCursor& at) {
  if (index >= container_.attributes.size()) at.fail(fmt::format("attribute {} does not exist", index));
  const Entry& entry = container_.attributes[static_cast<std::size_t>(index)];
  ByteCursor cursor = payload(entry);
  if (container_.dialects[entry.dialect] != "builtin" || !entry.custom ||
      read_varint(cursor) != static_cast<std::uint64_t>(BuiltinCode::kString)) {
    at.fail("the file name of a location is not a string");
  }
  return std::string(container_.string(read_varint(cursor), cursor));
}

AttrRef EntryReader::builtin_location(std::uint64_t index, const ByteCursor& at) {
  if (index >= attributes_.size()) at.fail(fmt::format("attribute {} does not exist", index));
  const auto i = static_cast<std::size_t>(index);
  if (attributes_[i]) return attributes_[i];
  const Entry& entry = container_.attributes[i];
  if (container_.dialects[entry.dialect] != "builtin") return attribute(index, at);
  const Visit visit(*this, attribute_busy_, i, at);
  ByteCursor cursor = payload(entry);
  AttrRef result = context_.unknown_location();
  // A location stored as text says nothing that a reader needs.
  const auto code = entry.custom ? static_cast<BuiltinCode>(read_varint(cursor)) : BuiltinCode::kUnknown;
  switch (code) {
    case BuiltinCode::kFileLineColumn:
    case BuiltinCode::kFileLineColumnRange: {
      std::string file = builtin_string(read_varint(cursor), cursor);
      // A range holds the number of its parts first: line, column and two ends.
      if (code == BuiltinCode::kFileLineColumnRange) read_varint(cursor);
      const std::uint64_t line = read_varint(cursor);
      result = context_.source_location(std::move(file), line, cursor.at_end() ? 0 : read_varint(cursor));
      break;
    }
    case BuiltinCode::kCallSiteLocation:
      result = builtin_location(read_varint(cursor), cursor);
      break;
    case BuiltinCode::kName:
      read_varint(cursor);  // the name
      result = builtin_location(read_varint(cursor), cursor);
      break;
    case BuiltinCode::kFused:
    case BuiltinCode::kFusedWithMetadata:
      if (read_count(cursor, 1, "fused locations") > 0) result = builtin_location(read_varint(cursor), cursor);
      break;
    case BuiltinCode::kUnknown:
      break;
    default:
      cursor.fail("an attribute is used as a location but is none");
  }
  attributes_[i] = result;
  return result;
}

}  // namespace coreai::asset
