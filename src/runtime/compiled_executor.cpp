#include "runtime/compiled_executor.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "backend/cpu/arena_layout.h"
#include "backend/cpu/executable.h"
#include "backend/cpu/reference/evaluator.h"
#include "coreai/base/error.h"
#include "runtime/reference_executor.h"

namespace coreai::detail {
namespace {

using compiler::GuardKind;
using compiler::Plan;

int available_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

cpu::Digits digits_of(Precision p) {
  switch (p) {
    case Precision::kFast:
      return cpu::Digits::kFast;
    case Precision::kExact:
      return cpu::Digits::kExact;
    default:
      return cpu::Digits::kFaithful;
  }
}

// A KV cache in the layout of the attention kernels.
struct KvState final : StateImpl {
  cpu::KvBuffer buffer;

  NDArray read() const override { return buffer.to_array(); }
  void write(const NDArray& value) override { buffer.assign(value); }
  void reset() override { buffer.clear(); }
  void grow(const Shape& new_shape) override {
    buffer.grow(new_shape[3]);
    shape = new_shape;
  }
  std::size_t byte_size() const override { return buffer.byte_size(); }
};

struct CompiledWorkspace final : Workspace {
  std::unique_ptr<cpu::Call> call;
  std::unique_ptr<Workspace> reference;
  std::vector<std::int64_t> symbols, values;
  std::vector<cpu::KvBuffer*> states;
  std::vector<NDArray*> plain_states;
  std::vector<std::shared_ptr<Storage>> output_storage;

  WorkspaceUse use() const override {
    return {call->arena_layout().bytes(), call->arena_layout().largest_live_bytes()};
  }
};

// Of a small integer array.
std::int64_t integer_element(const NDArray& array, std::size_t element) {
  double wide[16] = {};
  COREAI_INVARIANT(array.element_count() <= 16);
  read_as_f64(array, std::span(wide, static_cast<std::size_t>(array.element_count())));
  return static_cast<std::int64_t>(wide[element]);
}

bool strictly_increasing(const NDArray& array) {
  const auto values = array.values<std::int32_t>();
  return std::adjacent_find(values.begin(), values.end(), [](auto a, auto b) { return b <= a; }) == values.end();
}

class CompiledExecutor final : public FunctionExecutor {
 public:
  CompiledExecutor(std::shared_ptr<const cpu::Executable> executable, std::shared_ptr<ThreadPool> pool,
                   std::unique_ptr<FunctionExecutor> reference, std::shared_ptr<const ir::Module> module,
                   FunctionDescriptor descriptor)
      : executable_(std::move(executable)),
        pool_(std::move(pool)),
        reference_(std::move(reference)),
        module_(std::move(module)),
        descriptor_(std::move(descriptor)) {}

  std::unique_ptr<StateImpl> make_state(std::size_t index, const Shape& shape) const override {
    const compiler::StateSpec& spec = plan().states[index];
    if (!spec.is_key && !spec.is_value) return reference_->make_state(index, shape);
    const ValueDescriptor& d = descriptor_.states[index];
    auto state = std::make_unique<KvState>();
    state->name = d.name;
    state->dtype = d.dtype;
    state->declared = d.shape;
    state->shape = shape;
    state->buffer = cpu::KvBuffer(spec.is_key ? cpu::KvRole::kKey : cpu::KvRole::kValue, d.dtype,
                                  {shape[0], shape[2], shape[4]}, shape[3]);
    return state;
  }

  std::unique_ptr<Workspace> make_workspace() const override {
    auto w = std::make_unique<CompiledWorkspace>();
    w->call = std::make_unique<cpu::Call>(executable_, pool_);
    w->symbols.resize(plan().exprs.symbol_count());
    w->values.resize(plan().exprs.size());
    w->states.resize(descriptor_.states.size());
    w->plain_states.resize(descriptor_.states.size());
    w->output_storage.resize(descriptor_.outputs.size());
    return w;
  }

  void run(Workspace& workspace, const RunRequest& request) const override {
    auto& w = dynamic_cast<CompiledWorkspace&>(workspace);
    for (std::size_t i = 0; i < request.states.size(); ++i) {
      auto* kv = dynamic_cast<KvState*>(request.states[i]);
      auto* dense = dynamic_cast<DenseState*>(request.states[i]);
      if (has_positions(i) ? !kv : !dense)
        throw InvalidArgumentError("the state was made by another function", request.states[i]->name,
                                   "Make it with make_state() of this function");
      w.states[i] = kv ? &kv->buffer : nullptr;
      w.plain_states[i] = dense ? &dense->own() : nullptr;
    }
    if (!bind_symbols(w, request)) return run_op_by_op(w, request);
    make_outputs(w, request);
    const std::int64_t last_rows = wanted_rows(request);
    const cpu::CallArrays arrays{request.inputs, w.states, w.plain_states, request.outputs, last_rows};
    if (!request.profile) return w.call->run(w.values, arrays, request.stop);
    const std::vector<double> ms = w.call->profile(w.values, arrays, request.stop);
    const std::vector<compiler::StepCost> costs = compiler::step_costs(plan(), w.symbols);
    for (std::size_t i = 0; i < ms.size(); ++i) {
      const compiler::StepCost& c = costs[i];
      request.profile->push_back(
          {c.kernel, c.detail, 1, ms[i], c.weight_bytes, c.read_bytes, c.written_bytes, c.multiply_adds});
    }
  }

