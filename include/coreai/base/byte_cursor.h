// Bounds-checked reader over untrusted bytes. Every read past the end throws MalformedError with the offset.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace coreai {

class ByteCursor {
 public:
  // `where` names the file in errors; `base` is the file offset of the first byte.
  ByteCursor(std::span<const std::byte> bytes, std::string where, std::uint64_t base = 0)
      : bytes_(bytes), where_(std::move(where)), base_(base) {}

  std::uint64_t offset() const { return base_ + position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }
  bool at_end() const { return position_ == bytes_.size(); }
  const std::string& where() const { return where_; }

  std::uint8_t u8() { return static_cast<std::uint8_t>(take(1)[0]); }
  // A little-endian scalar.
  template <typename T>
    requires std::is_arithmetic_v<T>
  T scalar() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> take(std::uint64_t count) {
    if (count > remaining()) fail_short(count);
    const auto out = bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += static_cast<std::size_t>(count);
    return out;
  }
  void skip(std::uint64_t count) { take(count); }
  // Bytes up to a NUL, which is consumed but not returned.
  std::string_view c_string();
  // The rest as a cursor of its own; this one moves past `count` bytes.
  ByteCursor sub(std::uint64_t count) {
    const std::uint64_t at = offset();
    return {take(count), where_, at};
  }

  [[noreturn]] void fail(const std::string& problem) const;

 private:
  [[noreturn]] void fail_short(std::uint64_t wanted) const;
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  std::string where_;
  std::uint64_t base_;
};

}  // namespace coreai
