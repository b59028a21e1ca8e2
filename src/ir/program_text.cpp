// The program form of each operation: "%2 = coreai.add %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>".
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "coreai/base/error.h"
#include "ir/attribute_text.h"
#include "ir/number_text.h"
#include "ir/op_printer.h"
#include "ir/signature.h"

namespace coreai::ir {
namespace {

// Ops of one operand and one result that print their types without parentheses.
constexpr std::array kBareTypes = {
    OpCode::kAbs,     OpCode::kAcos,     OpCode::kAcosh,         OpCode::kAsin,
    OpCode::kAsinh,   OpCode::kAtan,     OpCode::kAtanh,         OpCode::kCast,
    OpCode::kCos,     OpCode::kCosh,     OpCode::kErf,           OpCode::kExp,
    OpCode::kGelu,    OpCode::kGetShape, OpCode::kImageToTensor, OpCode::kLog,
    OpCode::kNonZero, OpCode::kNot,      OpCode::kRound,         OpCode::kRsqrt,
    OpCode::kSin,     OpCode::kSinh,     OpCode::kSqrt,          OpCode::kSparseWithBitmaskToDense,
    OpCode::kTan,     OpCode::kTanh,     OpCode::kTensorToImage};

bool has_bare_types(OpCode code) {
  return std::ranges::find(kBareTypes, code) != kBareTypes.end();
}

bool prints_to(OpCode code) {  // "to" in place of "->"
  return code == OpCode::kCast || code == OpCode::kExpandDims || code == OpCode::kShrinkDims ||
         code == OpCode::kGatherAlongAxis || code == OpCode::kGatherNd || code == OpCode::kSliceUpdate ||
         code == OpCode::kScatterNd;
}

bool is_true(AttrRef flag) {
  return flag != nullptr && flag->is(AttrCode::kSerializationInteger) && flag->as_bool();
}

// "[[1, 2], [3, 4]]"
void append_nested(std::string& out, const NDArray& array, std::size_t axis, std::int64_t& next) {
  if (axis == array.shape().rank()) {
    out += element_text(array, next++);
    return;
  }
  out += "[";
  for (std::int64_t i = 0; i < array.shape()[axis]; ++i) {
    if (i > 0) out += ", ";
    append_nested(out, array, axis + 1, next);
  }
  out += "]";
}

// The path of a callee `param.constant{symbol_ref}`; null for other forms.
const std::vector<std::string>* callee_path(AttrRef callee) {
  if (callee == nullptr || !callee->is(AttrCode::kParamConstant)) return nullptr;
  const auto symbol = callee->field<AttrRef>(0);
  return symbol != nullptr && symbol->is(AttrCode::kSymbolRef) ? &symbol->field<std::vector<std::string>>(0) : nullptr;
}

}  // namespace

// Whether counts, regions and required attributes are those of the table, so that the spelling below may rely on them.
bool OpPrinter::fits_program_form(const Op& op) const {
  const OpInfo& info = op.info();
  if (info.text_name.empty() || op_from_text_name(info.text_name) != op.code) return false;
  const OpSignature& rules = op_signature(op.code);
  if (!split_values(rules.operands, op.operands.size(), op.results.size())) return false;
  if (!split_values(rules.results, op.results.size(), 0)) return false;
  if (op.attributes.size() != info.attributes.size()) return false;
  for (std::size_t i = 0; i < op.attributes.size(); ++i) {
    if (op.attributes[i] == nullptr && !info.attributes[i].optional) return false;
  }
  if (info.regions >= 0 && op.regions.size() != static_cast<std::size_t>(info.regions)) return false;
  return op.code == OpCode::kUdmlFunc ||
         std::ranges::all_of(op.regions, [](const Region& region) { return region.blocks.size() == 1; });
}

bool OpPrinter::program_form(const Op& op) {
  if (!fits_program_form(op)) return false;
  switch (op.code) {
    case OpCode::kConstant:
      constant(op);
      return true;
    case OpCode::kGraph:
    case OpCode::kUdmlFunc:
      graph(op, op.code == OpCode::kUdmlFunc);
      return true;
    case OpCode::kNamespace:
      out_ += fmt::format("udml.namespace @{} ", identifier_text(op.attribute("name")->as_string()));
      region(op.regions[0], true, false);
      return true;
    case OpCode::kOutput:
    case OpCode::kYield:
    case OpCode::kUdmlReturn:
    case OpCode::kCondition:
      terminator(op);
      return true;
    case OpCode::kInvoke:
    case OpCode::kUdmlCall:
      call(op);
      return true;
    case OpCode::kIsolatedGroup:
      isolated_group(op);
      return true;
    case OpCode::kExecutionDelegate:
      delegate(op);
      return true;
    case OpCode::kExecutionTargetSpec:
      target_spec(op);
      return true;
    case OpCode::kMetal4Kernel:
      metal_kernel(op);
      return true;
    case OpCode::kIf:
    case OpCode::kWhile:
      control_flow(op);
      return true;
    case OpCode::kReduce:
    case OpCode::kReduceIndex:
    case OpCode::kScatterNd:
      reduction(op);
      return true;
    case OpCode::kDebuginfoRecord: {
      out_ += fmt::format("debuginfo.record({} : ", names_(op.operands[0]));
      types(op.operands);
      const AttrRef id = op.attribute("id");
      out_ += ") ";
      if (id->is(AttrCode::kSerializationInteger)) {
        out_ += integer_text(id->field<std::vector<std::uint64_t>>(2), id->field<std::uint64_t>(0), true);
      } else {
        attribute(id);
      }
      return true;
    }
    default:
      with_attributes(op);
      return true;
  }
}

// The common spelling, with what some ops put between operands and types.
void OpPrinter::with_attributes(const Op& op) {
  const auto name = [&](std::size_t i) { return names_(op.operands[i]); };
  const auto mode = [&](std::string_view key, std::string_view attribute_name, bool show_zero) {
    const AttrRef value = op.attribute(attribute_name);
    const std::uint64_t number = value->as_enum();
    if (number == 0 && !show_zero) return;
    const std::string text = enum_case_name(attr_info(value->code()).fields[0].enum_name, number);
    out_ += fmt::format(" {} = <{}>", key, text.empty() ? fmt::format("{}", number) : text);
  };
  Strip strip = Strip::kNo;
  out_ += op.info().text_name;
  if (op.code == OpCode::kCopyWithConstraints || op.code == OpCode::kCopyDiscardingConstraints) {
    out_ += fmt::format("({})", name(0));
  } else if (op.code == OpCode::kGatherAlongAxis) {
    out_ += fmt::format(" {} at {} along {}", name(0), name(1), name(2));
  } else if (op.code == OpCode::kGatherNd) {
    out_ += fmt::format(" {} at {}", name(0), name(1));
  } else if (op.code == OpCode::kSliceUpdate) {
    out_ += fmt::format(" {} with {} at ({}, {}, {})", name(0), name(4), name(1), name(2), name(3));
  } else if (op.code == OpCode::kUdmlPlaceholder) {
    out_ += fmt::format(" \"{}\"(", escaped(op.attribute("opname")->as_string()));
    values(op.operands);
    out_ += ")";
    const AttrRef annotations = op.attribute("annotations");
    if (annotations->is(AttrCode::kSerializationArray) && !annotations->as_array().empty()) {
      out_ += " ";
      AttributeWriter(out_, options_.form).dictionary(annotations->field<std::vector<AttrRef>>(0));
    }
    if (is_true(op.attribute("keep_placeholder"))) out_ += " keep_placeholder";
  } else if (!op.operands.empty()) {
    out_ += " ";
    values(op.operands);
  }
  if (op.code == OpCode::kPad) mode("mode", "padding_mode", true);
  if (op.code == OpCode::kScan) mode("combiner", "combiner", true);
  if (op.code == OpCode::kGelu) mode("approximate", "approximate", false);
  if (op.code == OpCode::kScatterAlongAxis) mode("scatter_mode", "scatter_mode", false);
  if (op.code == OpCode::kInterpolate || op.code == OpCode::kInterpolateCoordinates) {
    out_ += " {interpolation_mode = ";
    attribute(op.attribute("interpolation_mode"));
    out_ += "}";
  }
  if (op.code == OpCode::kReadHandle || op.code == OpCode::kWriteHandle || op.code == OpCode::kImageToTensor ||
      op.code == OpCode::kTensorToImage) {
    strip = Strip::kYes;
  }
  out_ += " : ";
  if (op.code == OpCode::kCreateToken) return types(op.results);
  if (op.code == OpCode::kSliceUpdate) {
    const std::array<Value*, 5> order = {op.operands[0], op.operands[4], op.operands[1], op.operands[2],
                                         op.operands[3]};
    out_ += "(";
    types(order);
    out_ += ")";
  } else if (has_bare_types(op.code)) {
    types(op.operands, strip);
  } else {
    out_ += "(";
    types(op.operands, strip);
    out_ += ")";
  }
  out_ += prints_to(op.code) ? " to " : " -> ";
  if (op.code == OpCode::kTensorToImage) return types(op.results, strip);
  result_types(op);
}

void OpPrinter::constant(const Op& op) {
  constexpr std::int64_t kHexAbove = 100;  // elements; longer lists are printed as the bytes of the file
  const AttrRef value = op.attribute("value");
  const TypeRef type = op.results[0]->type;
  out_ += "coreai.constant ";
  const bool tensor = type->is_tensor() && type->shape().is_static();
  if (value->is(AttrCode::kSerializationDenseResource)) {
    out_ += fmt::format("dense_resource<{}>", identifier_text(value->field<ResourceRef>(0)->name));
  } else if (!tensor || !value->is(AttrCode::kSerializationDenseElements)) {
    attribute(value);
  } else if (const std::int64_t count = type->shape().element_count(); count == 0) {
    out_ += "dense<>";
  } else if (const auto splat = constant_splat(op)) {
    out_ += fmt::format("dense<{}>", element_text(*splat, 0));
  } else if (options_.element_limit >= 0 && count > options_.element_limit) {
    out_ += "dense_resource<__elided__>";
  } else if (count > kHexAbove) {
    out_ += fmt::format("dense<\"0x{}\">", hex_text(value->field<std::vector<std::byte>>(1)));
  } else if (count == 1) {
    out_ += fmt::format("dense<{}>", element_text(constant_value(op), 0));
  } else {
    std::int64_t next = 0;
    out_ += "dense<";
    append_nested(out_, constant_value(op), 0, next);
    out_ += ">";
  }
  out_ += " : ";
  types(op.results);
}

void OpPrinter::port_attributes(const Op& op, std::string_view list, std::size_t index) {
  const AttrRef ports = op.attribute(list);
  if (!ports->is(AttrCode::kSerializationArray) || index >= ports->as_array().size()) return;
  const AttrRef entry = ports->as_array()[index];
  if (entry == nullptr || !entry->is(AttrCode::kSerializationArray) || entry->as_array().empty()) return;
  out_ += " ";
  AttributeWriter(out_, options_.form).dictionary(entry->field<std::vector<AttrRef>>(0));
}

// "(%arg0: type {attributes}, ...) -> (type {attributes}, ...)"
void OpPrinter::ports(const Op& op, bool named) {
  const AttrRef wrapped = op.attribute("functionType");
  const TypeRef type = wrapped->is(AttrCode::kSerializationType) ? wrapped->field<TypeRef>(0) : nullptr;
  const bool is_function = type != nullptr && type->code() == TypeCode::kFunction;
  const std::vector<TypeRef> inputs = is_function ? type->field<std::vector<TypeRef>>(1) : std::vector<TypeRef>{};
  const std::vector<TypeRef> results = is_function ? type->field<std::vector<TypeRef>>(0) : std::vector<TypeRef>{};
  const auto has_attributes = [&](std::size_t i) {
    const std::size_t before = out_.size();
    port_attributes(op, "resAttrs", i);
    const bool any = out_.size() != before;
    out_.resize(before);
    return any;
  };
  AttributeWriter writer(out_, options_.form);
  out_ += "(";
  const std::size_t count = named ? op.regions[0].blocks[0]->arguments.size() : inputs.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out_ += ", ";
    const Value* argument = named ? op.regions[0].blocks[0]->arguments[i] : nullptr;
    if (named) out_ += names_(argument) + ": ";
    writer.type(named ? argument->type : inputs[i]);
    port_attributes(op, "argAttrs", i);
    if (named) location(argument->location);
  }
  out_ += ")";
  if (results.empty()) return;
  out_ += " -> ";
  const bool parens = results.size() > 1 || has_attributes(0) || results[0]->code() == TypeCode::kFunction;
  if (parens) out_ += "(";
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i > 0) out_ += ", ";
    writer.type(results[i]);
    port_attributes(op, "resAttrs", i);
  }
  if (parens) out_ += ")";
}

