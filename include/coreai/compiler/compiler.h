// From a function of a module to a plan. docs/compiler.md describes the passes.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/compiler/op_evaluator.h"
#include "coreai/compiler/plan.h"

namespace coreai::compiler {

struct CompileOptions {
  std::set<std::string, std::less<>> disabled_passes;
  bool trace = false;  // fill CompileResult::trace
};

// What became of an operation of the function. One inside a graph that is called twice is traced twice.
enum class OpFate : std::uint8_t {
  kStructure,  // constants, calls, tokens and states: the plan's own order and buffers
  kShapes,     // shape arithmetic: an expression
  kFolded,     // computed by the compiler
  kUnused,     // nothing reads its results
  kStep,       // inside a step of a fused kernel, or a view of memory
  kGeneric,    // a GenericStep
  kInlined,    // a call of a composite: its body stands in its place
};
struct TracedOp {
  const ir::Op* op = nullptr;
  OpFate fate = OpFate::kStructure;
};

struct CompileResult {
  std::optional<Plan> plan;
  std::vector<TracedOp> trace;  // in program order, when wanted and there is a plan
  std::string reason;           // why there is none: the function then runs op by op
};

// Names of the passes that can be switched off, in order.
std::span<const std::string_view> pass_names();

// Never fails on a valid program: a function that no plan serves gives a reason. The plan refers to `module`'s
// constants and operations. Throws InvalidArgumentError for an unknown pass name.
CompileResult compile(const ir::Module& module, const ir::Graph& function, const OpEvaluator& evaluator,
                      const CompileOptions& options = {});

}  // namespace coreai::compiler
