#include "backend/cpu/reference/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "backend/cpu/reference/evaluator.h"
#include "backend/cpu/reference/kernels.h"
#include "coreai/base/error.h"

namespace coreai::cpu::reference {
namespace {

// What the block yields for `arguments`.
std::vector<NDArray> run_block(const Call& call, const ir::Block& block, std::span<const NDArray> arguments) {
  if (arguments.size() != block.arguments.size()) {
    throw VerificationError(
        fmt::format("the region takes {} values, {} are given", block.arguments.size(), arguments.size()),
        call.where());
  }
  std::unordered_map<const ir::Value*, NDArray> values;
  for (std::size_t i = 0; i < arguments.size(); ++i) values[block.arguments[i]] = arguments[i];
  const auto operands = [&](const ir::Op& op) {
    std::vector<NDArray> arrays;
    arrays.reserve(op.operands.size());
    for (const ir::Value* value : op.operands) arrays.push_back(values.at(value));
    return arrays;
  };
  const ir::Op& last = block.terminator();
  for (const auto& op : block.ops) {
    if (op.get() == &last) break;
    if (op->code == ir::OpCode::kConstant) {
      values[op->results.at(0)] = ir::constant_value(*op);
      continue;
    }
    std::vector<NDArray> results = reference_evaluator().evaluate(*op, operands(*op));
    for (std::size_t i = 0; i < results.size(); ++i) values[op->results.at(i)] = std::move(results[i]);
  }
  return operands(last);
}

// Whether whole arrays may stand for the elements that the region is written for.
bool element_wise(const ir::Block& block) {
  return std::all_of(block.ops.begin(), block.ops.end(), [&block](const auto& op) {
    return op.get() == &block.terminator() || op->code == ir::OpCode::kConstant || is_elementwise(op->code);
  });
}

NDArray element_of(const NDArray& array, const RawElements& from, std::int64_t i) {
  RawOutput out(array.dtype(), Shape{});
  copy_element(out.data(), from.data + i * static_cast<std::int64_t>(from.width), from.width);
  return out.finish();
}

// One element for all.
NDArray filled(const NDArray& element, const Shape& shape) {
  RawOutput out(element.dtype(), shape);
  const RawElements from(element);
  const auto width = static_cast<std::int64_t>(from.width);
  for (std::int64_t i = 0; i < shape.element_count(); ++i) copy_element(out.data() + i * width, from.data, from.width);
  return out.finish();
}

}  // namespace

std::vector<NDArray> map_region(const Call& call, const ir::Block& block, std::span<const NDArray> arguments) {
  const Shape& shape = arguments[0].shape();
  if (element_wise(block)) {
    std::vector<NDArray> results = run_block(call, block, arguments);
    for (NDArray& result : results) {
      if (result.shape() == shape) continue;
      if (result.element_count() != 1) call.shape_error("the region yields more than one element");
      result = filled(result, shape);
    }
    return results;
  }
  std::vector<RawElements> from;
  for (const NDArray& argument : arguments) from.emplace_back(argument);
  std::vector<RawOutput> outputs;
  const std::int64_t count = shape.element_count();
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<NDArray> elements;
    elements.reserve(arguments.size());
    for (std::size_t a = 0; a < arguments.size(); ++a) elements.push_back(element_of(arguments[a], from[a], i));
    const std::vector<NDArray> results = run_block(call, block, elements);
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (results[r].element_count() != 1) call.shape_error("the region yields more than one element");
      if (i == 0) outputs.emplace_back(results[r].dtype(), shape);
      const RawElements element(results[r]);
      copy_element(outputs[r].data() + i * static_cast<std::int64_t>(element.width), element.data, element.width);
    }
  }
  std::vector<NDArray> arrays;
  arrays.reserve(outputs.size());
  for (RawOutput& output : outputs) arrays.push_back(output.finish());
  return arrays;
}

