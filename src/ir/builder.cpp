#include "coreai/ir/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"

namespace coreai::ir {
namespace {

// From this element count on a constant is a resource, as the reference's writer decides.
constexpr std::int64_t kResourceElements = 256;

std::vector<TypeRef> types_of(const std::vector<PortSpec>& ports) {
  std::vector<TypeRef> types;
  for (const PortSpec& port : ports) types.push_back(port.type);
  return types;
}

AttrRef port_attributes(Context& context, const std::vector<PortSpec>& ports) {
  std::vector<AttrRef> entries;
  for (const PortSpec& port : ports) {
    std::vector<AttrRef> named;
    if (!port.mutation_of.empty()) {
      named.push_back(context.named_attr("MutableBuffers.buffer_mutation", {context.string_attr(port.mutation_of)}));
    }
    if (!port.name.empty()) named.push_back(context.named_attr("aicode.name", {context.string_attr(port.name)}));
    entries.push_back(context.array_attr(std::move(named)));
  }
  return context.array_attr(std::move(entries));
}

AttrRef composite_attribute(Context& context, const CompositeDecl& declaration) {
  const auto strings = [&](const std::vector<std::string>& names) {
    std::vector<AttrRef> elements;
    for (const std::string& name : names) elements.push_back(context.string_attr(name));
    return context.array_attr(std::move(elements));
  };
  std::vector<AttrRef> named;
  for (const auto& [name, value] : declaration.attributes) named.push_back(context.named_attr(name, {value}));
  // Keys of a dictionary stand in alphabetical order.
  std::sort(named.begin(), named.end(),
            [](AttrRef a, AttrRef b) { return a->field<std::string>(0) < b->field<std::string>(0); });
  return context.named_attr(declaration.name,
                            {context.named_attr("input_names", {strings(declaration.input_names)}),
                             context.named_attr("op_attrs", {context.dictionary_attr(std::move(named))}),
                             context.named_attr("output_names", {strings(declaration.output_names)})});
}

bool all_elements_equal(const NDArray& value) {
  const auto bytes = value.bytes();
  const std::size_t width = bytes.size() / static_cast<std::size_t>(value.element_count());
  return std::memcmp(bytes.data(), bytes.data() + width, bytes.size() - width) == 0;
}

// Whether the constant is written as one element; sub-byte ones only when they have a single element.
bool is_splat(const NDArray& value) {
  if (value.element_count() == 0) return false;
  if (value.element_count() == 1) return true;
  return !is_subbyte(value.dtype()) && all_elements_equal(value);
}

// Inline bytes: natural size, but a splat of i1 keeps all of them and a sub-byte element takes a whole byte.
std::vector<std::byte> inline_bytes(const NDArray& value, bool splat) {
  const auto bytes = value.bytes();
  if (is_subbyte(value.dtype())) {
    const unsigned mask = (1u << dtype_bits(value.dtype())) - 1;
    const unsigned bits = static_cast<unsigned>(bytes[0]) & mask;
    // A splat of ui1 is 0x00 or 0xff.
    return {static_cast<std::byte>(value.dtype() == DType::kUI1 && bits ? 0xffu : bits)};
  }
  if (!splat || value.dtype() == DType::kI1) return {bytes.begin(), bytes.end()};
  const std::size_t width = bytes.size() / static_cast<std::size_t>(value.element_count());
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(width)};
}

}  // namespace

Graph Builder::begin_graph(const GraphSpec& spec) {
  Context& context = module_.context();
  auto owned = std::make_unique<Op>();
  Op& op = *owned;
  op.code = OpCode::kGraph;
  op.location = context.unknown_location();
  op.set_attribute("argAttrs", port_attributes(context, spec.inputs));
  op.set_attribute("resAttrs", port_attributes(context, spec.outputs));
  op.set_attribute("externalize", context.flag_attr(false));
  op.set_attribute("isPrivate", context.flag_attr(spec.is_private));
  op.set_attribute("noInline", context.flag_attr(spec.no_inline));
  op.set_attribute("name", context.string_attr(spec.name));
  op.set_attribute("paramDecls", context.array_attr({}));
  op.set_attribute("functionType",
                   context.type_attr(context.function_type(types_of(spec.inputs), types_of(spec.outputs))));
  if (spec.composite) op.set_attribute("compositeDecl", composite_attribute(context, *spec.composite));
  op.regions.emplace_back();
  op.regions.back().blocks.push_back(std::make_unique<Block>());
  Block& body = *op.regions.back().blocks.back();
  for (const PortSpec& input : spec.inputs) add_argument(body, input.type);
  module_.body().ops.push_back(std::move(owned));
  graph_ = &op;
  set_block(&body);
  return Graph(&op);
}

void Builder::end_graph(std::vector<Value*> results) {
  COREAI_INVARIANT(graph_ != nullptr);
  const std::vector<TypeRef> expected = Graph(graph_).result_types();
  const auto same_type = [](const Value* value, TypeRef type) { return value->type == type; };
  if (!std::equal(results.begin(), results.end(), expected.begin(), expected.end(), same_type)) {
    throw VerificationError("the results differ from the declared ones in number or type", Graph(graph_).name());
  }
  create(OpCode::kOutput, std::move(results), {});
  graph_ = nullptr;
  set_block(nullptr);
}

void Builder::set_block(Block* block) {
  block_ = block;
  constants_.clear();
}

Value* Builder::add_argument(Block& block, TypeRef type) {
  Value* value = module_.new_value(type);
  value->block = &block;
  value->index = static_cast<std::uint32_t>(block.arguments.size());
  value->location = module_.context().unknown_location();
  block.arguments.push_back(value);
  return value;
}