void OpPrinter::graph(const Op& op, bool is_function) {
  out_ += is_function ? "udml.func " : "coreai.graph ";
  if (!is_function && is_true(op.attribute("isPrivate"))) out_ += "private ";
  if (!is_function && is_true(op.attribute("externalize"))) out_ += "externalize ";
  if (is_true(op.attribute("noInline"))) out_ += "noinline ";
  out_ += "@" + identifier_text(op.attribute("name")->as_string());
  const bool has_body = !op.regions[0].blocks.empty();
  ports(op, has_body);
  const AttrRef composite = is_function ? nullptr : op.attribute("compositeDecl");
  if (composite != nullptr && composite->is(AttrCode::kSerializationOpaque)) {
    out_ += fmt::format(" attributes {{composite_decl = #coreai.composite_declaration<\"{}\" = ",
                        escaped(composite->field<std::string>(0)));
    AttributeWriter(out_, options_.form).dictionary(composite->field<std::vector<AttrRef>>(1));
    out_ += ">}";
  }
  out_ += " ";
  if (has_body) region(op.regions[0], false, false);
}

void OpPrinter::terminator(const Op& op) {
  out_ += op.code == OpCode::kUdmlReturn ? "return" : op.info().text_name;
  if (op.operands.empty()) return;
  out_ += " ";
  values(op.operands);
  out_ += op.code == OpCode::kCondition ? " : (" : " : ";
  types(op.operands);
  if (op.code == OpCode::kCondition) out_ += ")";
}

