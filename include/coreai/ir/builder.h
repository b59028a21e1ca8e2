// Appends operations to a block with the result types that the rules of the dialect give.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "coreai/ir/module.h"

namespace coreai::ir {

struct PortSpec {
  std::string name;
  TypeRef type;
  std::string mutation_of;  // states: name of the output that carries the new value, else empty
};

struct GraphSpec {
  std::string name;
  std::vector<PortSpec> inputs, outputs;
  bool is_private = false;
  bool no_inline = false;
  std::optional<CompositeDecl> composite;
};

class Builder {
 public:
  explicit Builder(Module& module) : module_(module) {}

  // Creates the graph and moves the insertion point into its body; the arguments are its block's arguments.
  Graph begin_graph(const GraphSpec& spec);
  // Ends the graph with `output`.
  void end_graph(std::vector<Value*> results);

  // Any operation with explicit result types; attributes by name. Decomposable operations get a minimal legal body.
  std::vector<Value*> op(OpCode code, std::vector<Value*> operands, std::vector<TypeRef> result_types,
                         std::vector<std::pair<std::string, AttrRef>> attributes = {});
  Value* op1(OpCode code, std::vector<Value*> operands, TypeRef result_type,
             std::vector<std::pair<std::string, AttrRef>> attributes = {});

  // Constants: inline below 256 elements or when splat, else a resource (sub-byte: packed). Equal small ones are
  // shared.
  Value* constant(const NDArray& value);
  Value* constant_i32(std::vector<std::int32_t> values);   // rank 1, si32
  Value* constant_u32(std::vector<std::uint32_t> values);  // rank 1, ui32
  Value* scalar_i32(std::int32_t value);                   // rank 0, si32
  Value* scalar_f32(float value);
  Value* splat(DType dtype, const Shape& shape, double value);
  std::vector<Value*> invoke(const Graph& callee, std::vector<Value*> operands);

  Module& module() { return module_; }
  Context& context() { return module_.context(); }
  void set_block(Block* block) { block_ = block; }

 private:
  Module& module_;
  Block* block_ = nullptr;
  std::vector<std::pair<AttrRef, Value*>> constants_;  // of the current graph
};

}  // namespace coreai::ir
