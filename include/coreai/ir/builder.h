// Appends operations to a block with the result types that the rules of the dialect give.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "coreai/ir/module.h"

namespace coreai::ir {

struct PortSpec {
  std::string name;
  TypeRef type;
  // Of a state (a handle input): what "MutableBuffers.buffer_mutation" holds, the name of the token output that stands
  // for its new value. Else empty.
  std::string mutation_of;
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
  // Ends the graph with `output`. Throws VerificationError when the types differ from the specification.
  void end_graph(std::vector<Value*> results);

  // Any operation with explicit result types; attributes by name. Decomposable operations get a minimal legal body and
  // scatter_nd its replacing update function; other regions get one empty block each, to be filled by the caller
  // through create() and set_block().
  Op& create(OpCode code, std::vector<Value*> operands, std::vector<TypeRef> result_types,
             std::vector<std::pair<std::string, AttrRef>> attributes = {});
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
  Block* block() const { return block_; }
  // Moves the insertion point to the end of a block. Constants are shared within one block.
  void set_block(Block* block);
  // A block argument, with the shared unknown location.
  Value* add_argument(Block& block, TypeRef type);

 private:
  Value* add_constant(AttrRef value, TypeRef type);
  Module& module_;
  Block* block_ = nullptr;
  Op* graph_ = nullptr;                                             // the graph being built
  std::map<std::pair<AttrRef, TypeRef>, Value*> constants_;         // of the current block
  std::unordered_map<std::string, ResourceRef> resources_by_name_;  // of the whole module
};

// Gives a decomposable operation the smallest legal decomposition: block arguments as its operands and an empty yield.
// Loaders demand the region and run the operation itself.
void add_minimal_body(Module& module, Op& op);

}  // namespace coreai::ir
