#include <fmt/format.h>

#include "coreai/base/error.h"
#include "coreai/runtime/ai_model.h"
#include "runtime/function_executor.h"

namespace coreai {

State::State() = default;
State::~State() = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;

namespace {

const detail::StateImpl& made(const std::unique_ptr<detail::StateImpl>& impl) {
  if (!impl) throw InvalidArgumentError("the state is empty", "State", "Make it with InferenceFunction::make_state");
  return *impl;
}

}  // namespace

const std::string& State::name() const {
  return made(impl_).name;
}
DType State::dtype() const {
  return made(impl_).dtype;
}
const Shape& State::shape() const {
  return made(impl_).shape;
}
NDArray State::read() const {
  return made(impl_).read();
}
std::size_t State::byte_size() const {
  return made(impl_).byte_size();
}

void State::write(const NDArray& value) {
  made(impl_);
  if (value.empty() || value.dtype() != impl_->dtype || !(value.shape() == impl_->shape)) {
    throw ShapeError(fmt::format("the state is [{}]{}, the value [{}]{}", impl_->shape.to_string(),
                                 dtype_name(impl_->dtype), value.shape().to_string(), dtype_name(value.dtype())),
                     impl_->name);
  }
  impl_->write(value);
}

void State::reset() {
  made(impl_);
  impl_->reset();
}

void State::grow(const Shape& shape) {
  made(impl_);
  bool fits = shape.rank() == impl_->shape.rank() && shape.is_static();
  for (std::size_t d = 0; fits && d < shape.rank(); ++d) {
    fits = shape[d] == impl_->shape[d] || (impl_->declared[d] == kDynamic && shape[d] > impl_->shape[d]);
  }
  if (!fits) {
    throw ShapeError(fmt::format("a state of [{}], declared [{}], cannot become [{}]", impl_->shape.to_string(),
                                 impl_->declared.to_string(), shape.to_string()),
                     impl_->name, "Only dynamic dimensions grow, and none shrinks");
  }
  if (!(shape == impl_->shape)) impl_->grow(shape);
}

}  // namespace coreai
