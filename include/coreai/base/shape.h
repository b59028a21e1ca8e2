// Extents of a tensor; an extent may be unknown until run time.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coreai {

// An unknown extent: the format stores INT64_MIN, text shows "?".
inline constexpr std::int64_t kDynamic = std::numeric_limits<std::int64_t>::min();

// Up to kInlineRank extents live in the object itself: shapes of a running call cost no allocation.
class Shape {
 public:
  static constexpr std::size_t kInlineRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);
  explicit Shape(const std::vector<std::int64_t>& dims) : Shape(std::span<const std::int64_t>(dims)) {}

  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t i) const { return data()[i]; }
  std::int64_t& operator[](std::size_t i) { return data()[i]; }
  std::span<const std::int64_t> dims() const { return {data(), rank_}; }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + rank_; }

  bool is_static() const;
  // Product of the extents (1 for rank 0). Throws ShapeError when dynamic, negative or above 2^63-1.
  std::int64_t element_count() const;
  // Row-major strides in elements; the shape must be static.
  std::vector<std::int64_t> row_major_strides() const;
  // "1x?x64"; "" for rank 0.
  std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  const std::int64_t* data() const { return rank_ <= kInlineRank ? inline_.data() : heap_.data(); }
  std::int64_t* data() { return rank_ <= kInlineRank ? inline_.data() : heap_.data(); }
  std::size_t rank_ = 0;
  std::array<std::int64_t, kInlineRank> inline_{};
  std::vector<std::int64_t> heap_;  // only above kInlineRank
};

// numpy broadcasting of static shapes; nothing when they do not fit.
std::optional<Shape> broadcast_shapes(const Shape& a, const Shape& b);

// a*b and a+b of non-negative sizes; nothing on overflow. For sizes that come from a file.
std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b);
std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b);

}  // namespace coreai
