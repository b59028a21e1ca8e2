// Prints operations; program_text.cpp has the spelling of each in the program form.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "coreai/ir/module.h"
#include "coreai/ir/printer.h"
#include "ir/value_names.h"

namespace coreai::ir {

class OpPrinter {
 public:
  OpPrinter(const Op& root, const PrintOptions& options, std::ostream& stream)
      : options_(options), names_(root, options.form == TextForm::kDisk), stream_(stream) {}

  void module(const Module& module);
  void finish() { stream_ << out_; }

 private:
  enum class Strip : std::uint8_t { kNo, kYes };  // handles and images without their dialect's prefix

  void line(const Op& op);
  void resources(const Module& module);
  void generic(const Op& op);
  bool disk_special(const Op& op);
  void location(AttrRef location);
  void values(std::span<Value* const> values);
  void types(std::span<Value* const> values, Strip strip = Strip::kNo);
  void result_types(const Op& op);
  // " : (operand types) -> result types"
  void signature(const Op& op, std::string_view arrow = "->");
  void attribute(AttrRef attribute);
  void region(const Region& region, bool entry_label, bool hide_empty_terminator);
  void block(const Block& block, std::size_t index, bool labelled, bool hide_empty_terminator);
  void flush_when_large();

  // The program form of an op; false when it has none or its shape is not the declared one.
  bool program_form(const Op& op);
  bool fits_program_form(const Op& op) const;
  void with_attributes(const Op& op);
  void constant(const Op& op);
  void graph(const Op& op, bool is_function);
  void ports(const Op& op, bool named);
  void port_attributes(const Op& op, std::string_view list, std::size_t index);
  void call(const Op& op);
  void isolated_group(const Op& op);
  void delegate(const Op& op);
  void target_spec(const Op& op);
  void metal_kernel(const Op& op);
  void control_flow(const Op& op);
  void reduction(const Op& op);
  void terminator(const Op& op);

  PrintOptions options_;
  ValueNames names_;
  std::ostream& stream_;
  std::string out_;
  std::size_t indent_ = 0;
};

}  // namespace coreai::ir