void OpPrinter::call(const Op& op) {
  out_ += fmt::format("{} ", op.info().text_name);
  if (const auto* path = callee_path(op.attribute("callee"))) {
    out_ += symbol_text(*path);
  } else {
    attribute(op.attribute("callee"));
  }
  out_ += "(";
  values(op.operands);
  out_ += ") ";
  for (const std::string_view key : {"arg_attrs", "res_attrs"}) {
    const AttrRef list = op.attribute(key);
    if (list->is(AttrCode::kSerializationArray) && list->as_array().empty()) continue;
    out_ += fmt::format("{{{} = ", key);
    attribute(list);
    out_ += "} ";
  }
  signature(op);
}

void OpPrinter::isolated_group(const Op& op) {
  out_ += fmt::format("coreai.isolated_group<\"{}\">(", escaped(op.attribute("delegate_id")->as_string()));
  values(op.operands);
  out_ += ")";
  signature(op);
  out_ += " ";
  region(op.regions[0], true, true);
}

void OpPrinter::delegate(const Op& op) {
  out_ += fmt::format("coreai.delegate<\"{}\">(", escaped(op.attribute("delegate_id")->as_string()));
  values(op.operands);
  out_ += ") {";
  if (const AttrRef attributes = op.attribute("delegate_attrs")) {
    out_ += "delegate_attrs = ";
    attribute(attributes);
    out_ += ", ";
  }
  const AttrRef lifecycle = op.attribute("lifecycle");
  if (!lifecycle->is(AttrCode::kExecutionLifecyclePhase) || lifecycle->as_enum() != 0) {
    out_ += "lifecycle = ";
    attribute(lifecycle);
    out_ += ", ";
  }
  out_ += "resource = ";
  const AttrRef resource = op.attribute("resource");
  if (resource->is(AttrCode::kSerializationDenseElements)) {
    const auto& bytes = resource->field<std::vector<std::byte>>(1);
    const std::int64_t limit = options_.element_limit;
    out_ += "array<i8";
    if (limit >= 0 && bytes.size() > static_cast<std::size_t>(limit)) {
      out_ += fmt::format(": {} bytes elided", bytes.size());
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        out_ += fmt::format("{}{}", i == 0 ? ": " : ", ", static_cast<int>(std::to_integer<std::int8_t>(bytes[i])));
      }
    }
    out_ += ">";
  } else {
    attribute(resource);
  }
  out_ += "}";
  signature(op);
}

