#include "backend/cpu/reference/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "backend/cpu/reference/evaluator.h"
#include "backend/cpu/reference/plan.h"
#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

using Values = std::vector<Argument>;
using Clock = std::chrono::steady_clock;

bool is_sparse(ir::TypeRef type) {
  const ir::AttrRef encoding = type->encoding();
  return encoding && (encoding->is(ir::AttrCode::kSparseTensorEncoding) ||
                      encoding->is(ir::AttrCode::kSparseTensorEncodingWithBlockSize));
}

// One run of one graph: its values by slot.
class Frame {
 public:
  Frame(const GraphPlan& plan, const std::stop_token& stop, OpTimes* times)
      : plan_(plan), stop_(stop), times_(times), slots_(plan.slots) {}

  Values run(Values arguments) {
    run_block(plan_.body, std::move(arguments));
    return gather(plan_.body.results, 0);
  }

 private:
  void run_block(const BlockPlan& block, Values arguments);
  void run_step(const Step& step);
  void run_if(const Step& step);
  void run_while(const Step& step);
  void write_state(const Step& step);
  void check_results(const Step& step, const std::vector<NDArray>& results) const;
  Values gather(const std::vector<std::uint32_t>& slots, std::size_t from) const;
  bool condition(std::uint32_t slot, const Step& step) const;
  bool dies_here(const Step& step, std::uint32_t slot) const;
  [[noreturn]] void fail(const Step& step, const std::string& problem) const;

  const GraphPlan& plan_;
  const std::stop_token& stop_;
  OpTimes* times_;
  Values slots_;
};

void Frame::fail(const Step& step, const std::string& problem) const {
  throw ShapeError(problem, fmt::format("{} in @{}", step.op->info().disk_name, plan_.name));
}

Values Frame::gather(const std::vector<std::uint32_t>& slots, std::size_t from) const {
  Values values;
  for (std::size_t i = from; i < slots.size(); ++i) values.push_back(slots_[slots[i]]);
  return values;
}

bool Frame::dies_here(const Step& step, std::uint32_t slot) const {
  return std::find(step.release.begin(), step.release.end(), slot) != step.release.end();
}

void Frame::run_block(const BlockPlan& block, Values arguments) {
  COREAI_INVARIANT(arguments.size() == block.arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) slots_[block.arguments[i]] = std::move(arguments[i]);
  for (const Step& step : block.steps) {
    if (stop_.stop_requested()) throw CancelledError("the call was cancelled", "@" + plan_.name);
    run_step(step);
    for (const std::uint32_t slot : step.release) slots_[slot] = Argument{};
  }
}

void Frame::check_results(const Step& step, const std::vector<NDArray>& results) const {
  COREAI_INVARIANT(results.size() == step.out.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ir::TypeRef type = step.op->results[i]->type;
    if (!type->is_tensor() || is_sparse(type)) continue;
    const Shape& declared = type->shape();
    const Shape& shape = results[i].shape();
    bool fits = results[i].dtype() == type->dtype() && shape.rank() == declared.rank();
    for (std::size_t d = 0; fits && d < shape.rank(); ++d) fits = declared[d] == kDynamic || declared[d] == shape[d];
    if (!fits) {
      fail(step, fmt::format("the result is [{}]{}, the program declares [{}]{}", shape.to_string(),
                             dtype_name(results[i].dtype()), declared.to_string(), dtype_name(type->dtype())));
    }
  }
}

bool Frame::condition(std::uint32_t slot, const Step& step) const {
  const NDArray& flag = slots_[slot].array;
  if (flag.empty() || flag.dtype() != DType::kI1 || flag.element_count() != 1)
    fail(step, "the condition is not one i1");
  return flag.bytes()[0] != std::byte{0};
}

void Frame::run_if(const Step& step) {
  const BlockPlan& branch = step.blocks[condition(step.in[0], step) ? 0 : 1];
  run_block(branch, {});
  Values values = gather(branch.results, 0);
  for (std::size_t i = 0; i < values.size(); ++i) slots_[step.out[i]] = std::move(values[i]);
}

