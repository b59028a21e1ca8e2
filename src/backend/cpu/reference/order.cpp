// Sorting and running reductions along an axis.
#include <algorithm>
#include <numeric>

#include "backend/cpu/reference/kernels.h"

namespace coreai::cpu::reference {
namespace {

// Row-major positions of a tensor seen as [outer, n, inner].
struct AxisView {
  std::int64_t outer, n, inner;
};

AxisView axis_view(const Shape& shape, std::size_t axis) {
  return {extent_product(shape, 0, axis), shape[axis], extent_product(shape, axis + 1, shape.rank())};
}

// The order of every row: indices along the axis. NaN comes last in both directions; ties keep their order.
std::vector<std::int64_t> sorted_order(const Call& call, const AxisView& view, bool descending) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(view.outer * view.n * view.inner));
  with_compute_type(call, call.input(0).dtype(), [&]<typename T>(std::type_identity<T>) {
    const Elements<T> in(call.input(0));
    std::vector<std::int64_t> row(static_cast<std::size_t>(view.n));
    for (std::int64_t o = 0; o < view.outer; ++o) {
      for (std::int64_t i = 0; i < view.inner; ++i) {
        const std::int64_t base = o * view.n * view.inner + i;
        const T* values = in.data() + base;
        std::iota(row.begin(), row.end(), 0);
        std::stable_sort(row.begin(), row.end(), [&](std::int64_t p, std::int64_t q) {
          const T a = values[p * view.inner];
          const T b = values[q * view.inner];
          if (a != a) return false;
          if (b != b) return true;
          return descending ? a > b : a < b;
        });
        for (std::int64_t k = 0; k < view.n; ++k) {
          order[static_cast<std::size_t>(base + k * view.inner)] = row[static_cast<std::size_t>(k)];
        }
      }
    }
  });
  return order;
}

}  // namespace

Results argsort_kernel(const Call& call) {
  const Shape& shape = call.input(0).shape();
  const std::size_t axis = axis_index(call, int_scalar(call, 1), shape.rank());
  const auto order = sorted_order(call, axis_view(shape, axis), int_scalar(call, 2) != 0);
  return {stored(call.result_dtype(), shape, order)};
}

Results sort_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::size_t axis = axis_index(call, int_scalar(call, 1), x.shape().rank());
  const AxisView view = axis_view(x.shape(), axis);
  const auto order = sorted_order(call, view, int_scalar(call, 2) != 0);
  const RawElements from(x);
  RawOutput out(x.dtype(), x.shape());
  const auto width = static_cast<std::int64_t>(from.width);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t row = at / (view.n * view.inner) * view.n * view.inner + at % view.inner;
    copy_element(out.data() + at * width, from.data + (row + order[i] * view.inner) * width, from.width);
  }
  return {out.finish()};
}

namespace {

template <typename T>
T combined(std::int64_t mode, T a, T b) {
  switch (mode) {
    case 0:
      if constexpr (std::is_floating_point_v<T>) return a + b;
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    case 1:
      if constexpr (std::is_floating_point_v<T>) return a * b;
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    case 2:
      return a <= b || a != a ? a : b;
    default:
      return a >= b || a != a ? a : b;
  }
}

}  // namespace

Results scan_kernel(const Call& call) {
  const NDArray& x = call.input(0);
  const std::size_t axis = axis_index(call, int_scalar(call, 1), x.shape().rank());
  const bool reverse = int_scalar(call, 2) != 0;
  const ir::AttrRef attribute = call.op.attribute("combiner");
  const std::int64_t mode = attribute ? static_cast<std::int64_t>(attribute->as_enum()) : 0;
  if (mode > 3) call.unsupported("unknown combiner");
  const AxisView view = axis_view(x.shape(), axis);
  return with_compute_type(call, x.dtype(), [&]<typename T>(std::type_identity<T>) -> Results {
    const Elements<T> in(x);
    std::vector<T> out(in.size());
    for (std::int64_t o = 0; o < view.outer; ++o) {
      for (std::int64_t i = 0; i < view.inner; ++i) {
        const std::int64_t base = o * view.n * view.inner + i;
        T running{};
        for (std::int64_t k = 0; k < view.n; ++k) {
          const std::int64_t at = base + (reverse ? view.n - 1 - k : k) * view.inner;
          running = k == 0 ? in.data()[at] : combined(mode, running, in.data()[at]);
          out[static_cast<std::size_t>(at)] = running;
        }
      }
    }
    return {stored(x.dtype(), x.shape(), out)};
  });
}

}  // namespace coreai::cpu::reference
