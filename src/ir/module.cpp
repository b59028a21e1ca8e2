#include "coreai/ir/module.h"

#include <fmt/format.h>

#include "coreai/base/error.h"

namespace coreai::ir {

Block& Region::block() const {
  if (blocks.size() != 1) {
    throw VerificationError(fmt::format("a region has {} blocks, exactly one is legal", blocks.size()));
  }
  return *blocks.front();
}

Op& Block::terminator() const {
  if (ops.empty()) throw VerificationError("a block is empty, a terminator is needed");
  return *ops.back();
}

AttrRef Op::attribute(std::string_view name) const {
  const int index = info().attribute_index(name);
  COREAI_INVARIANT(index >= 0);
  const auto i = static_cast<std::size_t>(index);
  return i < attributes.size() ? attributes[i] : nullptr;
}

const Attribute& Op::required(std::string_view name) const {
  const AttrRef value = attribute(name);
  if (!value)
    throw VerificationError(fmt::format("the attribute `{}` is missing", name), std::string(info().disk_name));
  return *value;
}

void Op::set_attribute(std::string_view name, AttrRef value) {
  const int index = info().attribute_index(name);
  COREAI_INVARIANT(index >= 0);
  attributes.resize(info().attributes.size(), nullptr);
  attributes[static_cast<std::size_t>(index)] = value;
}

AttrRef CompositeDecl::attribute(std::string_view attr_name) const {
  for (const auto& [key, value] : attributes) {
    if (key == attr_name) return value;
  }
  return nullptr;
}

namespace {

// The one parameter of a named value such as `axes = -1`; itself when it has another number.
AttrRef single_parameter(AttrRef named) {
  const auto& parameters = named->field<std::vector<AttrRef>>(1);
  return parameters.size() == 1 ? parameters.front() : named;
}

// The value behind `key` in a list of named values; `aicode.name` and `coreai.name` are the same key.
AttrRef find_named(std::span<const AttrRef> named, std::string_view key) {
  const auto plain = [](std::string_view name) {
    return name.starts_with("coreai.") || name.starts_with("aicode.") ? name.substr(name.find('.')) : name;
  };
  for (const AttrRef entry : named) {
    if (!entry->is(AttrCode::kSerializationOpaque)) continue;
    if (plain(entry->field<std::string>(0)) == plain(key)) return single_parameter(entry);
  }
  return nullptr;
}

AttrRef port_attribute(const Attribute& ports, std::size_t index, std::string_view key) {
  const auto entries = ports.as_array();
  if (index >= entries.size()) return nullptr;
  return find_named(entries[index]->as_array(), key);
}

std::vector<std::string> port_names(const Attribute& ports, std::size_t count) {
  std::vector<std::string> names(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (const AttrRef name = port_attribute(ports, i, "coreai.name")) names[i] = name->as_string();
  }
  return names;
}

std::vector<std::string> string_list(AttrRef array) {
  std::vector<std::string> strings;
  if (!array) return strings;
  for (const AttrRef element : array->as_array()) strings.push_back(element->as_string());
  return strings;
}

}  // namespace

Block& Graph::body() const {
  if (op_->regions.empty()) throw VerificationError("a graph has no region", name());
  return op_->regions.front().block();
}

const std::string& Graph::name() const {
  return op_->required("name").as_string();
}

bool Graph::is_private() const {
  return op_->required("isPrivate").as_bool();
}

bool Graph::is_externalized() const {
  return op_->required("externalize").as_bool();
}

bool Graph::is_no_inline() const {
  return op_->required("noInline").as_bool();
}

std::vector<TypeRef> Graph::result_types() const {
  const Attribute& type = op_->required("functionType");
  if (!type.is(AttrCode::kSerializationType)) throw VerificationError("functionType is not a type", name());
  const TypeRef function = type.field<TypeRef>(0);
  if (function->code() != TypeCode::kFunction) throw VerificationError("functionType is not a function", name());
  return function->field<std::vector<TypeRef>>(0);
}

std::vector<std::string> Graph::input_names() const {
  return port_names(op_->required("argAttrs"), body().arguments.size());
}

std::vector<std::string> Graph::output_names() const {
  return port_names(op_->required("resAttrs"), result_types().size());
}

AttrRef Graph::argument_attribute(std::size_t index, std::string_view key) const {
  return port_attribute(op_->required("argAttrs"), index, key);
}

AttrRef Graph::result_attribute(std::size_t index, std::string_view key) const {
  return port_attribute(op_->required("resAttrs"), index, key);
}

std::optional<CompositeDecl> Graph::composite() const {
  const AttrRef declaration = op_->attribute("compositeDecl");
  if (!declaration) return std::nullopt;
  if (!declaration->is(AttrCode::kSerializationOpaque)) {
    throw VerificationError("compositeDecl is not a named value", name());
  }
  CompositeDecl composite;
  composite.name = declaration->field<std::string>(0);
  const auto& parts = declaration->field<std::vector<AttrRef>>(1);
  composite.input_names = string_list(find_named(parts, "input_names"));
  composite.output_names = string_list(find_named(parts, "output_names"));
  const AttrRef attributes = find_named(parts, "op_attrs");
  if (!attributes) return composite;
  if (!attributes->is(AttrCode::kSerializationDictionary)) {
    throw VerificationError("op_attrs is not a dictionary", name());
  }
  for (const AttrRef entry : attributes->field<std::vector<AttrRef>>(0)) {
    if (!entry->is(AttrCode::kSerializationOpaque)) throw VerificationError("op_attrs holds an unnamed value", name());
    composite.attributes.emplace_back(entry->field<std::string>(0), single_parameter(entry));
  }
  return composite;
}

Module::Module() : context_(std::make_unique<Context>()), root_(std::make_unique<Op>()) {
  root_->code = OpCode::kSerializationAsset;
  root_->attributes.resize(root_->info().attributes.size(), nullptr);
  root_->location = context_->unknown_location();
  root_->regions.emplace_back();
  root_->regions.front().blocks.push_back(std::make_unique<Block>());
}

Value* Module::new_value(TypeRef type) {
  values_.push_back(Value{type});
  return &values_.back();
}

namespace {

void collect_graphs(const Block& block, const std::string& scope, std::vector<Graph>& out) {
  for (const auto& op : block.ops) {
    if (op->code == OpCode::kGraph) {
      out.emplace_back(op.get(), scope);
    } else if (op->code == OpCode::kNamespace && op->regions.size() == 1 && op->regions[0].blocks.size() == 1) {
      collect_graphs(*op->regions[0].blocks[0], scope + op->required("name").as_string() + "::", out);
    }
  }
}

}  // namespace

std::vector<Graph> Module::graphs() const {
  std::vector<Graph> graphs;
  collect_graphs(body(), {}, graphs);
  return graphs;
}

std::vector<Graph> Module::functions() const {
  std::vector<Graph> functions;
  for (Graph& graph : graphs()) {
    if (!graph.is_private() && !graph.is_externalized() && !graph.op().attribute("compositeDecl")) {
      functions.push_back(std::move(graph));
    }
  }
  return functions;
}

std::optional<Graph> Module::find_graph(std::string_view symbol) const {
  for (Graph& graph : graphs()) {
    if (graph.symbol() == symbol) return std::move(graph);
  }
  return std::nullopt;
}

std::string Module::callee_symbol(const Op& invoke) {
  const Attribute* callee = &invoke.required("callee");
  // A parametric callee wraps the constant in a binding.
  while (callee->is(AttrCode::kParamBind) || callee->is(AttrCode::kParamConstant)) callee = callee->field<AttrRef>(0);
  if (!callee->is(AttrCode::kSymbolRef)) throw VerificationError("the callee is not a symbol");
  return fmt::format("{}", fmt::join(callee->field<std::vector<std::string>>(0), "::"));
}

Graph Module::callee(const Op& invoke) const {
  const std::string symbol = callee_symbol(invoke);
  if (auto graph = find_graph(symbol)) return *graph;
  throw VerificationError(fmt::format("the called graph @{} does not exist", symbol));
}

}  // namespace coreai::ir