void Frame::run_while(const Step& step) {
  const BlockPlan& before = step.blocks[0];
  const BlockPlan& after = step.blocks[1];
  Values carried = gather(step.in, 0);
  while (true) {
    run_block(before, std::move(carried));
    Values values = gather(before.results, 1);
    if (!condition(before.results[0], step)) {
      for (std::size_t i = 0; i < values.size(); ++i) slots_[step.out[i]] = std::move(values[i]);
      return;
    }
    if (stop_.stop_requested()) throw CancelledError("the call was cancelled", "@" + plan_.name);
    run_block(after, std::move(values));
    carried = gather(after.results, 0);
  }
}

void Frame::write_state(const Step& step) {
  NDArray* state = slots_[step.in[0]].state;
  const std::uint32_t from = step.in[1];
  if (!state || slots_[from].array.empty()) fail(step, "a state or its value is missing");
  NDArray value = dies_here(step, from) ? std::move(slots_[from].array) : slots_[from].array;
  if (value.dtype() != state->dtype() || !(value.shape() == state->shape())) {
    fail(step, fmt::format("the state is [{}]{}, the value [{}]{}", state->shape().to_string(),
                           dtype_name(state->dtype()), value.shape().to_string(), dtype_name(value.dtype())));
  }
  const auto& storage = value.storage();
  const bool ours = storage.use_count() == 1 && storage->writable() && storage->size() == value.byte_size();
  *state = ours ? std::move(value) : value.clone();
}

void Frame::run_step(const Step& step) {
  switch (step.kind) {
    case StepKind::kConstant:
      slots_[step.out[0]].array = step.constant;
      return;
    case StepKind::kCompute: {
      std::vector<NDArray> inputs;
      inputs.reserve(step.in.size());
      for (const std::uint32_t slot : step.in) {
        if (slots_[slot].array.empty()) fail(step, "an operand holds no array");
        inputs.push_back(slots_[slot].array);
      }
      const auto start = times_ ? Clock::now() : Clock::time_point();
      std::vector<NDArray> results = reference_evaluator().evaluate(*step.op, inputs);
      if (times_) {
        OpTime& time = (*times_)[step.op->code];
        ++time.calls;
        time.ms += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      }
      check_results(step, results);
      for (std::size_t i = 0; i < results.size(); ++i) slots_[step.out[i]].array = std::move(results[i]);
      return;
    }
    case StepKind::kCall: {
      Frame callee(*step.callee, stop_, times_);
      Values results = callee.run(gather(step.in, 0));
      for (std::size_t i = 0; i < results.size(); ++i) slots_[step.out[i]] = std::move(results[i]);
      return;
    }
    case StepKind::kIf:
      return run_if(step);
    case StepKind::kWhile:
      return run_while(step);
    case StepKind::kReadState: {
      NDArray* state = slots_[step.in[0]].state;
      if (!state) fail(step, "the handle is bound to no state");
      slots_[step.out[0]].array = *state;  // stays as it is: a write replaces the state's array
      return;
    }
    case StepKind::kWriteState:
      return write_state(step);
    case StepKind::kNothing:
      return;
  }
}

}  // namespace

Interpreter::Interpreter(std::shared_ptr<const ir::Module> module, const ir::Graph& graph)
    : module_(std::move(module)), plans_(make_plans(*module_, graph)) {}

Interpreter::~Interpreter() = default;

std::vector<NDArray> Interpreter::run(std::span<const Argument> arguments, std::stop_token stop, OpTimes* times) const {
  Frame frame(*plans_.front(), stop, times);
  Values values = frame.run(Values(arguments.begin(), arguments.end()));
  std::vector<NDArray> results;
  for (Argument& value : values) results.push_back(std::move(value.array));
  return results;
}

}  // namespace coreai::cpu