Op& Builder::create(OpCode code, std::vector<Value*> operands, std::vector<TypeRef> result_types,
                    std::vector<std::pair<std::string, AttrRef>> attributes) {
  COREAI_INVARIANT(block_ != nullptr);
  auto owned = std::make_unique<Op>();
  Op& op = *owned;
  op.code = code;
  op.location = module_.context().unknown_location();
  op.operands = std::move(operands);
  op.attributes.resize(op.info().attributes.size(), nullptr);
  for (const auto& [name, value] : attributes) op.set_attribute(name, value);
  for (const TypeRef type : result_types) {
    Value* value = module_.new_value(type);
    value->op = &op;
    value->index = static_cast<std::uint32_t>(op.results.size());
    op.results.push_back(value);
  }
  for (int i = 0; i < op.info().regions; ++i) {
    op.regions.emplace_back();
    op.regions.back().blocks.push_back(std::make_unique<Block>());
  }
  block_->ops.push_back(std::move(owned));
  if (op.info().decomposable) add_minimal_body(module_, op);
  if (code == OpCode::kScatterNd) {
    Block& update = op.regions[0].block();
    const TypeRef element = context().tensor_type(op.operand_type(0)->dtype(), {});
    add_argument(update, element);
    Value* replacement = add_argument(update, element);
    auto yield = std::make_unique<Op>();
    yield->code = OpCode::kYield;
    yield->location = op.location;
    yield->operands = {replacement};
    update.ops.push_back(std::move(yield));
  }
  return op;
}

std::vector<Value*> Builder::op(OpCode code, std::vector<Value*> operands, std::vector<TypeRef> result_types,
                                std::vector<std::pair<std::string, AttrRef>> attributes) {
  return create(code, std::move(operands), std::move(result_types), std::move(attributes)).results;
}

Value* Builder::op1(OpCode code, std::vector<Value*> operands, TypeRef result_type,
                    std::vector<std::pair<std::string, AttrRef>> attributes) {
  return create(code, std::move(operands), {result_type}, std::move(attributes)).results.front();
}

Value* Builder::add_constant(AttrRef value, TypeRef type) {
  const auto [entry, added] = constants_.try_emplace({value, type}, nullptr);
  if (added) entry->second = op1(OpCode::kConstant, {}, type, {{"value", value}});
  return entry->second;
}

Value* Builder::constant(const NDArray& value) {
  const TypeRef type = context().tensor_type(value.dtype(), value.shape());
  const bool splat = is_splat(value);
  const bool packed = is_subbyte(value.dtype()) && !splat && value.element_count() > 0;
  if (splat || (!packed && value.element_count() < kResourceElements)) {
    return add_constant(context().dense_attr(inline_bytes(value, splat), splat), type);
  }
  // The name is a digest of the bytes: equal blobs are stored once and files are reproducible.
  const std::vector<std::byte> digest = sha256(value.bytes());
  const std::string name = "resource_" + to_hex(std::span(digest).first(8));
  ResourceRef& resource = resources_by_name_[name];
  if (!resource) {
    const auto offset = static_cast<std::size_t>(value.bytes().data() - value.storage()->data());
    resource = std::make_shared<const Resource>(Resource{name, 16, value.storage(), offset, value.bytes().size()});
    module_.resources.push_back(resource);
  }
  return add_constant(context().resource_attr(resource), type);
}

Value* Builder::constant_i32(std::vector<std::int32_t> values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return constant(NDArray::from<std::int32_t>(DType::kSI32, shape, values));
}

Value* Builder::constant_u32(std::vector<std::uint32_t> values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return constant(NDArray::from<std::uint32_t>(DType::kUI32, shape, values));
}

Value* Builder::scalar_i32(std::int32_t value) {
  return constant(NDArray::from<std::int32_t>(DType::kSI32, {}, std::span(&value, 1)));
}

Value* Builder::scalar_f32(float value) {
  return constant(NDArray::from<float>(DType::kF32, {}, std::span(&value, 1)));
}

Value* Builder::splat(DType dtype, const Shape& shape, double value) {
  NDArray element(dtype, Shape{});
  write_from_f64(element, std::span(&value, 1));
  std::vector<std::byte> bytes = inline_bytes(element, true);
  if (dtype == DType::kI1) bytes.resize(static_cast<std::size_t>(shape.element_count()), bytes.at(0));
  if (shape.element_count() == 0) bytes.clear();
  return add_constant(context().dense_attr(std::move(bytes), shape.element_count() != 0),
                      context().tensor_type(dtype, shape));
}

std::vector<Value*> Builder::invoke(const Graph& callee, std::vector<Value*> operands) {
  const AttrRef empty = context().array_attr({});
  return op(OpCode::kInvoke, std::move(operands), callee.result_types(),
            {{"arg_attrs", empty}, {"callee", context().callee_attr(callee.symbol())}, {"res_attrs", empty}});
}

void add_minimal_body(Module& module, Op& op) {
  op.regions.clear();
  op.regions.emplace_back();
  op.regions.back().blocks.push_back(std::make_unique<Block>());
  Block& block = *op.regions.back().blocks.back();
  for (const Value* operand : op.operands) {
    Value* argument = module.new_value(operand->type);
    argument->block = &block;
    argument->index = static_cast<std::uint32_t>(block.arguments.size());
    argument->location = module.context().unknown_location();
    block.arguments.push_back(argument);
  }
  auto yield = std::make_unique<Op>();
  yield->code = OpCode::kYield;
  yield->location = module.context().unknown_location();
  block.ops.push_back(std::move(yield));
}

}  // namespace coreai::ir