void OpPrinter::target_spec(const Op& op) {
  out_ += "coreai.target_spec{spec = ";
  const AttrRef spec = op.attribute("spec");
  if (spec->is(AttrCode::kExecutionTargetSpec)) {
    out_ += "<triple = ";
    attribute(spec->field<AttrRef>(0));
    out_ += ", soc = ";
    attribute(spec->field<AttrRef>(1));
    out_ += ", delegateOptions = ";
    const auto options = spec->field<AttrRef>(2);
    // Options are an array of named values.
    if (options != nullptr && options->is(AttrCode::kSerializationArray)) {
      AttributeWriter(out_, options_.form).dictionary(options->field<std::vector<AttrRef>>(0));
    } else {
      attribute(options);
    }
    out_ += ">";
  } else {
    attribute(spec);
  }
  const AttrRef compilation = op.attribute("compilation");
  out_ += ", compilation = ";
  if (compilation->is(AttrCode::kExecutionCompilation)) {
    out_ += fmt::format("<{}>", enum_case_name("Compilation", compilation->as_enum()));
  } else {
    attribute(compilation);
  }
  out_ += "}";
}

void OpPrinter::metal_kernel(const Op& op) {
  const std::span<Value* const> operands = op.operands;
  const std::size_t shapes = op.results.size();
  const std::size_t arguments = operands.size() - 2 - shapes;
  out_ += "coreai.metal4_kernel kernel_args(";
  values(operands.first(arguments));
  out_ += fmt::format("), threads_per_grid {}, threads_per_thread_group {}, result_shapes(",
                      names_(operands[arguments]), names_(operands[arguments + 1]));
  values(operands.last(shapes));
  out_ += ") {kernel_name = ";
  attribute(op.attribute("kernel_name"));
  out_ += ", kernel_source = ";
  attribute(op.attribute("kernel_source"));
  out_ += "}";
  signature(op);
}

