#include "bytecode_container.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <optional>
#include <unordered_set>

#include "coreai/base/error.h"

namespace coreai::asset {

std::uint64_t read_varint(ByteCursor& cursor) {
  const std::uint8_t first = cursor.u8();
  if (first & 1) return first >> 1;
  if (first == 0) return cursor.scalar<std::uint64_t>();
  const int extra = std::countr_zero(first);
  std::uint64_t value = first;
  const auto rest = cursor.take(static_cast<std::uint64_t>(extra));
  for (int i = 0; i < extra; ++i) {
    value |= static_cast<std::uint64_t>(rest[static_cast<std::size_t>(i)]) << (8 * (i + 1));
  }
  return value >> (extra + 1);
}

std::int64_t read_signed_varint(ByteCursor& cursor) {
  const std::uint64_t value = read_varint(cursor);
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

std::size_t read_count(ByteCursor& cursor, std::size_t bytes_each, const char* what) {
  const std::uint64_t count = read_varint(cursor);
  if (count > cursor.remaining() / bytes_each) {
    cursor.fail(fmt::format("{} {} are announced, but only {} bytes follow", count, what, cursor.remaining()));
  }
  return static_cast<std::size_t>(count);
}

SectionView read_section(ByteCursor& cursor) {
  const std::uint8_t id_byte = cursor.u8();
  const std::uint64_t length = read_varint(cursor);
  if (id_byte & kSectionAligned) {
    const std::uint64_t alignment = read_varint(cursor);
    if (!std::has_single_bit(alignment))
      cursor.fail(fmt::format("a section's alignment {} is not a power of two", alignment));
    while (cursor.offset() % alignment != 0) {
      if (cursor.u8() != kPadding) cursor.fail("the padding before an aligned section is not 0xCB");
    }
  }
  return {static_cast<std::uint8_t>(id_byte & ~kSectionAligned), cursor.sub(length)};
}

std::string_view Container::string(std::uint64_t index, const ByteCursor& at) const {
  if (index >= strings.size()) at.fail(fmt::format("string {} of {} does not exist", index, strings.size()));
  return strings[static_cast<std::size_t>(index)];
}

namespace {

using Sections = std::array<std::optional<ByteCursor>, kSectionCount>;

constexpr std::array<const char*, kSectionCount> kSectionNames = {
    "String",   "Dialect",        "AttrType",        "AttrTypeOffset", "IR",
    "Resource", "ResourceOffset", "DialectVersions", "Properties"};

Sections split_sections(ByteCursor& file) {
  Sections sections;
  while (!file.at_end()) {
    SectionView section = read_section(file);
    if (section.id >= kSectionCount) file.fail(fmt::format("section id {} does not exist", section.id));
    if (sections[section.id]) file.fail(fmt::format("the {} section occurs twice", kSectionNames[section.id]));
    sections[section.id] = section.payload;
  }
  return sections;
}

ByteCursor& required(Sections& sections, SectionId id, const ByteCursor& file) {
  auto& section = sections[static_cast<std::size_t>(id)];
  if (!section) file.fail(fmt::format("the {} section is missing", kSectionNames[static_cast<std::size_t>(id)]));
  return *section;
}

void require_end(const ByteCursor& cursor, const char* what) {
  if (!cursor.at_end()) cursor.fail(fmt::format("{} bytes are left over after {}", cursor.remaining(), what));
}

void read_strings(ByteCursor cursor, Container& out) {
  // A string takes a byte for its size and one for its NUL.
  const std::size_t count = read_count(cursor, 2, "strings");
  std::vector<std::uint64_t> sizes(count);
  for (std::size_t i = count; i-- > 0;) sizes[i] = read_varint(cursor);  // stored last to first
  out.strings.reserve(count);
  for (const std::uint64_t size : sizes) {
    const auto bytes = cursor.take(size);
    if (bytes.empty() || bytes.back() != std::byte{0}) cursor.fail("a string does not end in NUL");
    out.strings.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size() - 1);
  }
  require_end(cursor, "the strings");
}

void read_dialect_version(ByteCursor& cursor, std::string_view dialect) {
  SectionView section = read_section(cursor);
  if (section.id != static_cast<std::uint8_t>(SectionId::kDialectVersions)) {
    cursor.fail("a dialect's version section has another id");
  }
  if (dialect != "aicode") return;
  const std::uint64_t version = read_varint(section.payload);
  if (version != kEncodingVersion) {
    throw UnsupportedError(
        fmt::format("the aicode dialect has encoding version {}, only {} can be read", version, kEncodingVersion),
        cursor.where(), "Export the model again with coreai-core 1.0");
  }
}

void read_dialects(ByteCursor cursor, Container& out) {
  const std::size_t count = read_count(cursor, 1, "dialects");
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t packed = read_varint(cursor);
    const std::string_view name = out.string(packed >> 1, cursor);
    if (name == "vcoreml") {
      throw UnsupportedError("a legacy vcoreml program cannot be read", cursor.where(),
                             "Export the model again with coreai-core 1.0");
    }
    if (packed & 1) {
      read_dialect_version(cursor, name);
    } else if (name == "aicode") {
      cursor.fail("the aicode dialect has no version");
    }
    out.dialects.push_back(name);
  }
  if (cursor.at_end()) return;
  read_count(cursor, 1, "operation names");
  while (!cursor.at_end()) {
    const std::uint64_t dialect = read_varint(cursor);
    if (dialect >= out.dialects.size()) cursor.fail(fmt::format("dialect {} does not exist", dialect));
    const std::size_t names = read_count(cursor, 1, "operation names");
    for (std::size_t i = 0; i < names; ++i) {
      out.op_names.push_back({static_cast<std::uint32_t>(dialect), out.string(read_varint(cursor) >> 1, cursor)});
    }
  }
}

void read_entries(ByteCursor offsets, const ByteCursor& payloads, Container& out) {
  const std::uint64_t attribute_count = read_count(offsets, 1, "attributes");
  const std::uint64_t type_count = read_count(offsets, 1, "types");
  std::uint64_t position = 0;
  std::vector<Entry> entries;
  while (!offsets.at_end()) {
    const std::uint64_t dialect = read_varint(offsets);
    if (dialect >= out.dialects.size()) offsets.fail(fmt::format("dialect {} does not exist", dialect));
    const std::size_t count = read_count(offsets, 1, "entries");
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t packed = read_varint(offsets);
      const std::uint64_t size = packed >> 1;
      if (size > payloads.remaining() - position) offsets.fail("an attribute or type reaches past its section");
      entries.push_back({static_cast<std::uint32_t>(dialect), (packed & 1) != 0, position, size});
      position += size;
    }
  }
  if (entries.size() != attribute_count + type_count) {
    offsets.fail(fmt::format("{} attributes and {} types are announced, {} entries follow", attribute_count, type_count,
                             entries.size()));
  }
  const auto middle = entries.begin() + static_cast<std::ptrdiff_t>(attribute_count);
  out.attributes.assign(entries.begin(), middle);
  out.types.assign(middle, entries.end());
}

