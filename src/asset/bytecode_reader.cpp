// From the sections of MLIR bytecode to a module.
#include <fmt/format.h>

#include <unordered_map>

#include "bytecode_container.h"
#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "entry_reader.h"
#include "upgrade.h"

namespace coreai::asset {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Region;
using ir::Value;

// Graphs, control flow and decompositions inside decompositions: genuine files stay below ten.
constexpr int kMaxRegionDepth = 64;

// Values of one region by number. A region that is not isolated continues behind the numbers that its enclosing region
// reserves, so `base` is the reserved total of the enclosing one.
struct ValueScope {
  std::uint64_t base = 0, limit = 0;
  bool sees_outer = false;  // of `if` and `while` alone, however the file writes a region down
  std::vector<Value*> values;
};

class IrReader {
 public:
  IrReader(const Container& container, ir::Module& module)
      : container_(container), module_(module), entries_(container, module.context()) {
    codes_.resize(container.op_names.size());
    unknown_.resize(container.op_names.size());
  }

  void read_module() {
    ByteCursor cursor = *container_.ir;
    scopes_.emplace_back();
    Block top;
    read_block(cursor, top);
    if (!cursor.at_end()) cursor.fail(fmt::format("{} bytes are left over after the program", cursor.remaining()));
    if (top.ops.size() != 1 || top.ops[0]->code != OpCode::kSerializationAsset) {
      cursor.fail("the program is not one serialization.asset");
    }
    Op& root = *top.ops[0];
    if (root.regions.size() != 1 || root.regions[0].blocks.size() != 1) {
      cursor.fail("the serialization.asset has no body");
    }
    module_.root() = std::move(root);
  }

 private:
  // Removes the innermost scopes on the way out, exceptions included.
  class ScopeGuard {
   public:
    ScopeGuard(IrReader& reader, ValueScope scope) : reader_(reader) { reader_.scopes_.push_back(std::move(scope)); }
    ~ScopeGuard() { reader_.scopes_.pop_back(); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    IrReader& reader_;
  };

  void read_region(ByteCursor& cursor, Region& region, bool isolated, bool sees_outer) {
    if (scopes_.size() > kMaxRegionDepth) cursor.fail(fmt::format("regions nest deeper than {}", kMaxRegionDepth));
    const std::size_t blocks = read_count(cursor, 1, "blocks");
    if (blocks == 0) return;
    ValueScope scope;
    scope.base = isolated ? 0 : scopes_.back().limit;
    scope.limit = scope.base + read_count(cursor, 1, "values");
    scope.sees_outer = sees_outer;
    const ScopeGuard guard(*this, std::move(scope));
    for (std::size_t i = 0; i < blocks; ++i) {
      region.blocks.push_back(std::make_unique<Block>());
      read_block(cursor, *region.blocks.back());
    }
  }

  void read_block(ByteCursor& cursor, Block& block) {
    const std::uint64_t packed = read_varint(cursor);
    if (packed & 1) read_arguments(cursor, block);
    // An operation takes a name, a mask and a location.
    const std::uint64_t count = packed >> 1;
    if (count > cursor.remaining() / 3)
      cursor.fail(fmt::format("{} operations are announced, too few bytes follow", count));
    for (std::uint64_t i = 0; i < count; ++i) read_op(cursor, block);
  }

  void read_arguments(ByteCursor& cursor, Block& block) {
    const std::size_t count = read_count(cursor, 1, "block arguments");
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t packed = read_varint(cursor);
      Value* value = define(entries_.type(packed >> 1, cursor), cursor);
      value->block = &block;
      value->index = static_cast<std::uint32_t>(i);
      value->location =
          packed & 1 ? entries_.location(read_varint(cursor), cursor) : module_.context().unknown_location();
      block.arguments.push_back(value);
    }
    if (cursor.u8() != 0) skip_use_list_orders(cursor, count);
  }

