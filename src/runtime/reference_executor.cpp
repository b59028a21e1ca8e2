#include "runtime/reference_executor.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "coreai/base/error.h"

namespace coreai::detail {
namespace {

// Copies `from` into the leading corner of `to`; both of one dtype, every extent of `to` at least as large.
void copy_corner(const NDArray& from, NDArray& to) {
  if (is_subbyte(from.dtype())) {
    throw UnsupportedError(fmt::format("a state of {} cannot grow", dtype_name(from.dtype())));
  }
  if (from.element_count() == 0) return;
  const auto width = static_cast<std::size_t>(dtype_bits(from.dtype())) / 8;
  const std::size_t rank = from.shape().rank();
  if (rank == 0) return to.assign(from.bytes());
  const std::vector<std::int64_t> strides = to.shape().row_major_strides();
  const auto row = static_cast<std::size_t>(from.shape()[rank - 1]) * width;
  const auto rows = static_cast<std::size_t>(from.element_count() / from.shape()[rank - 1]);
  std::byte* target = to.mutable_bytes().data();
  for (std::size_t r = 0; r < rows; ++r) {
    auto left = static_cast<std::int64_t>(r);
    std::int64_t offset = 0;
    for (std::size_t d = rank - 1; d-- > 0;) {
      offset += left % from.shape()[d] * strides[d];
      left /= from.shape()[d];
    }
    std::memcpy(target + static_cast<std::size_t>(offset) * width, from.bytes().data() + r * row, row);
  }
}

struct NoWorkspace final : Workspace {};

// The last `rows` rows along the second axis from the end.
NDArray last_rows_of(const NDArray& array, std::int64_t rows, const std::string& name) {
  const std::size_t rank = array.shape().rank();
  const std::size_t axis = rank - 2;
  const std::int64_t extent = array.shape()[axis];
  if (rows > extent) {
    throw ShapeError(fmt::format("the last {} rows were asked for, there are {}", rows, extent), name);
  }
  if (rows == extent) return array;
  Shape shape = array.shape();
  shape[axis] = rows;
  NDArray out(array.dtype(), shape);
  if (out.element_count() == 0) return out;
  const std::size_t width =
      array.shape()[rank - 1] == 0
          ? 0
          : array.byte_size() / static_cast<std::size_t>(array.element_count() / array.shape()[rank - 1]);
  const auto blocks = static_cast<std::size_t>(out.element_count() / (rows * array.shape()[rank - 1]));
  const std::size_t piece = width * static_cast<std::size_t>(rows);
  const std::size_t whole = width * static_cast<std::size_t>(extent);
  for (std::size_t b = 0; b < blocks; ++b) {
    std::memcpy(out.mutable_bytes().data() + b * piece, array.bytes().data() + (b + 1) * whole - piece, piece);
  }
  return out;
}

std::string type_text(ir::TypeRef type) {
  if (type->is_token()) return "token";
  if (!type->is_tensor() && !type->is_handle()) return "?";
  return fmt::format("[{}]{}", type->shape().to_string(), dtype_name(type->dtype()));
}

}  // namespace

void DenseState::grow(const Shape& new_shape) {
  NDArray larger(dtype, new_shape);
  copy_corner(value, larger);
  value = std::move(larger);
  shape = new_shape;
}

ReferenceExecutor::ReferenceExecutor(std::shared_ptr<const ir::Module> module, const ir::Graph& graph,
                                     FunctionDescriptor descriptor, std::string reason)
    : module_(std::move(module)),
      graph_(graph),
      descriptor_(std::move(descriptor)),
      reason_(std::move(reason)),
      interpreter_(module_, graph) {
  for (const ir::Value* argument : graph.body().arguments) argument_is_state_.push_back(argument->type->is_handle());
  for (const ir::TypeRef type : graph.result_types()) result_is_token_.push_back(type->is_token());
}

std::unique_ptr<StateImpl> ReferenceExecutor::make_state(std::size_t index, const Shape& shape) const {
  const ValueDescriptor& descriptor = descriptor_.states.at(index);
  auto state = std::make_unique<DenseState>();
  state->name = descriptor.name;
  state->dtype = descriptor.dtype;
  state->declared = descriptor.shape;
  state->shape = shape;
  state->reset();
  return state;
}

std::unique_ptr<Workspace> ReferenceExecutor::make_workspace() const {
  return std::make_unique<NoWorkspace>();
}

void ReferenceExecutor::run(Workspace&, const RunRequest& request) const {
  std::vector<cpu::Argument> arguments(argument_is_state_.size());
  std::size_t next_input = 0, next_state = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!argument_is_state_[i]) {
      arguments[i].array = request.inputs[next_input++];
      continue;
    }
    auto* state = dynamic_cast<DenseState*>(request.states[next_state++]);
    if (!state) {
      throw InvalidArgumentError("the state was made by a function that runs otherwise", descriptor_.name,
                                 "Make it with this function's make_state");
    }
    arguments[i].state = &state->value;
  }
  cpu::OpTimes times;
  std::vector<NDArray> results = interpreter_.run(arguments, request.stop, request.profile ? &times : nullptr);
  for (const auto& [code, time] : times)
    request.profile->push_back({std::string(ir::op_info(code).text_name), "op by op", time.calls, time.ms, 0, 0, 0, 0});
  std::size_t next_output = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (result_is_token_[i]) continue;
    const std::int64_t rows = request.last_rows[next_output];
    const std::string& name = descriptor_.outputs[next_output].name;
    request.outputs[next_output++] = rows < 0 ? std::move(results[i]) : last_rows_of(results[i], rows, name);
  }
}

std::string ReferenceExecutor::plan_text(std::span<const std::int64_t>, bool json) const {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  std::string text;
  for (const auto& op : graph_.body().ops) {
    if (op->code == ir::OpCode::kConstant || op->code == ir::OpCode::kOutput) continue;
    std::vector<std::string> operands, results;
    for (const ir::Value* value : op->operands) operands.push_back(type_text(value->type));
    for (const ir::Value* value : op->results) results.push_back(type_text(value->type));
    const std::string_view name = op->info().text_name;
    if (json) {
      steps.push_back({{"op", name}, {"operands", operands}, {"results", results}});
    } else {
      text += fmt::format("{} ({}) -> {}\n", name, fmt::join(operands, ", "), fmt::join(results, ", "));
    }
  }
  return json ? nlohmann::ordered_json{{"kind", reason_}, {"steps", steps}}.dump(2) : text;
}

}  // namespace coreai::detail