ir::ResourceRef read_blob(ByteCursor cursor, std::string_view name, const std::shared_ptr<Storage>& storage) {
  auto resource = std::make_shared<ir::Resource>();
  resource->name = name;
  resource->storage = storage;
  const std::uint64_t alignment = read_varint(cursor);
  const std::uint64_t size = read_varint(cursor);
  if (!std::has_single_bit(alignment) || alignment > (1u << 30)) {
    cursor.fail(fmt::format("the alignment {} of the blob `{}` is no power of two below 2^30", alignment, name));
  }
  while (cursor.offset() % alignment != 0) {
    if (cursor.u8() != kPadding) cursor.fail(fmt::format("the padding before the blob `{}` is not 0xCB", name));
  }
  if (size != cursor.remaining()) {
    cursor.fail(fmt::format("the blob `{}` says {} bytes, its entry holds {}", name, size, cursor.remaining()));
  }
  resource->alignment = static_cast<std::uint32_t>(alignment);
  resource->offset = static_cast<std::size_t>(cursor.offset());
  resource->size = static_cast<std::size_t>(size);
  return resource;
}

// Entry kinds 1 (bool) and 2 (string) hold no tensor; they keep their handle number but no bytes.
constexpr std::uint8_t kBlobKind = 0;

void read_resources(ByteCursor offsets, ByteCursor payload, const std::shared_ptr<Storage>& storage, Container& out) {
  std::unordered_set<std::string_view> names;
  const auto read_group = [&](bool external) {
    const std::size_t count = read_count(offsets, 3, "resources");
    for (std::size_t i = 0; i < count; ++i) {
      const std::string_view name = out.string(read_varint(offsets), offsets);
      const std::uint64_t size = read_varint(offsets);
      const std::uint8_t kind = offsets.u8();
      const ByteCursor entry = payload.sub(size);
      if (external) continue;
      if (!names.insert(name).second) offsets.fail(fmt::format("two blobs are named `{}`", name));
      if (kind == kBlobKind && size > 0) {
        out.resources.push_back(read_blob(entry, name, storage));
      } else {
        out.resources.push_back(nullptr);
      }
    }
  };
  const std::size_t external_groups = read_count(offsets, 2, "external resource groups");
  for (std::size_t i = 0; i < external_groups; ++i) {
    out.string(read_varint(offsets), offsets);
    read_group(true);
  }
  while (!offsets.at_end()) {
    const std::uint64_t dialect = read_varint(offsets);
    if (dialect >= out.dialects.size()) offsets.fail(fmt::format("dialect {} does not exist", dialect));
    read_group(false);
  }
  require_end(payload, "the resources");
}

