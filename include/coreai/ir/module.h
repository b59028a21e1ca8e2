// A program in memory: module, graphs, blocks, operations, values. Pointers stay valid as long as their module lives.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coreai/ir/context.h"
#include "coreai/ir/op_code.h"
#include "coreai/ir/type.h"

namespace coreai::ir {

class Op;
class Block;
class Module;

// A result of an operation or an argument of a block.
struct Value {
  TypeRef type = nullptr;
  Op* op = nullptr;        // the operation that defines it; null for a block argument
  Block* block = nullptr;  // of a block argument
  std::uint32_t index = 0;
  AttrRef location = nullptr;  // of a block argument
};

class Region {
 public:
  std::vector<std::unique_ptr<Block>> blocks;
  // The one block of a region. Throws VerificationError when there is not exactly one.
  Block& block() const;
};

class Block {
 public:
  std::vector<Value*> arguments;
  std::vector<std::unique_ptr<Op>> ops;
  // The last operation. Throws VerificationError when the block is empty.
  Op& terminator() const;
};

class Op {
 public:
  OpCode code{};
  std::vector<Value*> operands;
  std::vector<Value*> results;
  std::vector<AttrRef> attributes;  // in the order of op_info(code).attributes; null = absent
  std::vector<Region> regions;
  AttrRef location = nullptr;

  const OpInfo& info() const { return op_info(code); }
  // The attribute of that name, or null. Throws InternalError when the table has no such attribute.
  AttrRef attribute(std::string_view name) const;
  // The same, but a missing attribute throws VerificationError.
  const Attribute& required(std::string_view name) const;
  void set_attribute(std::string_view name, AttrRef value);
  TypeRef operand_type(std::size_t i) const { return operands.at(i)->type; }
};

// A declaration that a graph computes a known composite operation (`rms_norm`, `rope`, ...).
struct CompositeDecl {
  std::string name;
  std::vector<std::string> input_names, output_names;
  std::vector<std::pair<std::string, AttrRef>> attributes;
  AttrRef attribute(std::string_view attr_name) const;  // null when absent
};

// A view of one `dataflow.graph` operation: a function, a callee or a composite body.
class Graph {
 public:
  explicit Graph(Op* op, std::string scope = {}) : op_(op), scope_(std::move(scope)) {}
  Op& op() const { return *op_; }
  Block& body() const;
  const std::string& name() const;
  std::string symbol() const { return scope_ + name(); }  // "ns::name" inside a namespace
  bool is_private() const;
  bool is_externalized() const;
  bool is_no_inline() const;
  std::vector<TypeRef> result_types() const;
  // `coreai.name` of each argument and result; empty where there is none.
  std::vector<std::string> input_names() const;
  std::vector<std::string> output_names() const;
  std::optional<CompositeDecl> composite() const;
  // A named argument or result attribute such as "MutableBuffers.buffer_mutation"; null when absent.
  AttrRef argument_attribute(std::size_t index, std::string_view key) const;
  AttrRef result_attribute(std::size_t index, std::string_view key) const;

 private:
  Op* op_;
  std::string scope_;  // "" or "ns::"
};

class Module {
 public:
  Module();  // an empty `serialization.asset`
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Context& context() { return *context_; }
  const Context& context() const { return *context_; }
  Op& root() const { return *root_; }
  Block& body() const { return root_->regions.at(0).block(); }
  // All graphs in file order, those in namespaces included (symbol "ns::name").
  std::vector<Graph> graphs() const;
  // Public graphs that are functions: not private, not externalised, no composite declaration.
  std::vector<Graph> functions() const;
  std::optional<Graph> find_graph(std::string_view symbol) const;
  // The graph an invoke calls. Throws VerificationError when there is none.
  Graph callee(const Op& invoke) const;
  // The symbol path that an invoke's or udml.call's `callee` names, joined with "::".
  static std::string callee_symbol(const Op& invoke);

  Value* new_value(TypeRef type);
  // Blobs of the file in their order, and those that a builder adds. Names are unique.
  std::vector<ResourceRef> resources;
  std::string producer = "MLIR22.0.0git";  // the container's producer text
  // Operations of a newer dialect whose attributes could not be read: the program cannot be written again.
  std::vector<std::string> unreadable_ops;

 private:
  std::unique_ptr<Context> context_;
  std::deque<Value> values_;
  std::unique_ptr<Op> root_;
};

// The value of a `constant` as an array of its result type: resources are not copied, inline sub-byte values are
// packed, splats are expanded. Throws VerificationError or MalformedError when type and bytes do not fit.
NDArray constant_value(const Op& constant);
// Whether it is stored as a splat, and then its one element as an array of shape [].
std::optional<NDArray> constant_splat(const Op& constant);

}  // namespace coreai::ir
