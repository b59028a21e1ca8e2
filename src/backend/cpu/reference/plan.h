// A graph as the interpreter runs it: values are slots of a frame, and each step knows which slots die with it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/ir/module.h"

namespace coreai::cpu {

struct GraphPlan;
struct BlockPlan;

enum class StepKind : std::uint8_t {
  kConstant,
  kCompute,
  kCall,  // invoke, or an isolated group
  kIf,
  kWhile,
  kNothing,  // tokens order what the order of the steps already orders
  kReadState,
  kWriteState,
};

struct Step {
  const ir::Op* op = nullptr;
  StepKind kind = StepKind::kNothing;
  std::vector<std::uint32_t> in, out;
  std::vector<std::uint32_t> release;  // slots that nobody reads after this step
  NDArray constant;
  const GraphPlan* callee = nullptr;
  std::vector<BlockPlan> blocks;  // of if and while
};

struct BlockPlan {
  std::vector<std::uint32_t> arguments;
  std::vector<Step> steps;
  std::vector<std::uint32_t> results;  // operands of the terminator
};

struct GraphPlan {
  std::string name;
  BlockPlan body;
  std::uint32_t slots = 0;
};

// How the interpreter runs an operation. One that stands for an unknown operation is called when it carries a body.
StepKind step_kind(ir::OpCode code);
StepKind step_kind(const ir::Op& op);

// Plans of a graph and of everything it calls; the first is the graph's.
std::vector<std::unique_ptr<GraphPlan>> make_plans(const ir::Module& module, const ir::Graph& graph);

}  // namespace coreai::cpu