void read_property_records(ByteCursor cursor, Container& out) {
  const std::size_t count = read_count(cursor, 1, "property records");
  out.property_records.reserve(count);
  for (std::size_t i = 0; i < count; ++i) out.property_records.push_back(cursor.sub(read_varint(cursor)));
  require_end(cursor, "the property records");
}

void read_header(ByteCursor& file, Container& out) {
  const std::size_t size = file.remaining();
  for (const std::uint8_t byte : kMagic) {
    if (file.at_end() || file.u8() != byte) {
      throw MalformedError(size == 0 ? "the file is empty" : "the file does not start like MLIR bytecode", file.where(),
                           0, "Give the main.mlirb of an .aimodel folder");
    }
  }
  out.version = read_varint(file);
  if (out.version < kOldestBytecodeVersion || out.version > kBytecodeVersion) {
    throw UnsupportedError(fmt::format("bytecode version {} cannot be read, only {} and {}", out.version,
                                       kOldestBytecodeVersion, kBytecodeVersion),
                           file.where(), "Export the model again with coreai-core 1.0");
  }
  out.producer = file.c_string();
}

}  // namespace

Container read_container(const std::shared_ptr<Storage>& storage, const std::string& where) {
  Container out;
  ByteCursor file({storage->data(), storage->size()}, where);
  read_header(file, out);
  Sections sections = split_sections(file);
  read_strings(required(sections, SectionId::kString, file), out);
  read_dialects(required(sections, SectionId::kDialect, file), out);
  read_entries(required(sections, SectionId::kAttrTypeOffset, file), required(sections, SectionId::kAttrType, file),
               out);
  const auto& offsets = sections[static_cast<std::size_t>(SectionId::kResourceOffset)];
  if (offsets) {
    const ByteCursor empty({}, where, file.offset());
    const auto& payload = sections[static_cast<std::size_t>(SectionId::kResource)];
    read_resources(*offsets, payload ? *payload : empty, storage, out);
  }
  const auto& properties = sections[static_cast<std::size_t>(SectionId::kProperties)];
  if (properties) read_property_records(*properties, out);
  out.ir = required(sections, SectionId::kIr, file);
  out.attr_type = required(sections, SectionId::kAttrType, file);
  return out;
}

}  // namespace coreai::asset
