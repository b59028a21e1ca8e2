#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "coreai/base/error.h"
#include "runtime/impl.h"

namespace coreai {
namespace {

// Whether a static shape may stand for a declared one.
bool resolves(const Shape& declared, const Shape& shape) {
  if (declared.rank() != shape.rank()) return false;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] < 0 || (declared[d] != kDynamic && declared[d] != shape[d])) return false;
  }
  return true;
}

void check_value(const ValueDescriptor& declared, DType dtype, const Shape& shape, const char* what,
                 const std::string& function) {
  if (dtype == declared.dtype && resolves(declared.shape, shape)) return;
  throw ShapeError(fmt::format("{} \"{}\" is [{}]{}, the function takes [{}]{}", what, declared.name, shape.to_string(),
                               dtype_name(dtype), declared.shape.to_string(), dtype_name(declared.dtype)),
                   function);
}

std::string names_of(const std::vector<ValueDescriptor>& values) {
  std::string names;
  for (const ValueDescriptor& value : values) names += (names.empty() ? "" : ", ") + value.name;
  return names.empty() ? "none" : names;
}

std::size_t index_of(const std::vector<ValueDescriptor>& values, std::string_view name, const char* what,
                     const std::string& function) {
  const auto found =
      std::find_if(values.begin(), values.end(), [name](const ValueDescriptor& v) { return v.name == name; });
  if (found == values.end()) {
    throw NotFoundError(fmt::format("there is no {} \"{}\"", what, name), function, "There are: " + names_of(values));
  }
  return static_cast<std::size_t>(found - values.begin());
}

void check_index(std::size_t index, std::size_t count, const char* what, const std::string& function) {
  if (index < count) return;
  throw InvalidArgumentError(fmt::format("there is no {} {}, the function has {}", what, index, count), function);
}

// What went wrong while a function ran, told with its name; the types stay.
[[noreturn]] void rethrow_from(const FunctionDescriptor& function) {
  const auto where = [&function](const Error& error) {
    return error.where().find("@" + function.name) == std::string::npos
               ? fmt::format("@{}{}{}", function.name, error.where().empty() ? "" : ": ", error.where())
               : error.where();
  };
  try {
    throw;
  } catch (const ShapeError& error) {
    throw ShapeError(error.problem(), where(error), error.next_step());
  } catch (const InvalidArgumentError& error) {
    throw InvalidArgumentError(error.problem(), where(error), error.next_step());
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(error.problem(), where(error), error.next_step());
  } catch (const VerificationError& error) {
    throw VerificationError(error.problem(), where(error), error.next_step());
  } catch (const std::bad_alloc&) {
    throw ShapeError("there is no memory for the values of the call", "@" + function.name, "Give smaller inputs");
  } catch (const std::length_error&) {
    throw ShapeError("a value of the call is larger than memory can be", "@" + function.name, "Give smaller inputs");
  }
}

}  // namespace

Invocation::Invocation(std::unique_ptr<detail::InvocationImpl> impl) : impl_(std::move(impl)) {}
Invocation::~Invocation() = default;
Invocation::Invocation(Invocation&&) noexcept = default;
Invocation& Invocation::operator=(Invocation&&) noexcept = default;

void Invocation::set_input(std::size_t index, const NDArray& value) {
  check_index(index, impl_->inputs.size(), "input", impl_->function->descriptor.name);
  impl_->inputs[index] = value;
}

void Invocation::set_state(std::size_t index, State& state) {
  check_index(index, impl_->states.size(), "state", impl_->function->descriptor.name);
  impl_->states[index] = &state;
}

void Invocation::set_last_rows(std::size_t output, std::int64_t rows) {
  const FunctionDescriptor& descriptor = impl_->function->descriptor;
  check_index(output, impl_->outputs.size(), "output", descriptor.name);
  if (rows < -1) throw InvalidArgumentError(fmt::format("{} rows cannot be asked for", rows), descriptor.name);
  if (rows >= 0 && descriptor.outputs[output].shape.rank() < 2) {
    throw InvalidArgumentError(fmt::format("output \"{}\" has no rows", descriptor.outputs[output].name),
                               descriptor.name);
  }
  impl_->last_rows[output] = rows;
}

void Invocation::run(std::stop_token stop) {
  run(std::move(stop), nullptr);
}

