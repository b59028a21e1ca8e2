#include "backend/cpu/reference/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "backend/cpu/reference/evaluator.h"
#include "coreai/base/error.h"
#include "coreai/ir/refusal.h"
#include "coreai/ir/unknown_op.h"

namespace coreai::cpu {
namespace {

using ir::OpCode;

class Planner {
 public:
  explicit Planner(const ir::Module& module) : module_(module) {}

  // The plan of an isolated block (a graph's body, an isolated group), made once.
  const GraphPlan* plan_of(const ir::Block& block, const std::string& name);
  std::vector<std::unique_ptr<GraphPlan>> take() { return std::move(plans_); }

 private:
  const ir::Module& module_;
  std::vector<std::unique_ptr<GraphPlan>> plans_;
  std::unordered_map<const ir::Block*, const GraphPlan*> known_;
  std::unordered_set<const ir::Block*> open_;
  friend class BodyPlanner;
};

// Numbers the values of one isolated body, nested regions of if and while included.
class BodyPlanner {
 public:
  BodyPlanner(Planner& planner, std::string graph) : planner_(planner), graph_(std::move(graph)) {}

  BlockPlan block(const ir::Block& block, std::unordered_set<std::uint32_t>& captured);
  std::uint32_t slots() const { return next_; }

 private:
  Step step(const ir::Op& op, std::unordered_set<std::uint32_t>& used);
  void plan_regions(const ir::Op& op, Step& step, std::unordered_set<std::uint32_t>& used);
  std::uint32_t define(const ir::Value* value);
  std::uint32_t use(const ir::Op& op, const ir::Value* value) const;
  void check_supported(const ir::Op& op) const;
  [[noreturn]] void fail(const ir::Op& op, const std::string& problem) const;