namespace {

// The elements of an array in slabs: one per position along the reduced axes in row-major order, each in the shape of
// what is left.
class Slabs {
 public:
  Slabs(const NDArray& array, const std::vector<std::size_t>& axes) : array_(array), from_(array), kept(array.shape()) {
    const std::vector<std::int64_t> strides = array.shape().row_major_strides();
    std::vector<std::int64_t> reduced(array.shape().rank(), 1);
    for (const std::size_t axis : axes) {
      reduced[axis] = array.shape()[axis];
      kept[axis] = 1;
    }
    const auto places = [&strides](const Shape& shape) {
      std::vector<std::int64_t> offsets;
      walk<1>(shape, {strides}, [&](const std::array<std::int64_t, 1>& at, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) offsets.push_back(at[0] + i * (strides.empty() ? 0 : strides.back()));
      });
      return offsets;
    };
    slabs_ = places(Shape(reduced));
    elements_ = places(kept);
  }
  std::size_t count() const { return slabs_.size(); }
  NDArray slab(std::size_t k) const {
    RawOutput out(array_.dtype(), kept);
    const auto width = static_cast<std::int64_t>(from_.width);
    std::byte* to = out.data();
    for (const std::int64_t element : elements_) {
      copy_element(to, from_.data + (slabs_[k] + element) * width, from_.width);
      to += width;
    }
    return out.finish();
  }

 private:
  const NDArray& array_;
  RawElements from_;
  std::vector<std::int64_t> slabs_, elements_;

 public:
  Shape kept;  // the shape with the reduced axes at 1
};

const NDArray& initial(const Call& call, std::size_t operand) {
  const NDArray& value = call.input(operand);
  if (value.element_count() != 1) call.shape_error(fmt::format("operand {} must hold one element", operand));
  return value;
}

// The one array that the region yields; of `dtype`, which the next round takes.
NDArray yielded(const Call& call, std::vector<NDArray> results, DType dtype) {
  if (results.size() != 1 || results[0].dtype() != dtype) {
    call.shape_error(fmt::format("the region must yield one {}", dtype_name(dtype)));
  }
  return std::move(results[0]);
}

}  // namespace

// Folds from init_value; the region takes (accumulated, element).
Results reduce_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const Slabs slabs(x, axis_list(call, 1, x.shape().rank()));
  const ir::Block& body = call.op.regions.at(0).block();
  NDArray folded = filled(initial(call, 2), slabs.kept);
  if (slabs.kept.element_count() == 0) return {std::move(folded)};
  for (std::size_t k = 0; k < slabs.count(); ++k) {
    const NDArray arguments[] = {folded, slabs.slab(k)};
    folded = yielded(call, map_region(call, body, arguments), folded.dtype());
  }
  return {std::move(folded)};
}

// Starts from (init_value, init_index); the region takes (best, candidate) and says whether the candidate wins.
Results reduce_index_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const Slabs slabs(x, {axis_index(call, int_scalar(call, 1), x.shape().rank())});
  const ir::Block& body = call.op.regions.at(0).block();
  std::vector<std::int64_t> index(static_cast<std::size_t>(slabs.kept.element_count()), int_scalar(call, 3));
  if (call.input(2).dtype() != x.dtype()) call.unsupported("the start has another element type than the input");
  NDArray held = filled(initial(call, 2), slabs.kept);
  for (std::size_t k = 0; k < slabs.count() && !index.empty(); ++k) {
    const NDArray candidate = slabs.slab(k);
    const NDArray arguments[] = {held, candidate};
    const NDArray wins = yielded(call, map_region(call, body, arguments), DType::kI1);
    const RawElements from(candidate);
    RawOutput next(held);
    for (std::size_t i = 0; i < index.size(); ++i) {
      if (wins.bytes()[i] == std::byte{0}) continue;
      index[i] = static_cast<std::int64_t>(k);
      copy_element(next.data() + i * from.width, from.data + i * from.width, from.width);
    }
    held = next.finish();
  }
  return {stored(call.result_dtype(), slabs.kept, index)};
}

}  // namespace coreai::cpu::reference
