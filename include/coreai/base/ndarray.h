// Dense n-dimensional arrays: the values that go into and come out of a function.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "coreai/base/dtype.h"
#include "coreai/base/shape.h"

namespace coreai {

// Bytes with an owner: heap memory, a mapped file, or somebody else's buffer. Immutable in extent; thread-safe to
// share.
class Storage {
 public:
  // Zero-initialised heap memory, aligned to 64 bytes.
  static std::shared_ptr<Storage> allocate(std::size_t bytes);
  // Borrowed memory: `keep_alive` (may be null) is held as long as the storage lives.
  static std::shared_ptr<Storage> borrow(std::byte* data, std::size_t bytes, bool writable,
                                         std::shared_ptr<const void> keep_alive);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool writable() const { return writable_; }

 private:
  Storage() = default;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool writable_ = true;
  bool owned_ = false;
  std::shared_ptr<const void> keep_alive_;
};

// A row-major array without padding. Sub-byte elements are one packed bit stream (dtype.h).
// Copying an NDArray shares its storage; clone() copies the elements. Reading from several threads is safe.
class NDArray {
 public:
  NDArray() = default;
  // Zero-initialised. Throws ShapeError when the shape is dynamic or too large.
  NDArray(DType dtype, Shape shape);
  // A view of `storage` from `offset` bytes on. Throws ShapeError when the elements do not fit.
  NDArray(DType dtype, Shape shape, std::shared_ptr<Storage> storage, std::size_t offset = 0);

  template <typename T>
  static NDArray from(DType dtype, Shape shape, std::span<const T> values) {
    NDArray array(dtype, std::move(shape));
    array.assign(std::as_bytes(values));
    return array;
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t element_count() const { return count_; }
  std::size_t byte_size() const { return dtype_bytes(dtype_, static_cast<std::uint64_t>(count_)); }
  bool empty() const { return storage_ == nullptr; }

  std::span<const std::byte> bytes() const { return {data_, byte_size()}; }
  // Throws InvalidArgumentError when the storage is read-only.
  std::span<std::byte> mutable_bytes();
  // Elements as T; T must have the dtype's width (invariant).
  template <typename T>
  std::span<const T> values() const {
    check_width(sizeof(T));
    return {reinterpret_cast<const T*>(data_), static_cast<std::size_t>(count_)};
  }
  template <typename T>
  std::span<T> mutable_values() {
    check_width(sizeof(T));
    return {reinterpret_cast<T*>(mutable_bytes().data()), static_cast<std::size_t>(count_)};
  }

  NDArray clone() const;
  // The same elements under another shape of equal count. Shares storage. Throws ShapeError.
  NDArray reshaped(Shape shape) const;
  void assign(std::span<const std::byte> bytes);
  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  void check_width(std::size_t width) const;
  DType dtype_ = DType::kF32;
  Shape shape_;
  std::int64_t count_ = 0;
  std::shared_ptr<Storage> storage_;
  std::byte* data_ = nullptr;
};

// Elements of any non-complex dtype widened to f64 (exact but for si64/ui64 above 2^53), and back with the
// conversion rules of casts (docs/numerics: floats round to nearest even, integers truncate and saturate, NaN gives 0).
void read_as_f64(const NDArray& array, std::span<double> out);
void write_from_f64(NDArray& array, std::span<const double> values);

}  // namespace coreai
