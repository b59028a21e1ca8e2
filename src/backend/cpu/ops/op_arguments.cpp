#include "backend/cpu/ops/op_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "coreai/base/error.h"

namespace coreai::cpu {
namespace {

// A chunk worth taking: about 10 microseconds.
constexpr std::int64_t kLeastWork = 1 << 15;
constexpr std::int64_t kChunksPerThread = 8;

template <typename T>
std::int64_t element(const std::byte* data, std::size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return static_cast<std::int64_t>(value);
}

}  // namespace

bool known_operands(const compiler::GenericStep& step, std::size_t begin, std::size_t end) {
  if (step.inputs.size() < end) return false;
  for (std::size_t i = begin; i < end; ++i) {
    if (step.inputs[i].buffer >= 0) return false;
  }
  return true;
}

std::size_t operand_rank(const compiler::GenericStep& step, std::size_t i) {
  return i < step.inputs.size() ? step.inputs[i].shape.size() : 0;
}

std::int64_t integer_at(const OpArray& array, std::int64_t index, std::string_view where) {
  const std::byte* data = array.data;
  const auto i = static_cast<std::size_t>(index);
  switch (array.dtype) {
    case DType::kI1:
    case DType::kUI8:
      return element<std::uint8_t>(data, i);
    case DType::kSI8:
      return element<std::int8_t>(data, i);
    case DType::kSI16:
      return element<std::int16_t>(data, i);
    case DType::kUI16:
      return element<std::uint16_t>(data, i);
    case DType::kSI32:
      return element<std::int32_t>(data, i);
    case DType::kUI32:
      return element<std::uint32_t>(data, i);
    case DType::kSI64:
    case DType::kUI64:
      return element<std::int64_t>(data, i);
    default:
      throw UnsupportedError(fmt::format("an operand of {} cannot describe a shape", dtype_name(array.dtype)),
                             std::string(where));
  }
}

Ints read_ints(const OpArray& array, std::string_view where) {
  const std::int64_t count = array.count();
  if (count > static_cast<std::int64_t>(Ints::kMost)) shape_error(where, fmt::format("a list of {} elements", count));
  Ints result;
  result.count = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < result.count; ++i)
    result.values[i] = integer_at(array, static_cast<std::int64_t>(i), where);
  return result;
}

std::int64_t read_int(const OpArray& array, std::string_view where) {
  const Ints values = read_ints(array, where);
  if (values.size() != 1) shape_error(where, "an operand must be one number");
  return values[0];
}

std::size_t wrapped_axis(std::int64_t axis, std::size_t rank, std::string_view where) {
  const auto r = static_cast<std::int64_t>(rank);
  if (axis < -r || axis >= r) shape_error(where, fmt::format("axis {} of a tensor of rank {}", axis, rank));
  return static_cast<std::size_t>(axis < 0 ? axis + r : axis);
}

void shape_error(std::string_view where, std::string problem) {
  throw ShapeError(std::move(problem), std::string(where));
}

void check_result(const OpArray& result, const Shape& wanted, std::string_view where) {
  if (result.shape == wanted) return;
  shape_error(where,
              fmt::format("the operation gives [{}], planned was [{}]", wanted.to_string(), result.shape.to_string()));
}

std::int64_t extent_product(const Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t product = 1;
  for (std::size_t i = begin; i < end; ++i) product *= shape[i];
  return product;
}

ItemCut cut_items(std::int64_t items, std::int64_t work, int threads) {
  ItemCut cut;
  cut.items = std::max<std::int64_t>(items, 0);
  const std::int64_t wanted = threads == 1 ? 1 : threads * kChunksPerThread;
  const std::int64_t worthy = (kLeastWork + std::max<std::int64_t>(work, 1) - 1) / std::max<std::int64_t>(work, 1);
  cut.each = std::max({(cut.items + wanted - 1) / wanted, worthy, std::int64_t{1}});
  return cut;
}

}  // namespace coreai::cpu
