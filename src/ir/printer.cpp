#include "coreai/ir/printer.h"

#include <fmt/format.h>

#include <sstream>

#include "coreai/base/error.h"
#include "ir/attribute_text.h"
#include "ir/number_text.h"
#include "ir/op_printer.h"

namespace coreai::ir {

void OpPrinter::module(const Module& module) {
  out_ += "module {\n";
  indent_ += 2;
  if (options_.form == TextForm::kDisk) {
    line(module.root());
  } else {
    for (const auto& op : module.body().ops) line(*op);
  }
  indent_ -= 2;
  out_ += "}\n";
  if (options_.element_limit < 0) resources(module);
}

void OpPrinter::resources(const Module& module) {
  if (module.resources.empty()) return;
  out_ += fmt::format("\n{{-#\n  dialect_resources: {{\n    {}: {{\n",
                      options_.form == TextForm::kDisk ? "aicode" : "builtin");
  for (std::size_t i = 0; i < module.resources.size(); ++i) {
    const Resource& resource = *module.resources[i];
    const auto alignment = std::as_bytes(std::span(&resource.alignment, 1));  // 32 bits, little-endian
    out_ += fmt::format("      {}: \"0x{}", identifier_text(resource.name), hex_text(alignment));
    out_ += hex_text(resource.bytes());
    out_ += i + 1 < module.resources.size() ? "\",\n" : "\"\n";
    flush_when_large();
  }
  out_ += "    }\n  }\n#-}\n";
}

void OpPrinter::line(const Op& op) {
  out_.append(indent_, ' ');
  const std::string results = names_.results(op);
  if (!results.empty()) out_ += results + " = ";
  if (options_.form == TextForm::kDisk || !program_form(op)) generic(op);
  location(op.location);
  out_ += "\n";
  flush_when_large();
}

void OpPrinter::flush_when_large() {
  constexpr std::size_t kFlushBytes = std::size_t{1} << 20;
  if (out_.size() < kFlushBytes) return;
  stream_ << out_;
  out_.clear();
}

void OpPrinter::location(AttrRef location) {
  if (!options_.locations) return;
  out_ += " ";
  if (options_.form == TextForm::kDisk) {
    out_ += "loc(";
    attribute(location);
    out_ += ")";
    return;
  }
  // debuginfo.location{src = source_location{file, line, column, ...}, ...}
  const bool has_source = location != nullptr && (location->is(AttrCode::kDebuginfoLocation) ||
                                                  location->is(AttrCode::kDebuginfoLocationWithInlinedAt));
  const AttrRef source = has_source ? location->field<AttrRef>(0) : nullptr;
  if (source != nullptr && source->is(AttrCode::kDebuginfoSourceLocation)) {
    const auto file = source->field<AttrRef>(0);
    if (file != nullptr && file->is(AttrCode::kDebuginfoFile) && !file->field<std::string>(0).empty()) {
      out_ += fmt::format("loc(\"{}\":{}:{})", escaped(file->field<std::string>(0)), source->field<std::uint64_t>(1),
                          source->field<std::uint64_t>(2));
      return;
    }
  }
  out_ += "loc(unknown)";
}

void OpPrinter::values(std::span<Value* const> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out_ += ", ";
    out_ += names_(values[i]);
  }
}

void OpPrinter::types(std::span<Value* const> values, Strip strip) {
  AttributeWriter writer(out_, options_.form);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out_ += ", ";
    if (strip == Strip::kYes) {
      writer.stripped_type(values[i]->type);
    } else {
      writer.type(values[i]->type);
    }
  }
}

void OpPrinter::result_types(const Op& op) {
  const bool parens =
      op.results.size() != 1 || (op.results[0]->type != nullptr && op.results[0]->type->code() == TypeCode::kFunction);
  if (parens) out_ += "(";
  types(op.results);
  if (parens) out_ += ")";
}

void OpPrinter::signature(const Op& op, std::string_view arrow) {
  out_ += " : (";
  types(op.operands);
  out_ += fmt::format(") {} ", arrow);
  result_types(op);
}

