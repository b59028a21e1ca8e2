// A set of bytes.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace coreai::grammar {

class ByteSet {
 public:
  constexpr ByteSet() = default;
  static constexpr ByteSet all() { return range(0, 255); }
  static constexpr ByteSet one(std::uint8_t byte) { return range(byte, byte); }
  static constexpr ByteSet range(std::uint8_t first, std::uint8_t last) {
    ByteSet set;
    for (int byte = first; byte <= last; ++byte) set.insert(static_cast<std::uint8_t>(byte));
    return set;
  }

  constexpr void insert(std::uint8_t byte) { words_[byte / 64] |= std::uint64_t{1} << (byte % 64); }
  constexpr bool contains(std::uint8_t byte) const { return (words_[byte / 64] >> (byte % 64)) & 1u; }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr int size() const {
    int n = 0;
    for (const std::uint64_t word : words_) n += std::popcount(word);
    return n;
  }
  constexpr ByteSet operator|(const ByteSet& other) const {
    ByteSet out = *this;
    for (std::size_t i = 0; i < 4; ++i) out.words_[i] |= other.words_[i];
    return out;
  }
  constexpr ByteSet operator&(const ByteSet& other) const {
    ByteSet out = *this;
    for (std::size_t i = 0; i < 4; ++i) out.words_[i] &= other.words_[i];
    return out;
  }
  constexpr ByteSet operator~() const {
    ByteSet out;
    for (std::size_t i = 0; i < 4; ++i) out.words_[i] = ~words_[i];
    return out;
  }
  // Calls visit(byte) for each, ascending.
  template <typename Visit>
  constexpr void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < 4; ++i)
      for (std::uint64_t word = words_[i]; word != 0; word &= word - 1)
        visit(static_cast<std::uint8_t>(64 * i + static_cast<std::size_t>(std::countr_zero(word))));
  }
  constexpr bool operator==(const ByteSet&) const = default;
  constexpr const std::array<std::uint64_t, 4>& words() const { return words_; }

 private:
  std::array<std::uint64_t, 4> words_{};
};

}  // namespace coreai::grammar
