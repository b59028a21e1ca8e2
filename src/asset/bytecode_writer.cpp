#include "bytecode_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "byte_writer.h"
#include "bytecode_container.h"
#include "coreai/base/error.h"

namespace coreai::asset {
namespace {

using ir::AttrRef;
using ir::Block;
using ir::FieldKind;
using ir::Op;
using ir::OpCode;
using ir::Region;
using ir::TypeRef;
using ir::Value;

constexpr std::int32_t kOldestDate = 20250707;  // what the smallest program says
constexpr std::size_t kBlobAlignment = 16;      // loaders refuse more in small files

constexpr std::uint8_t id_of(SectionId id) {
  return static_cast<std::uint8_t>(id);
}

// Finds the blobs a program uses and the newest introduction date of what it is made of; locations do not count.
class Survey {
 public:
  explicit Survey(const ir::Module& module) { visit(module.root()); }

  bool uses(const ir::ResourceRef& resource) const { return resources_.contains(resource); }
  const std::vector<ir::ResourceRef>& resources() const { return resource_order_; }
  std::int32_t date() const { return date_; }

 private:
  void visit(const Op& op) {
    date_ = std::max(date_, op.info().since);
    for (const AttrRef attribute : op.attributes) visit(attribute);
    for (const Value* result : op.results) visit(result->type);
    for (const Region& region : op.regions) {
      for (const auto& block : region.blocks) {
        for (const Value* argument : block->arguments) visit(argument->type);
        for (const auto& inner : block->ops) visit(*inner);
      }
    }
  }

  void visit(AttrRef attribute) {
    if (!attribute || !seen_.insert(attribute).second) return;
    date_ = std::max(date_, ir::attr_info(attribute->code()).since);
    visit_fields(attribute->fields());
  }

  void visit(TypeRef type) {
    if (!type || !seen_.insert(type).second) return;
    date_ = std::max(date_, ir::type_info(type->code()).since);
    visit_fields(type->fields());
  }

  void visit_fields(std::span<const ir::Field> fields) {
    for (const ir::Field& field : fields) {
      if (const auto* attribute = std::get_if<AttrRef>(&field)) visit(*attribute);
      if (const auto* type = std::get_if<TypeRef>(&field)) visit(*type);
      if (const auto* list = std::get_if<std::vector<AttrRef>>(&field)) {
        for (const AttrRef attribute : *list) visit(attribute);
      }
      if (const auto* list = std::get_if<std::vector<TypeRef>>(&field)) {
        for (const TypeRef type : *list) visit(type);
      }
      if (const auto* resource = std::get_if<ir::ResourceRef>(&field)) {
        if (resources_.insert(*resource).second) resource_order_.push_back(*resource);
      }
    }
  }

  std::unordered_set<const void*> seen_;
  std::unordered_set<ir::ResourceRef> resources_;
  std::vector<ir::ResourceRef> resource_order_;
  std::int32_t date_ = kOldestDate;
};

// Numbers of things in the order in which they are first asked for.
template <typename Key>
class Numbering {
 public:
  std::uint64_t operator()(const Key& key) {
    const auto [entry, added] = numbers_.try_emplace(key, order_.size());
    if (added) order_.push_back(key);
    return entry->second;
  }
  const std::vector<Key>& order() const { return order_; }

 private:
  std::map<Key, std::uint64_t> numbers_;
  std::vector<Key> order_;
};

// Attributes, types and strings, and the payloads of the first two.
class EntryWriter {
 public:
  void set_resource(const ir::ResourceRef& resource, std::uint64_t handle) { handles_[resource] = handle; }
  std::uint64_t attribute(AttrRef attribute) { return attributes_(attribute); }
  std::uint64_t type(TypeRef type) { return types_(type); }
  std::uint64_t string(const std::string& text) { return strings_(text); }

  // Payloads of all entries asked for so far and of those they refer to; nothing may be asked for afterwards but
  // strings.
  void finish(ByteWriter& offsets, ByteWriter& payloads) {
    std::vector<ByteWriter> attributes, types;
    while (attributes.size() < attributes_.order().size() || types.size() < types_.order().size()) {
      while (attributes.size() < attributes_.order().size()) {
        const AttrRef next = attributes_.order()[attributes.size()];
        attributes.push_back(
            payload(static_cast<std::uint64_t>(next->code()), ir::attr_info(next->code()), next->fields()));
      }
      while (types.size() < types_.order().size()) {
        const TypeRef next = types_.order()[types.size()];
        types.push_back(payload(static_cast<std::uint64_t>(next->code()), ir::type_info(next->code()), next->fields()));
      }
    }
    offsets.varint(attributes.size());
    offsets.varint(types.size());
    for (const std::vector<ByteWriter>* group : {&attributes, &types}) {
      if (group->empty()) continue;
      offsets.varint(0);  // the one dialect
      offsets.varint(group->size());
      for (const ByteWriter& entry : *group) {
        offsets.varint(entry.size() << 1 | 1);
        payloads.append(entry.bytes());
      }
    }
  }