std::vector<StepProfile> Invocation::profile(std::stop_token stop) {
  std::vector<StepProfile> steps;
  run(std::move(stop), &steps);
  return steps;
}

WorkspaceUse Invocation::workspace_use() const {
  return impl_->workspace->use();
}

void Invocation::run(std::stop_token stop, std::vector<StepProfile>* profile) {
  detail::InvocationImpl& call = *impl_;
  const FunctionDescriptor& descriptor = call.function->descriptor;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].empty()) {
      throw InvalidArgumentError(fmt::format("input \"{}\" is missing", descriptor.inputs[i].name), descriptor.name);
    }
    check_value(descriptor.inputs[i], call.inputs[i].dtype(), call.inputs[i].shape(), "input", descriptor.name);
  }
  for (std::size_t i = 0; i < call.states.size(); ++i) {
    State* state = call.states[i];
    if (!state) {
      throw InvalidArgumentError(fmt::format("state \"{}\" is missing", descriptor.states[i].name), descriptor.name,
                                 "Make it with make_state and pass it to every call");
    }
    check_value(descriptor.states[i], state->dtype(), state->shape(), "state", descriptor.name);
    if (std::find(call.states.begin(), call.states.begin() + static_cast<std::ptrdiff_t>(i), state) !=
        call.states.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw InvalidArgumentError("one state stands for two", descriptor.name);
    }
    call.state_impls[i] = &state->impl();
  }
  try {
    call.function->executor->run(
        *call.workspace, {call.inputs, call.state_impls, call.last_rows, call.outputs, std::move(stop), profile});
  } catch (...) {
    rethrow_from(descriptor);
  }
}

const NDArray& Invocation::output(std::size_t index) const {
  check_index(index, impl_->outputs.size(), "output", impl_->function->descriptor.name);
  return impl_->outputs[index];
}

const FunctionDescriptor& InferenceFunction::descriptor() const {
  return impl_->descriptor;
}

State InferenceFunction::make_state(std::string_view name, const Shape& shape) const {
  const FunctionDescriptor& descriptor = impl_->descriptor;
  const std::size_t index = index_of(descriptor.states, name, "state", descriptor.name);
  check_value(descriptor.states[index], descriptor.states[index].dtype, shape, "state", descriptor.name);
  State state;
  state.impl_ = impl_->executor->make_state(index, shape);
  return state;
}

Invocation InferenceFunction::make_invocation() const {
  auto call = std::make_unique<detail::InvocationImpl>();
  call->function = impl_;
  call->workspace = impl_->executor->make_workspace();
  call->inputs.resize(impl_->descriptor.inputs.size());
  call->outputs.resize(impl_->descriptor.outputs.size());
  call->states.resize(impl_->descriptor.states.size());
  call->state_impls.resize(call->states.size());
  call->last_rows.assign(call->outputs.size(), -1);
  return Invocation(std::move(call));
}

NamedArrays InferenceFunction::run(const NamedArrays& inputs, std::span<State*> states) const {
  const FunctionDescriptor& descriptor = impl_->descriptor;
  Invocation call = make_invocation();
  std::vector<bool> given(descriptor.inputs.size(), false);
  for (const auto& [name, array] : inputs) {
    const std::size_t index = index_of(descriptor.inputs, name, "input", descriptor.name);
    if (given[index]) throw InvalidArgumentError(fmt::format("input \"{}\" is given twice", name), descriptor.name);
    given[index] = true;
    call.set_input(index, array);
  }
  for (State* state : states) {
    if (!state) throw InvalidArgumentError("a state is null", descriptor.name);
    call.set_state(index_of(descriptor.states, state->name(), "state", descriptor.name), *state);
  }
  call.run();
  NamedArrays outputs;
  for (std::size_t i = 0; i < descriptor.outputs.size(); ++i) {
    const NDArray& value = call.output(i);
    // An output may be an input or a constant of the program: the caller gets memory of its own.
    const bool shared = value.storage().use_count() > 1 || !value.storage()->writable();
    outputs.emplace_back(descriptor.outputs[i].name, shared ? value.clone() : value);
  }
  return outputs;
}

std::string InferenceFunction::plan_text(std::span<const std::int64_t> extents, bool json) const {
  return impl_->executor->plan_text(extents, json);
}

std::string InferenceFunction::execution_kind() const {
  return impl_->executor->kind();
}

}  // namespace coreai
