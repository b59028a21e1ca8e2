// Every fact of a program as text, independent of numbering and of the context that owns it: two programs are the same
// when their dumps are.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>

#include "coreai/base/mapped_file.h"
#include "coreai/ir/module.h"

namespace coreai::test {

class ProgramDump {
 public:
  static std::string of(const ir::Module& module) {
    ProgramDump dump;
    dump.op(module.root(), 0);
    return dump.out_;
  }

 private:
  void line(int depth, const std::string& text) {
    out_ += std::string(static_cast<std::size_t>(depth) * 2, ' ') + text + "\n";
  }

  void op(const ir::Op& op, int depth) {
    std::string text;
    for (const ir::Value* result : op.results) text += fmt::format("%{}:{} ", number(result), entry(result->type));
    text += op.info().disk_name;
    for (const ir::Value* operand : op.operands) text += fmt::format(" %{}", number(operand));
    for (std::size_t i = 0; i < op.attributes.size(); ++i) {
      // The date is computed anew when a program is written.
      if (op.code == ir::OpCode::kSerializationAsset) continue;
      text += fmt::format(" {}={}", op.info().attributes[i].name, op.attributes[i] ? entry(op.attributes[i]) : "none");
    }
    line(depth, text + " loc " + entry(op.location));
    for (const ir::Region& region : op.regions) {
      line(depth, fmt::format("region of {} blocks", region.blocks.size()));
      for (const auto& block : region.blocks) {
        for (const ir::Value* argument : block->arguments) {
          line(depth + 1, fmt::format("argument %{}:{} loc {}", number(argument), entry(argument->type),
                                      entry(argument->location)));
        }
        for (const auto& inner : block->ops) this->op(*inner, depth + 1);
      }
    }
  }

  std::size_t number(const ir::Value* value) { return numbers_.try_emplace(value, numbers_.size()).first->second; }

  template <typename Entry>
  std::string entry(const Entry* item) {
    auto [found, added] = texts_.try_emplace(item);
    if (added) {
      std::string text = fmt::format("{}(", static_cast<int>(item->code()));
      for (const ir::Field& field : item->fields())
        text += std::visit([this](const auto& v) { return this->value(v); }, field) + ";";
      texts_[item] = text + ")";
    }
    return texts_[item];
  }

  std::string value(std::uint64_t v) { return fmt::format("u{}", v); }
  std::string value(std::int64_t v) { return fmt::format("s{}", v); }
  std::string value(const std::string& v) { return fmt::format("\"{}\"", v); }
  std::string value(ir::AttrRef v) { return entry(v); }
  std::string value(ir::TypeRef v) { return entry(v); }
  std::string value(const ir::ResourceRef& v) { return fmt::format("blob {} {}", v->name, to_hex(sha256(v->bytes()))); }
  std::string value(const std::vector<std::byte>& v) { return to_hex(v); }
  template <typename T>
  std::string value(const std::vector<T>& v) {
    std::string text = "[";
    for (const T& element : v) text += value(element) + ",";
    return text + "]";
  }

  std::string out_;
  std::map<const ir::Value*, std::size_t> numbers_;
  std::map<const void*, std::string> texts_;
};

}  // namespace coreai::test