  void read_op(ByteCursor& cursor, Block& block) {
    auto owned = std::make_unique<Op>();
    Op& op = *owned;
    const std::uint64_t name = read_varint(cursor);
    op.code = op_code(name, cursor);
    const std::uint8_t mask = cursor.u8();
    op.location = entries_.location(read_varint(cursor), cursor);
    // Discardable attributes mean nothing to the dialect; the reference drops them too.
    if (mask & op_mask::kAttributeDictionary) read_varint(cursor);
    if (unknown_[static_cast<std::size_t>(name)]) {
      if (mask & op_mask::kProperties) {
        read_varint(cursor);  // nobody knows what its record holds
        module_.unreadable_ops.push_back(full_name(name));
      }
      op.set_attribute("opaqueAttrs", module_.context().dictionary_attr({}));
      op.set_attribute("opname", module_.context().string_attr(full_name(name)));
    } else {
      read_properties(cursor, op, (mask & op_mask::kProperties) != 0);
    }
    std::vector<ir::TypeRef> result_types;
    if (mask & op_mask::kResults) {
      const std::size_t count = read_count(cursor, 1, "results");
      for (std::size_t i = 0; i < count; ++i) result_types.push_back(entries_.type(read_varint(cursor), cursor));
    }
    if (mask & op_mask::kOperands) {
      const std::size_t count = read_count(cursor, 1, "operands");
      for (std::size_t i = 0; i < count; ++i) op.operands.push_back(lookup(read_varint(cursor), cursor));
    }
    if (mask & op_mask::kSuccessors) {
      throw UnsupportedError("an operation has successor blocks, which the dialect does not know",
                             fmt::format("{} at byte {}", cursor.where(), cursor.offset()));
    }
    if (mask & op_mask::kUseListOrders) skip_use_list_orders(cursor, result_types.size());
    for (std::size_t i = 0; i < result_types.size(); ++i) {
      Value* value = define(result_types[i], cursor);
      value->op = &op;
      value->index = static_cast<std::uint32_t>(i);
      op.results.push_back(value);
    }
    if (mask & op_mask::kRegions) read_regions(cursor, op);
    const int wanted = op.info().regions;
    if (wanted >= 0 && op.regions.size() != static_cast<std::size_t>(wanted)) {
      cursor.fail(fmt::format("{} has {} regions, {} are legal", op.info().disk_name, op.regions.size(), wanted));
    }
    block.ops.push_back(std::move(owned));
  }

  void read_regions(ByteCursor& cursor, Op& op) {
    const std::uint64_t packed = read_varint(cursor);
    const bool isolated = (packed & 1) != 0, sees_outer = !op.info().regions_isolated();
    const std::uint64_t count = packed >> 1;
    if (count > cursor.remaining()) cursor.fail(fmt::format("{} regions are announced, too few bytes follow", count));
    for (std::uint64_t i = 0; i < count; ++i) {
      op.regions.emplace_back();
      if (!isolated) {
        read_region(cursor, op.regions.back(), false, sees_outer);
        continue;
      }
      SectionView section = read_section(cursor);
      if (section.id != static_cast<std::uint8_t>(SectionId::kIr)) cursor.fail("a region is not an IR section");
      read_region(section.payload, op.regions.back(), true, sees_outer);
      if (!section.payload.at_end()) section.payload.fail("bytes are left over after a region");
    }
  }

  void read_properties(ByteCursor& cursor, Op& op, bool present) {
    const auto& rows = op.info().attributes;
    op.attributes.assign(rows.size(), nullptr);
    if (!present) {
      for (const ir::OpAttributeInfo& row : rows) {
        if (!row.optional) cursor.fail(fmt::format("{} has no attribute record", op.info().disk_name));
      }
      return;
    }
    const std::uint64_t index = read_varint(cursor);
    if (index >= container_.property_records.size()) {
      cursor.fail(fmt::format("attribute record {} of {} does not exist", index, container_.property_records.size()));
    }
    ByteCursor record = container_.property_records[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint64_t packed = read_varint(record);
      if (!rows[i].optional) {
        op.attributes[i] = entries_.attribute(packed, record);
      } else if (packed != 0) {
        if ((packed & 1) == 0) record.fail(fmt::format("the optional attribute `{}` has no flag", rows[i].name));
        op.attributes[i] = entries_.attribute(packed >> 1, record);
      }
    }
    if (!record.at_end()) {
      record.fail(
          fmt::format("the attribute record of {} has {} bytes too many", op.info().disk_name, record.remaining()));
    }
  }

