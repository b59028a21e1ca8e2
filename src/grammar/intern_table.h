// Sequences of words, each kept once: equal sequences have equal numbers, given from 0 up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace coreai::grammar {

class InternTable {
 public:
  // The number of `words`; it is new where it equals the former size().
  std::uint32_t intern(std::span<const std::uint32_t> words) {
    if (size() * 2 >= slots_.size()) rehash();
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = hash(words) & mask;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask)
      if (std::ranges::equal((*this)[slots_[slot] - 1], words)) return slots_[slot] - 1;
    words_.insert(words_.end(), words.begin(), words.end());
    ends_.push_back(words_.size());
    slots_[slot] = static_cast<std::uint32_t>(size());
    return slots_[slot] - 1;
  }
  // Invalid after the next intern().
  std::span<const std::uint32_t> operator[](std::uint32_t id) const {
    const std::size_t first = id == 0 ? 0 : ends_[id - 1];
    return std::span(words_).subspan(first, ends_[id] - first);
  }
  std::vector<std::uint32_t> copy(std::uint32_t id) const {
    const auto words = (*this)[id];
    return {words.begin(), words.end()};
  }
  std::size_t size() const { return ends_.size(); }
  std::size_t memory_bytes() const { return words_.capacity() * 4 + ends_.capacity() * 8 + slots_.capacity() * 4; }

 private:
  static std::size_t hash(std::span<const std::uint32_t> words) {
    std::uint64_t h = 0x243f6a8885a308d3u;
    for (const std::uint32_t word : words) {
      h = (h ^ word) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    }
    return static_cast<std::size_t>(h);
  }
  void rehash() {
    slots_.assign(std::max<std::size_t>(256, slots_.size() * 2), 0);
    const std::size_t mask = slots_.size() - 1;
    for (std::uint32_t id = 0; id < size(); ++id) {
      std::size_t slot = hash((*this)[id]) & mask;
      while (slots_[slot] != 0) slot = (slot + 1) & mask;
      slots_[slot] = id + 1;
    }
  }

  std::vector<std::uint32_t> words_;
  std::vector<std::size_t> ends_;
  std::vector<std::uint32_t> slots_;  // open addressing: 0 is free, else number + 1
};

}  // namespace coreai::grammar
