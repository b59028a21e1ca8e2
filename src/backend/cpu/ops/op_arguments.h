// What the makers of kernels ask of a step, and how kernels read operands that describe shapes, axes and flags.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "backend/cpu/ops/op_kernel.h"

namespace coreai::cpu {

inline bool is_wide_float(DType d) {
  return d == DType::kF32 || d == DType::kF16 || d == DType::kBF16;
}
inline std::int64_t element_bytes(DType d) {
  return dtype_bits(d) / 8;
}

// f(std::type_identity<T>{}) with an unsigned integer of the element's width, for elements that are only moved.
template <typename F>
void with_element(DType d, F&& f) {
  switch (element_bytes(d)) {
    case 1:
      return f(std::type_identity<std::uint8_t>{});
    case 2:
      return f(std::type_identity<std::uint16_t>{});
    case 4:
      return f(std::type_identity<std::uint32_t>{});
    default:
      return f(std::type_identity<std::uint64_t>{});
  }
}

// Whether operands [begin, end) exist and hold their values when the kernel is bound.
bool known_operands(const compiler::GenericStep& step, std::size_t begin, std::size_t end);
std::size_t operand_rank(const compiler::GenericStep& step, std::size_t i);

// The elements of an integer operand; a scalar counts as a list of one. Throws ShapeError when there are too many.
struct Ints {
  static constexpr std::size_t kMost = 16;
  std::array<std::int64_t, kMost> values{};
  std::size_t count = 0;
  std::size_t size() const { return count; }
  std::int64_t operator[](std::size_t i) const { return values[i]; }
  std::span<const std::int64_t> span() const& { return {values.data(), count}; }
  std::span<const std::int64_t> span() const&& = delete;  // it would outlive the values
};
std::int64_t integer_at(const OpArray& array, std::int64_t i, std::string_view where);
Ints read_ints(const OpArray& array, std::string_view where);
std::int64_t read_int(const OpArray& array, std::string_view where);

// An axis of `rank` with negatives wrapped. Throws ShapeError outside [-rank, rank).
std::size_t wrapped_axis(std::int64_t axis, std::size_t rank, std::string_view where);

[[noreturn]] void shape_error(std::string_view where, std::string problem);
// Throws ShapeError unless the result has the extents that the operation gives.
void check_result(const OpArray& result, const Shape& wanted, std::string_view where);

// Product of the extents in [begin, end).
std::int64_t extent_product(const Shape& shape, std::size_t begin, std::size_t end);

// Items of about equal work on the chunks of a pool: chunk c takes [c * each, (c + 1) * each).
struct ItemCut {
  std::int64_t items = 0, each = 1;
  int chunks() const { return static_cast<int>((items + each - 1) / each); }
  std::int64_t begin(int chunk) const { return chunk * each; }
  std::int64_t end(int chunk) const { return begin(chunk) + each < items ? begin(chunk) + each : items; }
};
// `work` of one item, in elements moved or a few operations each.
ItemCut cut_items(std::int64_t items, std::int64_t work, int threads);

}  // namespace coreai::cpu