void OpPrinter::attribute(AttrRef attribute) {
  AttributeWriter(out_, options_.form).attribute(attribute);
}

void OpPrinter::block(const Block& block, std::size_t index, bool labelled, bool hide_empty_terminator) {
  if (labelled) {
    out_.append(indent_ - 2, ' ');
    out_ += fmt::format("^bb{}", index);
    if (!block.arguments.empty()) {
      out_ += "(";
      for (std::size_t i = 0; i < block.arguments.size(); ++i) {
        if (i > 0) out_ += ", ";
        out_ += names_(block.arguments[i]) + ": ";
        AttributeWriter(out_, options_.form).type(block.arguments[i]->type);
        location(block.arguments[i]->location);
      }
      out_ += ")";
    }
    out_ += ":\n";
  }
  for (const auto& op : block.ops) {
    const bool hidden = hide_empty_terminator && op == block.ops.back() && op->code == OpCode::kYield &&
                        op->operands.empty() && op->results.empty();
    if (!hidden) line(*op);
  }
}

void OpPrinter::region(const Region& region, bool entry_label, bool hide_empty_terminator) {
  out_ += "{\n";
  indent_ += 2;
  for (std::size_t i = 0; i < region.blocks.size(); ++i) {
    const bool labelled = i > 0 || (entry_label && !region.blocks[i]->arguments.empty());
    block(*region.blocks[i], i, labelled, hide_empty_terminator);
  }
  indent_ -= 2;
  out_.append(indent_, ' ');
  out_ += "}";
}

// The two ops that have a spelling of their own on disk.
bool OpPrinter::disk_special(const Op& op) {
  const AttrRef spec = op.code == OpCode::kExecutionTargetSpec ? op.attribute("spec") : nullptr;
  if (spec != nullptr && op.attribute("compilation") != nullptr) {
    out_ += "aicode.execution.target_spec_v1{spec = ";
    AttributeWriter(out_, options_.form).bare(spec);
    out_ += ", compilation = ";
    AttributeWriter(out_, options_.form).bare(op.attribute("compilation"));
    out_ += "}";
    return true;
  }
  if (op.code != OpCode::kDebuginfoRecord || op.operands.size() != 1 || op.attribute("id") == nullptr) return false;
  out_ += fmt::format("aicode.debuginfo.record_v1({} : ", names_(op.operands[0]));
  types(op.operands);
  out_ += ") ";
  AttributeWriter(out_, options_.form).bare(op.attribute("id"));
  return true;
}

// "aicode.primitive.add_v1"(%0, %1) <{name = value}> ({region}) : (types) -> types
void OpPrinter::generic(const Op& op) {
  const OpInfo& info = op.info();
  if (options_.form == TextForm::kDisk && disk_special(op)) return;
  out_ += fmt::format("\"aicode.{}\"(", info.disk_name);
  values(op.operands);
  out_ += ")";
  bool any = false;
  for (std::size_t i = 0; i < op.attributes.size() && i < info.attributes.size(); ++i) {
    if (op.attributes[i] == nullptr) continue;
    out_ += fmt::format("{}{} = ", any ? ", " : " <{", info.attributes[i].name);
    attribute(op.attributes[i]);
    any = true;
  }
  if (any) out_ += "}>";
  const bool shows_regions = options_.form == TextForm::kDisk || !info.decomposable;
  for (std::size_t i = 0; shows_regions && i < op.regions.size(); ++i) {
    out_ += i == 0 ? " (" : ", ";
    region(op.regions[i], true, false);
  }
  if (shows_regions && !op.regions.empty()) out_ += ")";
  signature(op);
}

void print(const Module& module, std::ostream& out, const PrintOptions& options) {
  OpPrinter printer(module.root(), options, out);
  printer.module(module);
  printer.finish();
}

std::string to_text(const Module& module, const PrintOptions& options) {
  std::ostringstream out;
  print(module, out, options);
  return std::move(out).str();
}

}  // namespace coreai::ir