void OpPrinter::control_flow(const Op& op) {
  const bool is_while = op.code == OpCode::kWhile;
  out_ += fmt::format("{} ", op.info().text_name);
  values(op.operands);
  if (!op.operands.empty()) out_ += " ";
  const bool hide = !is_while && op.results.empty();
  region(op.regions[0], true, hide);
  out_ += is_while ? " do " : " else ";
  region(op.regions[1], true, hide);
  if (is_while) return signature(op);
  out_ += " : ";
  types(op.operands);
  out_ += " -> ";
  types(op.results);
}

void OpPrinter::reduction(const Op& op) {
  const auto name = [&](std::size_t i) { return names_(op.operands[i]); };
  const auto print_types = [&](std::span<Value* const> operands) {
    out_ += " : (";
    types(operands);
    out_ += prints_to(op.code) ? ") to " : ") -> ";
    result_types(op);
  };
  if (op.code == OpCode::kScatterNd) {
    out_ += fmt::format("coreai.scatter_nd {} with {} at {} ", name(0), name(2), name(1));
    region(op.regions[0], true, false);
    const std::array<Value*, 3> order = {op.operands[0], op.operands[2], op.operands[1]};
    return print_types(order);
  }
  out_ += fmt::format("{} {}, {}, init {} ", op.info().text_name, name(0), name(1), name(2));
  if (op.code == OpCode::kReduceIndex) out_ += fmt::format("init_index {} ", name(3));
  region(op.regions[0], true, false);
  print_types(op.operands);
}

}  // namespace coreai::ir