  ByteWriter string_section() const {
    ByteWriter out;
    out.varint(strings_.order().size());
    for (auto text = strings_.order().rbegin(); text != strings_.order().rend(); ++text) out.varint(text->size() + 1);
    for (const std::string& text : strings_.order()) {
      out.text(text);
      out.u8(0);
    }
    return out;
  }

 private:
  ByteWriter payload(std::uint64_t code, const ir::CodeInfo& info, std::span<const ir::Field> fields) {
    ByteWriter out;
    out.varint(code);
    for (std::size_t i = 0; i < fields.size(); ++i) write_field(info.fields[i].kind, fields, i, out);
    return out;
  }

  template <typename T, typename Write>
  static void write_list(const ir::Field& field, ByteWriter& out, Write write) {
    const auto& values = std::get<std::vector<T>>(field);
    out.varint(values.size());
    for (const T& value : values) write(value);
  }

  void write_field(FieldKind kind, std::span<const ir::Field> fields, std::size_t i, ByteWriter& out) {
    const ir::Field& field = fields[i];
    switch (kind) {
      case FieldKind::kVarint:
        return out.varint(std::get<std::uint64_t>(field));
      case FieldKind::kByte:
        return out.u8(static_cast<std::uint8_t>(std::get<std::uint64_t>(field)));
      case FieldKind::kSVarint:
        return out.signed_varint(std::get<std::int64_t>(field));
      case FieldKind::kString:
        return out.varint(string(std::get<std::string>(field)));
      case FieldKind::kAttr:
        return out.varint(attribute(std::get<AttrRef>(field)));
      case FieldKind::kType:
        return out.varint(type(std::get<TypeRef>(field)));
      case FieldKind::kResource:
        return out.varint(handles_.at(std::get<ir::ResourceRef>(field)));
      case FieldKind::kSVarintList:
        return write_list<std::int64_t>(field, out, [&](std::int64_t value) { out.signed_varint(value); });
      case FieldKind::kVarintList:
        return write_list<std::uint64_t>(field, out, [&](std::uint64_t value) { out.varint(value); });
      case FieldKind::kStringList:
        return write_list<std::string>(field, out, [&](const std::string& text) { out.varint(string(text)); });
      case FieldKind::kAttrList:
        return write_list<AttrRef>(field, out, [&](AttrRef value) { out.varint(attribute(value)); });
      case FieldKind::kTypeList:
        return write_list<TypeRef>(field, out, [&](TypeRef value) { out.varint(type(value)); });
      case FieldKind::kBlob: {
        const auto& bytes = std::get<std::vector<std::byte>>(field);
        out.varint(bytes.size());
        return out.append(bytes);
      }
      case FieldKind::kOptionalVarint: {
        const auto& value = std::get<std::vector<std::uint64_t>>(field);
        out.u8(value.empty() ? 0 : 1);
        if (!value.empty()) out.varint(value[0]);
        return;
      }
      case FieldKind::kApInt:
      case FieldKind::kApFloat:
        return write_words(std::get<std::uint64_t>(fields[0]), std::get<std::vector<std::uint64_t>>(field), out);
    }
  }

  static void write_words(std::uint64_t width, const std::vector<std::uint64_t>& words, ByteWriter& out) {
    if (width <= 8) return out.u8(static_cast<std::uint8_t>(words.at(0)));
    if (width <= 64) return out.signed_varint(static_cast<std::int64_t>(words.at(0)));
    std::size_t active = words.size();
    while (active > 1 && words[active - 1] == 0) --active;
    out.varint(active);
    for (std::size_t i = 0; i < active; ++i) out.signed_varint(static_cast<std::int64_t>(words[i]));
  }

  Numbering<AttrRef> attributes_;
  Numbering<TypeRef> types_;
  Numbering<std::string> strings_;
  std::unordered_map<ir::ResourceRef, std::uint64_t> handles_;
};

// Operations, regions and attribute records.
class IrWriter {
 public:
  IrWriter(EntryWriter& entries, const WriteOptions& options)
      : entries_(entries), strip_locations_(options.strip_locations), unknown_location_(scratch_.unknown_location()) {}

  ByteWriter write(const Op& root, std::int32_t date) {
    ByteWriter out;
    scopes_.emplace_back();
    out.varint(1 << 1);  // a block of one operation without arguments
    root_ = &root;
    version_ = scratch_.integer_attr(date, 32, true);
    write_op(root, out);
    return out;
  }

