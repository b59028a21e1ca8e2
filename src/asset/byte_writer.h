// Bytes that grow, in the encodings of the container.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace coreai::asset {

class ByteWriter {
 public:
  void u8(std::uint8_t value) { bytes_.push_back(static_cast<std::byte>(value)); }
  void varint(std::uint64_t value) {
    int length = 1;
    while (length < 9 && (value >> (7 * length)) != 0) ++length;
    if (length == 9) {  // more than 56 bits: a zero byte, then all eight
      u8(0);
      for (int i = 0; i < 8; ++i) u8(static_cast<std::uint8_t>(value >> (8 * i)));
      return;
    }
    const std::uint64_t packed = ((value << 1) | 1) << (length - 1);
    for (int i = 0; i < length; ++i) u8(static_cast<std::uint8_t>(packed >> (8 * i)));
  }
  void signed_varint(std::int64_t value) {
    varint((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  void append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void text(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }
  void section(std::uint8_t id, const ByteWriter& payload) {
    u8(id);
    varint(payload.size());
    append(payload.bytes());
  }

  std::size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> release() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace coreai::asset