  OpCode op_code(std::uint64_t index, const ByteCursor& at) {
    if (index >= codes_.size()) at.fail(fmt::format("operation name {} of {} does not exist", index, codes_.size()));
    auto& code = codes_[static_cast<std::size_t>(index)];
    if (code) return *code;
    const OpName& name = container_.op_names[static_cast<std::size_t>(index)];
    const std::string_view dialect = container_.dialects[name.dialect];
    if (dialect != "aicode") {
      throw UnsupportedError(fmt::format("the operation {} is unknown", full_name(index)),
                             fmt::format("{} at byte {}", at.where(), at.offset()),
                             "Give an asset that coreai-core 1.0 saved");
    }
    code = ir::op_from_disk_name(name.name);
    // Of a newer dialect: it may carry a decomposition, and is refused by whoever would have to run it.
    if (!code) unknown_[static_cast<std::size_t>(index)] = true, code = OpCode::kSerializationOpaque;
    return *code;
  }

  // "aicode.primitive.add_v1".
  std::string full_name(std::uint64_t index) const {
    const OpName& name = container_.op_names[static_cast<std::size_t>(index)];
    return fmt::format("{}.{}", container_.dialects[name.dialect], name.name);
  }

  Value* define(ir::TypeRef type, const ByteCursor& at) {
    ValueScope& scope = scopes_.back();
    if (scope.base + scope.values.size() >= scope.limit) {
      at.fail(fmt::format("a region defines more than its {} values", scope.limit - scope.base));
    }
    scope.values.push_back(module_.new_value(type));
    return scope.values.back();
  }

  Value* lookup(std::uint64_t index, const ByteCursor& at) const {
    for (std::size_t i = scopes_.size(); i-- > 0;) {
      const ValueScope& scope = scopes_[i];
      if (index >= scope.base) {
        if (index - scope.base < scope.values.size()) return scope.values[static_cast<std::size_t>(index - scope.base)];
        break;
      }
      if (!scope.sees_outer) at.fail(fmt::format("value {} lies outside of a region that sees only its own", index));
    }
    at.fail(fmt::format("value {} is used before it is defined", index));
  }

  // Orders of use lists help to print a program as it was; they carry no meaning.
  static void skip_use_list_orders(ByteCursor& cursor, std::size_t values) {
    const std::size_t count = values > 1 ? read_count(cursor, 1, "use-list orders") : 1;
    for (std::size_t i = 0; i < count; ++i) {
      if (values > 1) read_varint(cursor);
      const std::uint64_t packed = read_varint(cursor);
      if ((packed >> 1) > cursor.remaining()) cursor.fail("a use-list order is longer than its region");
      for (std::uint64_t k = 0; k < packed >> 1; ++k) read_varint(cursor);
    }
  }

  const Container& container_;
  ir::Module& module_;
  EntryReader entries_;
  std::vector<std::optional<OpCode>> codes_;  // by operation name
  std::vector<bool> unknown_;                 // names that the table does not have
  std::vector<ValueScope> scopes_;
};

}  // namespace
}  // namespace coreai::asset

namespace coreai {

namespace {

std::unique_ptr<ir::Module> read_program(const std::shared_ptr<Storage>& storage, const ReadOptions& options) {
  const asset::Container container = asset::read_container(storage, "");
  auto module = std::make_unique<ir::Module>();
  module->producer = container.producer;
  for (const ir::ResourceRef& resource : container.resources) {
    if (resource) module->resources.push_back(resource);
  }
  asset::IrReader(container, *module).read_module();
  if (options.upgrade) asset::upgrade_old_versions(*module);
  return module;
}

}  // namespace

std::unique_ptr<ir::Module> read_bytecode(const std::shared_ptr<Storage>& storage, const std::string& where,
                                          const ReadOptions& options) {
  // A program is cut into tens of thousands of cursors: they carry no name, errors get it on their way out.
  try {
    return read_program(storage, options);
  } catch (const MalformedError& error) {
    throw MalformedError(error, where);
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(error.problem(), where + error.where(), error.next_step());
  }
}

}  // namespace coreai