  std::string plan_text(std::span<const std::int64_t> extents, bool json) const override {
    // Elements of inputs are no extents: the text is of a call that gives zeros.
    std::vector<std::int64_t> symbols(extents.begin(), extents.end());
    for (std::size_t i = 0; i < plan().symbols.size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(std::min(i, symbols.size()));
      if (plan().symbols[i].of_value) symbols.insert(symbols.begin() + at, 1);
    }
    return to_text(plan(), symbols, json);
  }
  std::string kind() const override { return "compiled"; }

 private:
  const Plan& plan() const { return executable_->plan; }

  // Evaluates the plan's expressions; false when the plan does not hold for this call.
  bool bind_symbols(CompiledWorkspace& w, const RunRequest& request) const {
    for (std::size_t i = 0; i < w.symbols.size(); ++i) {
      const compiler::SymbolBinding& b = plan().symbols[i];
      if (b.of_value) {
        w.symbols[i] = integer_element(request.inputs[b.index], b.axis) + 1;
        if (w.symbols[i] < 1) return false;
        continue;
      }
      w.symbols[i] = b.of_state ? request.states[b.index]->shape[b.axis] : request.inputs[b.index].shape()[b.axis];
      if (w.symbols[i] < 1) return false;
    }
    plan().exprs.evaluate(w.symbols, w.values);
    for (const compiler::Guard& g : plan().guards) {
      const std::int64_t room = w.values[static_cast<std::size_t>(g.nonnegative)];
      if (room >= 0) continue;
      if (g.kind == GuardKind::kShape) return false;
      const std::int64_t capacity = state_capacity(request);
      throw ContextLengthError(capacity - room, capacity, descriptor_.name,
                               "Grow the states (State::grow) or pass fewer positions");
    }
    return std::all_of(plan().increasing.begin(), plan().increasing.end(), [&](const compiler::IncreasingGuard& g) {
      return strictly_increasing(request.inputs[g.input]);
    });
  }

  std::int64_t state_capacity(const RunRequest& request) const {
    std::int64_t capacity = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < request.states.size(); ++i) {
      if (has_positions(i)) capacity = std::min(capacity, request.states[i]->shape[3]);
    }
    return capacity;
  }
  bool has_positions(std::size_t i) const { return plan().states[i].is_key || plan().states[i].is_value; }

  std::int64_t wanted_rows(const RunRequest& request) const {
    for (std::size_t i = 0; i < plan().output_row_axis.size(); ++i) {
      if (plan().output_row_axis[i] >= 0) return request.last_rows[i];
    }
    return -1;
  }

  void make_outputs(CompiledWorkspace& w, const RunRequest& request) const {
    for (std::size_t i = 0; i < request.outputs.size(); ++i) {
      const auto& extents = plan().output_shapes[i];
      // A call allocates nothing for the ranks that a shape holds in itself.
      std::int64_t few[Shape::kInlineRank] = {};
      std::vector<std::int64_t> many(extents.size() > Shape::kInlineRank ? extents.size() : 0);
      std::int64_t* const dims = many.empty() ? few : many.data();
      for (std::size_t d = 0; d < extents.size(); ++d) dims[d] = w.values[static_cast<std::size_t>(extents[d])];
      const int axis = plan().output_row_axis[i];
      if (axis >= 0 && request.last_rows[i] >= 0) dims[axis] = std::min(dims[axis], request.last_rows[i]);
      const Shape shape(std::span<const std::int64_t>(dims, extents.size()));
      const DType dtype = descriptor_.outputs[i].dtype;
      const std::size_t bytes = dtype_bytes(dtype, static_cast<std::uint64_t>(shape.element_count()));
      auto& storage = w.output_storage[i];
      if (!storage || storage->size() < bytes) storage = Storage::allocate(bytes);
      request.outputs[i] = NDArray(dtype, shape, storage);
    }
  }

  // The plan's assumptions do not hold: the reference executor runs the call on states in their declared layout.
  void run_op_by_op(CompiledWorkspace& w, const RunRequest& request) const {
    if (!w.reference) w.reference = reference_->make_workspace();
    std::vector<std::unique_ptr<StateImpl>> copies;
    std::vector<StateImpl*> states;
    for (std::size_t i = 0; i < request.states.size(); ++i) {
      states.push_back(request.states[i]);
      if (!w.states[i]) continue;
      copies.push_back(reference_->make_state(i, request.states[i]->shape));
      copies.back()->write(request.states[i]->read());
      states.back() = copies.back().get();
    }
    RunRequest again = request;
    again.states = states;
    reference_->run(*w.reference, again);
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (states[i] != request.states[i]) request.states[i]->write(states[i]->read());
    }
  }

  std::shared_ptr<const cpu::Executable> executable_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<FunctionExecutor> reference_;
  std::shared_ptr<const ir::Module> module_;
  FunctionDescriptor descriptor_;
};

}  // namespace

std::unique_ptr<FunctionExecutor> make_compiled_executor(Plan plan, PackedWeightsEntry& weights,
                                                         std::unique_ptr<FunctionExecutor> reference,
                                                         ExecutionResources& resources,
                                                         const FunctionDescriptor& descriptor,
                                                         const SpecializationOptions& options) {
  auto executable = std::make_shared<cpu::Executable>();
  executable->threads = options.threads > 0 ? options.threads : available_cores();
  executable->isa = options.kernels.empty() ? cpu::detect_isa() : cpu::isa_from_name(options.kernels).value();
  executable->digits = digits_of(options.precision);
  executable->evaluator = &cpu::reference_evaluator();
  if (!resources.pool) resources.pool = std::make_shared<ThreadPool>(executable->threads);
  executable->weights = weights.take(plan, *resources.pool, options);
  executable->plan = std::move(plan);
  return std::make_unique<CompiledExecutor>(std::move(executable), resources.pool, std::move(reference),
                                            resources.module, descriptor);
}

}  // namespace coreai::detail
