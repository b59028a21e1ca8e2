#include "coreai/base/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "coreai/base/error.h"

namespace coreai {

Shape::Shape(std::span<const std::int64_t> dims) : rank_(dims.size()) {
  if (rank_ > kInlineRank) heap_.resize(rank_);
  std::copy(dims.begin(), dims.end(), data());
}

bool operator==(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool Shape::is_static() const {
  return std::all_of(begin(), end(), [](std::int64_t d) { return d >= 0; });
}

std::int64_t Shape::element_count() const {
  std::uint64_t count = 1;
  bool empty = false;
  for (std::int64_t d : dims()) {
    if (d < 0) throw ShapeError("the extents are not all known", to_string(), "Resolve the dynamic dimensions first");
    if (d == 0) empty = true;
  }
  if (empty) return 0;
  for (std::int64_t d : dims()) {
    const auto product = checked_mul(count, static_cast<std::uint64_t>(d));
    if (!product || *product > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      throw ShapeError("the element count does not fit into 63 bits", to_string());
    }
    count = *product;
  }
  return static_cast<std::int64_t>(count);
}

std::vector<std::int64_t> Shape::row_major_strides() const {
  std::vector<std::int64_t> strides(rank_, 1);
  for (std::size_t i = rank_; i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(data()[i], 1);
  return strides;
}

std::string Shape::to_string() const {
  std::string text;
  for (std::size_t i = 0; i < rank_; ++i) {
    if (i) text += 'x';
    text += data()[i] == kDynamic ? std::string("?") : fmt::format("{}", data()[i]);
  }
  return text;
}

std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> out(rank, 1);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t da = i < rank - a.rank() ? 1 : a[i - (rank - a.rank())];
    const std::int64_t db = i < rank - b.rank() ? 1 : b[i - (rank - b.rank())];
    if (da != db && da != 1 && db != 1) return std::nullopt;
    out[i] = da == 1 ? db : da;
  }
  return Shape(out);
}

std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

}  // namespace coreai
