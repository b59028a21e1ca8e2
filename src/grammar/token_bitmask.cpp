#include "coreai/grammar/token_bitmask.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

template <typename Bits>
constexpr auto kBitOfLane = [] {
  std::array<Bits, sizeof(Bits) * 8> bits{};
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<Bits>(Bits{1} << i);
  return bits;
}();

// A whole word: lanes as wide as the logits, a fixed count and no shift by lane, so that compilers vectorise it for any
// x86-64 (a test of bits, a compare, a blend) at -O2.
template <typename T>
void apply_word(std::uint32_t word, T* logits, T minus_infinity) {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  constexpr std::size_t kLanes = sizeof(Bits) * 8;
  for (std::size_t first = 0; first < 32; first += kLanes) {
    const auto bits = static_cast<Bits>(word >> first);
    for (std::size_t i = 0; i < kLanes; ++i) {
      const T kept = logits[first + i];
      logits[first + i] = (bits & kBitOfLane<Bits>[i]) != 0 ? kept : minus_infinity;
    }
  }
}

// Whole words are the common case: most masks allow nearly all or nearly none of the vocabulary.
template <typename T>
void apply(std::span<const std::uint32_t> mask, std::span<T> logits, T minus_infinity) {
  if (mask.size() > bitmask_words(logits.size()))
    throw InvalidArgumentError(fmt::format("a mask of {} words for {} logits", mask.size(), logits.size()),
                               "apply_token_bitmask", "give bitmask_words(vocab_size) words of the same vocabulary");
  for (std::size_t w = 0; w < mask.size(); ++w) {
    const std::uint32_t word = mask[w];
    if (word == ~std::uint32_t{0}) continue;
    const auto part = logits.subspan(w * 32, std::min<std::size_t>(32, logits.size() - w * 32));
    if (part.size() == 32) {
      apply_word(word, part.data(), minus_infinity);  // none allowed included: a fill is not vectorised at -O2
      continue;
    }
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = (word >> i) & 1u ? part[i] : minus_infinity;
  }
  const std::size_t covered = std::min(mask.size() * 32, logits.size());
  std::fill(logits.begin() + static_cast<std::ptrdiff_t>(covered), logits.end(), minus_infinity);
}

}  // namespace

void apply_token_bitmask(std::span<const std::uint32_t> mask, std::span<float> logits) {
  apply(mask, logits, -std::numeric_limits<float>::infinity());
}

void apply_token_bitmask_f16(std::span<const std::uint32_t> mask, std::span<std::uint16_t> logits) {
  apply(mask, logits, std::uint16_t{0xfc00});
}

void apply_token_bitmask_bf16(std::span<const std::uint32_t> mask, std::span<std::uint16_t> logits) {
  apply(mask, logits, std::uint16_t{0xff80});
}

}  // namespace coreai::grammar