  Planner& planner_;
  std::string graph_;
  std::unordered_map<const ir::Value*, std::uint32_t> slots_;
  std::uint32_t next_ = 0;
};

void BodyPlanner::fail(const ir::Op& op, const std::string& problem) const {
  throw VerificationError(problem, fmt::format("{} in @{}", op.info().disk_name, graph_));
}

// The operation, and what stands in the regions that it runs on elements.
void BodyPlanner::check_supported(const ir::Op& op) const {
  if (!reference_evaluator().supports(op.code)) {
    const ir::Refusal refusal = ir::missing_kernel(op);
    throw UnsupportedError(refusal.problem, "@" + graph_, refusal.next_step);
  }
  if (op.info().decomposable) return;
  for (const ir::Region& region : op.regions) {
    const ir::Block& block = region.block();
    for (const auto& inner : block.ops) {
      if (inner.get() != &block.terminator() && inner->code != OpCode::kConstant) check_supported(*inner);
    }
  }
}

std::uint32_t BodyPlanner::define(const ir::Value* value) {
  slots_[value] = next_;
  return next_++;
}

std::uint32_t BodyPlanner::use(const ir::Op& op, const ir::Value* value) const {
  const auto found = slots_.find(value);
  if (found == slots_.end()) fail(op, "an operand is not defined before its use");
  return found->second;
}

void BodyPlanner::plan_regions(const ir::Op& op, Step& step, std::unordered_set<std::uint32_t>& used) {
  if (op.regions.size() != 2) fail(op, "two regions are needed");
  for (const ir::Region& region : op.regions) {
    step.blocks.push_back(block(region.block(), used));
  }
  const std::size_t results = op.results.size();
  if (step.kind == StepKind::kIf) {
    if (op.operands.size() != 1) fail(op, "one condition is needed");
    for (const BlockPlan& branch : step.blocks) {
      if (branch.results.size() != results || !branch.arguments.empty())
        fail(op, "a branch yields another number of values");
    }
    return;
  }
  const BlockPlan& before = step.blocks[0];
  const BlockPlan& after = step.blocks[1];
  if (before.arguments.size() != op.operands.size() || after.results.size() != before.arguments.size() ||
      before.results.size() != results + 1 || after.arguments.size() != results) {
    fail(op, "the loop carries another number of values than its regions take");
  }
}

Step BodyPlanner::step(const ir::Op& op, std::unordered_set<std::uint32_t>& used) {
  Step step;
  step.op = &op;
  step.kind = step_kind(op);
  for (const ir::Value* operand : op.operands) {
    step.in.push_back(use(op, operand));
    used.insert(step.in.back());
  }
  switch (step.kind) {
    case StepKind::kConstant:
      step.constant = ir::constant_value(op);
      break;
    case StepKind::kCompute:
      check_supported(op);
      break;
    case StepKind::kCall: {
      if (op.code == OpCode::kInvoke) {
        const ir::Graph callee = planner_.module_.callee(op);
        step.callee = planner_.plan_of(callee.body(), callee.name());
      } else {
        if (op.regions.size() != 1) fail(op, "one region is needed");
        step.callee = planner_.plan_of(op.regions[0].block(), graph_);
      }
      if (step.callee->body.arguments.size() != op.operands.size() ||
          step.callee->body.results.size() != op.results.size()) {
        fail(op, "the callee takes or gives another number of values");
      }
      break;
    }
    case StepKind::kIf:
    case StepKind::kWhile:
      plan_regions(op, step, used);
      break;
    case StepKind::kReadState:
      if (op.operands.empty() || op.results.empty()) fail(op, "an operand or a result is missing");
      break;
    case StepKind::kWriteState:
      if (op.operands.size() < 2) fail(op, "an operand is missing");
      break;
    case StepKind::kNothing:
      break;
  }
  for (const ir::Value* result : op.results) step.out.push_back(define(result));
  return step;
}

BlockPlan BodyPlanner::block(const ir::Block& block, std::unordered_set<std::uint32_t>& captured) {
  BlockPlan plan;
  const std::uint32_t first = next_;
  std::unordered_set<std::uint32_t> own;
  for (const ir::Value* argument : block.arguments) {
    plan.arguments.push_back(define(argument));
    own.insert(plan.arguments.back());
  }
  const ir::Op& terminator = block.terminator();
  std::vector<std::unordered_set<std::uint32_t>> uses;
  for (const auto& op : block.ops) {
    if (op.get() == &terminator) break;
    plan.steps.push_back(step(*op, uses.emplace_back()));
    own.insert(plan.steps.back().out.begin(), plan.steps.back().out.end());
  }
  std::unordered_set<std::uint32_t> live;
  for (const ir::Value* operand : terminator.operands) {
    plan.results.push_back(use(terminator, operand));
    live.insert(plan.results.back());
  }
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    std::unordered_set<std::uint32_t> touched = uses[i];
    touched.insert(plan.steps[i].out.begin(), plan.steps[i].out.end());
    for (const std::uint32_t slot : touched) {
      if (own.contains(slot) && live.insert(slot).second) plan.steps[i].release.push_back(slot);
    }
  }
  for (const auto& set : uses) captured.insert(set.begin(), set.end());
  captured.insert(plan.results.begin(), plan.results.end());
  std::erase_if(captured, [first](std::uint32_t slot) { return slot >= first; });
  return plan;
}

const GraphPlan* Planner::plan_of(const ir::Block& block, const std::string& name) {
  if (const auto found = known_.find(&block); found != known_.end()) return found->second;
  if (!open_.insert(&block).second) throw VerificationError("a graph calls itself", "@" + name);
  if (open_.size() > 200) throw VerificationError("calls nest deeper than 200 graphs", "@" + name);
  const std::size_t index = plans_.size();
  plans_.push_back(std::make_unique<GraphPlan>());
  GraphPlan& plan = *plans_[index];
  plan.name = name;
  BodyPlanner planner(*this, name);
  std::unordered_set<std::uint32_t> captured;
  plan.body = planner.block(block, captured);
  plan.slots = planner.slots();
  open_.erase(&block);
  known_[&block] = &plan;
  return &plan;
}

}  // namespace

StepKind step_kind(const ir::Op& op) {
  return ir::stand_in_body(op) ? StepKind::kCall : step_kind(op.code);
}

StepKind step_kind(OpCode code) {
  switch (code) {
    case OpCode::kConstant:
      return StepKind::kConstant;
    case OpCode::kInvoke:
    case OpCode::kIsolatedGroup:
      return StepKind::kCall;
    case OpCode::kIf:
      return StepKind::kIf;
    case OpCode::kWhile:
      return StepKind::kWhile;
    case OpCode::kReadHandle:
      return StepKind::kReadState;
    case OpCode::kWriteHandle:
      return StepKind::kWriteState;
    case OpCode::kCreateToken:
    case OpCode::kJoinToken:
    case OpCode::kDebuginfoRecord:
    case OpCode::kDebuginfoValue:
    case OpCode::kExecutionTargetSpec:
      return StepKind::kNothing;
    default:
      return StepKind::kCompute;
  }
}

std::vector<std::unique_ptr<GraphPlan>> make_plans(const ir::Module& module, const ir::Graph& graph) {
  Planner planner(module);
  planner.plan_of(graph.body(), graph.name());
  return planner.take();
}

}  // namespace coreai::cpu
