// What the reference kernels share: reading operands in a compute type, results rounded once, errors with shapes.
// One compute type per class of dtype: float for f16, bf16, the 8- and 4-bit floats and f32; double for f64;
// int64_t and uint64_t for integers (arithmetic wraps at the width of the stored type).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/ir/module.h"

namespace coreai::cpu::reference {

// One operation with its operands.
struct Call {
  const ir::Op& op;
  std::span<const NDArray> in;

  const NDArray& input(std::size_t i) const { return in[i]; }
  DType result_dtype(std::size_t i = 0) const { return op.results.at(i)->type->dtype(); }
  // Name of the operation and shapes of its operands, for errors.
  std::string where() const;
  [[noreturn]] void shape_error(const std::string& problem) const;
  [[noreturn]] void value_error(const std::string& problem) const;
  [[noreturn]] void unsupported(const std::string& problem) const;
};

using Results = std::vector<NDArray>;
using Kernel = Results (*)(const Call&);

// Elements of an array in compute type T: the array's own memory where the types agree, else a converted copy.
template <typename T>
class Elements {
 public:
  explicit Elements(const NDArray& array);
  // Never null: places in an empty array are counted from here too.
  const T* data() const { return view_.data() ? view_.data() : &nothing_; }
  std::size_t size() const { return view_.size(); }
  T operator[](std::size_t i) const { return view_[i]; }
  std::span<const T> span() const { return view_; }

 private:
  std::vector<T> owned_;
  std::span<const T> view_;
  T nothing_{};
};
extern template class Elements<float>;
extern template class Elements<double>;
extern template class Elements<std::int64_t>;
extern template class Elements<std::uint64_t>;

// Writes compute values into an array: floats round to nearest even, integers keep their low bits.
void store(NDArray& out, std::span<const float> values);
void store(NDArray& out, std::span<const double> values);
void store(NDArray& out, std::span<const std::int64_t> values);
void store(NDArray& out, std::span<const std::uint64_t> values);
template <typename T>
NDArray stored(DType dtype, const Shape& shape, const std::vector<T>& values) {
  NDArray out(dtype, shape);
  store(out, std::span<const T>(values));
  return out;
}

// Calls `f(std::type_identity<T>{})` with the compute type of a dtype that is not complex.
template <typename F>
auto with_compute_type(const Call& call, DType dtype, F&& f) {
  switch (dtype_class(dtype)) {
    case DTypeClass::kFloat:
      if (dtype == DType::kF64) return f(std::type_identity<double>{});
      return f(std::type_identity<float>{});
    case DTypeClass::kSigned:
      return f(std::type_identity<std::int64_t>{});
    case DTypeClass::kUnsigned:
    case DTypeClass::kBool:
      return f(std::type_identity<std::uint64_t>{});
    case DTypeClass::kComplex:
      break;
  }
  call.unsupported("complex elements have no such operation");
}

// A copy of elements that are never interpreted. Sub-byte elements travel as one byte each.
// `bytes_per_element` is the width of one element in `data`.
struct RawElements {
  explicit RawElements(const NDArray& array);
  const std::byte* data = nullptr;
  std::size_t width = 0;
  std::vector<std::byte> owned;
};
// An output to be filled as raw elements; finish() packs sub-byte ones.
class RawOutput {
 public:
  RawOutput(DType dtype, const Shape& shape);
  // Starts with the elements of `array`.
  explicit RawOutput(const NDArray& array);
  std::byte* data() { return unpacked_.empty() ? array_.mutable_bytes().data() : unpacked_.data(); }
  std::size_t width() const { return width_; }
  NDArray finish();

 private:
  NDArray array_;
  std::size_t width_ = 0;
  std::vector<std::byte> unpacked_;
};
void copy_element(std::byte* to, const std::byte* from, std::size_t width);

// Integer operands that describe shapes, axes and flags.
std::vector<std::int64_t> int_list(const Call& call, std::size_t operand);  // rank 0 counts as one element
std::int64_t int_scalar(const Call& call, std::size_t operand);
// An axis of `rank` with negatives wrapped. Throws ShapeError outside [-rank, rank).
std::size_t axis_index(const Call& call, std::int64_t axis, std::size_t rank);
// The same for a list; throws when an axis occurs twice.
std::vector<std::size_t> axis_list(const Call& call, std::size_t operand, std::size_t rank);
// An extent or count that must not be negative.
std::int64_t non_negative(const Call& call, std::int64_t value, const char* what);

// numpy broadcasting of operand shapes. Throws ShapeError.
Shape broadcast(const Call& call, const Shape& a, const Shape& b);
// Element strides of `shape` when read as `out` (0 along broadcast axes); right-aligned.
std::vector<std::int64_t> broadcast_strides(const Shape& shape, const Shape& out);

// Product of extents in [begin, end).
std::int64_t extent_product(const Shape& shape, std::size_t begin, std::size_t end);

// Walks an index space in row-major order, keeping N element offsets. `inner(offsets, count)` is called once per run
// of the last axis with the offsets of its first element.
template <std::size_t N, typename F>
void walk(const Shape& extents, const std::array<std::vector<std::int64_t>, N>& strides, F&& inner) {
  const std::size_t rank = extents.rank();
  for (std::size_t d = 0; d < rank; ++d) {
    if (extents[d] == 0) return;
  }
  std::array<std::int64_t, N> offsets{};
  if (rank == 0) {
    inner(offsets, std::int64_t{1});
    return;
  }
  std::vector<std::int64_t> index(rank, 0);
  while (true) {
    inner(offsets, extents[rank - 1]);
    std::size_t d = rank - 1;
    while (true) {
      if (d == 0) return;
      --d;
      for (std::size_t n = 0; n < N; ++n) offsets[n] += strides[n][d];
      if (++index[d] < extents[d]) break;
      for (std::size_t n = 0; n < N; ++n) offsets[n] -= strides[n][d] * extents[d];
      index[d] = 0;
    }
  }
}

}  // namespace coreai::cpu::reference