  const std::vector<OpCode>& op_names() const { return op_names_.order(); }
  const std::vector<std::vector<std::byte>>& records() const { return records_.order(); }

 private:
  struct Scope {
    std::uint64_t base = 0, total = 0;
    std::unordered_map<const Value*, std::uint64_t> numbers;
    bool isolated = true;
  };

  void write_op(const Op& op, ByteWriter& out) {
    const bool has_record = !op.info().attributes.empty();
    std::uint8_t mask = 0;
    if (!op.results.empty()) mask |= op_mask::kResults;
    if (!op.operands.empty()) mask |= op_mask::kOperands;
    if (!op.regions.empty()) mask |= op_mask::kRegions;
    if (has_record) mask |= op_mask::kProperties;
    out.varint(op_names_(op.code));
    out.u8(mask);
    out.varint(location(op.location));
    if (has_record) out.varint(record(op));
    if (!op.results.empty()) out.varint(op.results.size());
    for (const Value* result : op.results) {
      out.varint(entries_.type(result->type));
      define(result);
    }
    if (!op.operands.empty()) out.varint(op.operands.size());
    for (const Value* operand : op.operands) out.varint(lookup(operand, op));
    if (op.regions.empty()) return;
    const bool isolated = op.info().regions_isolated();
    out.varint(op.regions.size() << 1 | (isolated ? 1 : 0));
    for (const Region& region : op.regions) {
      if (!isolated) {
        write_region(region, false, out);
        continue;
      }
      ByteWriter payload;
      write_region(region, true, payload);
      out.section(id_of(SectionId::kIr), payload);
    }
  }

  void write_region(const Region& region, bool isolated, ByteWriter& out) {
    out.varint(region.blocks.size());
    if (region.blocks.empty()) return;
    Scope scope;
    scope.isolated = isolated;
    scope.base = isolated ? 0 : scopes_.back().base + scopes_.back().total;
    for (const auto& block : region.blocks) {
      scope.total += block->arguments.size();
      for (const auto& op : block->ops) scope.total += op->results.size();
    }
    out.varint(scope.total);
    scopes_.push_back(std::move(scope));
    for (const auto& block : region.blocks) write_block(*block, out);
    scopes_.pop_back();
  }

  void write_block(const Block& block, ByteWriter& out) {
    out.varint(block.ops.size() << 1 | (block.arguments.empty() ? 0 : 1));
    if (!block.arguments.empty()) {
      out.varint(block.arguments.size());
      for (const Value* argument : block.arguments) {
        out.varint(entries_.type(argument->type) << 1 | 1);
        out.varint(location(argument->location));
        define(argument);
      }
      out.u8(0);  // no use-list orders
    }
    for (const auto& op : block.ops) write_op(*op, out);
  }

  std::uint64_t record(const Op& op) {
    ByteWriter out;
    const auto& rows = op.info().attributes;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      AttrRef value = i < op.attributes.size() ? op.attributes[i] : nullptr;
      if (&op == root_ && rows[i].name == "version") value = version_;
      if (rows[i].optional) {
        out.varint(value ? entries_.attribute(value) << 1 | 1 : 0);
      } else if (value) {
        out.varint(entries_.attribute(value));
      } else {
        throw VerificationError(fmt::format("the attribute `{}` is missing", rows[i].name),
                                std::string(op.info().disk_name));
      }
    }
    return records_(out.release());
  }

  std::uint64_t location(AttrRef location) {
    return entries_.attribute(location && !strip_locations_ ? location : unknown_location_);
  }

  void define(const Value* value) {
    Scope& scope = scopes_.back();
    const std::uint64_t number = scope.base + scope.numbers.size();
    if (!scope.numbers.emplace(value, number).second) throw VerificationError("a value is defined twice");
  }

  std::uint64_t lookup(const Value* value, const Op& user) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->numbers.find(value);
      if (found != scope->numbers.end()) return found->second;
      if (scope->isolated) break;
    }
    throw VerificationError("an operand is not defined before its use in the same region",
                            std::string(user.info().disk_name));
  }

  EntryWriter& entries_;
  bool strip_locations_;
  ir::Context scratch_;  // owner of attributes that the module does not have
  AttrRef unknown_location_;
  AttrRef version_ = nullptr;
  const Op* root_ = nullptr;
  Numbering<OpCode> op_names_;
  Numbering<std::vector<std::byte>> records_;
  std::vector<Scope> scopes_;
};

