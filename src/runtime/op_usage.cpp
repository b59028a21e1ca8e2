#include "coreai/runtime/op_usage.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <unordered_map>

#include "backend/cpu/ops/op_kernel.h"
#include "backend/cpu/reference/evaluator.h"
#include "backend/cpu/reference/plan.h"
#include "coreai/compiler/compiler.h"
#include "coreai/ir/refusal.h"
#include "coreai/ir/unknown_op.h"

namespace coreai {
namespace {

using compiler::OpFate;
using ir::OpCode;

// What the interpreter does with an operation.
OpPath plain_op_path(OpCode code) {
  if (cpu::step_kind(code) != cpu::StepKind::kCompute) return OpPath::kStructure;
  return cpu::reference_evaluator().supports(code) ? OpPath::kReference : OpPath::kRefused;
}

class Counter {
 public:
  Counter(const ir::Module& module, FunctionOps& ops) : module_(module), ops_(ops) {}

  void add(const ir::Op& op, OpPath path) {
    const std::string composite = composite_of(op);
    const auto [at, added] = index_.try_emplace({op.code, composite, path}, ops_.usages.size());
    if (added) ops_.usages.push_back({op.code, composite, path, 0, {}});
    OpUsage& usage = ops_.usages[at->second];
    ++usage.count;
    if (path == OpPath::kRefused && usage.reason.empty()) {
      const ir::Refusal refusal = ir::missing_kernel(op);
      usage.reason = fmt::format("{}. {}", refusal.problem, refusal.next_step);
    }
  }

  // Everything the interpreter meets in a block, once per call of a graph.
  void add_block(const ir::Block& block, int depth) {
    if (depth > kMaxDepth) return;
    for (const auto& op : block.ops) {
      if (op.get() == &block.terminator()) break;
      add(*op, path_of(*op));
      if (op->code == OpCode::kInvoke) {
        add_block(module_.callee(*op).body(), depth + 1);
      } else if (cpu::step_kind(*op) != cpu::StepKind::kCompute) {
        for (const ir::Region& region : op->regions) add_block(region.block(), depth + 1);
      }
    }
  }

 private:
  static constexpr int kMaxDepth = 200;  // of the interpreter's calls

  std::string composite_of(const ir::Op& op) const {
    if (op.code != OpCode::kInvoke) return {};
    const auto declared = module_.callee(op).composite();
    return declared ? declared->name : std::string();
  }

  OpPath path_of(const ir::Op& op) const {
    return composite_of(op).empty() && !ir::stand_in_body(op) ? plain_op_path(op.code) : OpPath::kBody;
  }

  const ir::Module& module_;
  FunctionOps& ops_;
  std::map<std::tuple<OpCode, std::string, OpPath>, std::size_t> index_;
};

OpPath path_of(OpFate fate) {
  switch (fate) {
    case OpFate::kStructure:
      return OpPath::kStructure;
    case OpFate::kShapes:
      return OpPath::kShapes;
    case OpFate::kFolded:
      return OpPath::kFolded;
    case OpFate::kUnused:
      return OpPath::kUnused;
    case OpFate::kStep:
      return OpPath::kFused;
    case OpFate::kGeneric:
      return OpPath::kReference;
    case OpFate::kInlined:
      return OpPath::kBody;
  }
  return OpPath::kRefused;
}

}  // namespace

std::string_view op_path_name(OpPath path) {
  constexpr std::string_view kNames[kOpPathCount] = {"fused",  "kernel", "reference", "body",   "shapes",
                                                     "folded", "unused", "structure", "refused"};
  return kNames[static_cast<std::size_t>(path)];
}

std::int64_t FunctionOps::count(OpPath path) const {
  std::int64_t sum = 0;
  for (const OpUsage& usage : usages) sum += usage.path == path ? usage.count : 0;
  return sum;
}

FunctionOps op_usage(const ir::Module& module, const ir::Graph& function,
                     std::span<const std::string> disabled_passes) {
  FunctionOps ops;
  ops.function = function.symbol();
  Counter counter(module, ops);
  compiler::CompileOptions options;
  options.trace = true;
  options.disabled_passes.insert(disabled_passes.begin(), disabled_passes.end());
  const compiler::CompileResult result = compiler::compile(module, function, cpu::reference_evaluator(), options);
  if (!result.plan) {
    ops.execution = "op by op: " + result.reason;
    counter.add_block(function.body(), 0);
    if (ops.count(OpPath::kRefused) > 0) ops.execution = "refused";
    return ops;
  }
  ops.execution = "compiled";
  // An operation whose graph is called twice has two steps of one kind.
  const cpu::Isa isa = cpu::detect_isa();
  std::unordered_map<const ir::Op*, bool> has_kernel;
  for (const compiler::Step& step : result.plan->steps) {
    const auto* generic = std::get_if<compiler::GenericStep>(&step.body);
    if (generic) has_kernel[generic->op] = cpu::make_op_kernel(*generic, isa) != nullptr;
  }
  for (const compiler::TracedOp& traced : result.trace) {
    OpPath path = path_of(traced.fate);
    if (traced.fate == OpFate::kGeneric && has_kernel.at(traced.op)) path = OpPath::kKernel;
    // The function is prepared for the interpreter too, which then refuses it.
    const bool runs = traced.op->code == OpCode::kInvoke || ir::stand_in_body(*traced.op) ||
                      plain_op_path(traced.op->code) != OpPath::kRefused;
    counter.add(*traced.op, runs ? path : OpPath::kRefused);
  }
  if (ops.count(OpPath::kRefused) > 0) ops.execution = "refused";
  return ops;
}

}  // namespace coreai
