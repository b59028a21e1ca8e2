// How each operation of a function runs on this machine: asked of the compiler and the back-end, nothing is executed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/ir/module.h"

namespace coreai {

enum class OpPath : std::uint8_t {
  kFused,      // inside a step of a fused kernel, or a view of memory that costs nothing
  kKernel,     // a threaded kernel of its own
  kReference,  // the reference kernel
  kBody,       // a composite call without a kernel: the operations of its body are counted in its place
  kShapes,     // shape arithmetic on the host
  kFolded,     // computed when the function is loaded
  kUnused,     // nothing reads its results
  kStructure,  // constants, calls, control flow, states, tokens and debug information
  kRefused,    // nothing runs it: the function cannot be loaded
};
inline constexpr int kOpPathCount = 9;
std::string_view op_path_name(OpPath path);  // "fused", "kernel", "reference", "body", ...

struct OpUsage {
  ir::OpCode code{};
  std::string composite;  // of a call: the composite it declares, else empty
  OpPath path = OpPath::kStructure;
  std::int64_t count = 0;  // a graph that is called twice counts twice
  std::string reason;      // refused: what is wrong and what to do instead
};

struct FunctionOps {
  std::string function;
  std::string execution;        // "compiled", "op by op: " and why, or "refused"
  std::vector<OpUsage> usages;  // one per operation, composite and path, in the order of their first use
  std::int64_t count(OpPath path) const;
};

// For precision faithful. `disabled_passes` as in SpecializationOptions. The module must have been verified. Throws
// InvalidArgumentError for an unknown pass.
FunctionOps op_usage(const ir::Module& module, const ir::Graph& function,
                     std::span<const std::string> disabled_passes = {});

}  // namespace coreai