// The used blobs: those of the module in their order, then others in the order of their use.
std::vector<ir::ResourceRef> used_resources(const ir::Module& module, const Survey& survey) {
  std::vector<ir::ResourceRef> used;
  std::unordered_set<ir::ResourceRef> listed;
  std::unordered_set<std::string_view> names;
  const auto add = [&](const ir::ResourceRef& resource) {
    if (!survey.uses(resource) || !listed.insert(resource).second) return;
    if (!names.insert(resource->name).second) {
      throw VerificationError(fmt::format("two blobs are named `{}`", resource->name));
    }
    used.push_back(resource);
  };
  for (const ir::ResourceRef& resource : module.resources) add(resource);
  for (const ir::ResourceRef& resource : survey.resources()) add(resource);
  return used;
}

}  // namespace

BytecodeImage::BytecodeImage(const ir::Module& module, const WriteOptions& options) {
  if (!module.unreadable_ops.empty()) {
    throw UnsupportedError(
        fmt::format("the attributes of {} are of a newer dialect and would be lost", module.unreadable_ops[0]), {},
        "Keep the asset as it is, or write it with a newer version of this program");
  }
  const Survey survey(module);
  const std::vector<ir::ResourceRef> resources = used_resources(module, survey);
  EntryWriter entries;
  for (std::size_t i = 0; i < resources.size(); ++i) entries.set_resource(resources[i], i);
  IrWriter ir_writer(entries, options);
  const ByteWriter ir = ir_writer.write(module.root(), survey.date());

  ByteWriter offsets, payloads;
  entries.finish(offsets, payloads);

  ByteWriter dialect_version, dialects;
  dialect_version.varint(kEncodingVersion);
  dialects.varint(1);
  dialects.varint(entries.string("aicode") << 1 | 1);
  dialects.section(id_of(SectionId::kDialectVersions), dialect_version);
  dialects.varint(ir_writer.op_names().size());
  dialects.varint(0);
  dialects.varint(ir_writer.op_names().size());
  for (const OpCode code : ir_writer.op_names()) {
    dialects.varint(entries.string(std::string(ir::op_info(code).disk_name)) << 1 | 1);
  }

  ByteWriter head;
  for (const std::uint8_t byte : kMagic) head.u8(byte);
  head.varint(kBytecodeVersion);
  head.text(module.producer);
  head.u8(0);
  head.section(id_of(SectionId::kDialect), dialects);
  head.section(id_of(SectionId::kAttrTypeOffset), offsets);
  head.section(id_of(SectionId::kAttrType), payloads);
  head.section(id_of(SectionId::kIr), ir);

  // Entry sizes follow from the alignment alone, since the section itself is aligned.
  ByteWriter resource_offsets;
  resource_offsets.varint(0);  // external groups
  if (!resources.empty()) {
    resource_offsets.varint(0);
    resource_offsets.varint(resources.size());
  }
  std::uint64_t position = 0;
  for (const ir::ResourceRef& resource : resources) {
    ByteWriter header;
    header.varint(kBlobAlignment);
    header.varint(resource->size);
    while ((position + header.size()) % kBlobAlignment != 0) header.u8(kPadding);
    resource_offsets.varint(entries.string(resource->name));
    resource_offsets.varint(header.size() + resource->size);
    resource_offsets.u8(0);  // a blob
    position += header.size() + resource->size;
    blobs_.push_back({header.release(), resource});
  }
  head.section(id_of(SectionId::kResourceOffset), resource_offsets);
  if (resources.empty()) {
    head.section(id_of(SectionId::kResource), {});
  } else {
    head.u8(id_of(SectionId::kResource) | kSectionAligned);
    head.varint(position);
    head.varint(kBlobAlignment);
    while (head.size() % kBlobAlignment != 0) head.u8(kPadding);
  }
  head_ = head.release();

  ByteWriter records, tail;
  records.varint(ir_writer.records().size());
  for (const std::vector<std::byte>& record : ir_writer.records()) {
    records.varint(record.size());
    records.append(record);
  }
  tail.section(id_of(SectionId::kString), entries.string_section());
  tail.section(id_of(SectionId::kProperties), records);
  tail_ = tail.release();
}

void BytecodeImage::for_each_part(const std::function<void(std::span<const std::byte>)>& visit) const {
  visit(head_);
  for (const Blob& blob : blobs_) {
    visit(blob.header);
    visit(blob.resource->bytes());
  }
  visit(tail_);
}

std::uint64_t BytecodeImage::size() const {
  std::uint64_t size = 0;
  for_each_part([&](std::span<const std::byte> part) { size += part.size(); });
  return size;
}

}  // namespace coreai::asset

namespace coreai {

std::vector<std::byte> write_bytecode(const ir::Module& module, const WriteOptions& options) {
  const asset::BytecodeImage image(module, options);
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<std::size_t>(image.size()));
  image.for_each_part([&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
  return bytes;
}

}  // namespace coreai
