#include "coreai/grammar/token_bitmask.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

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
    if (word == 0) {
      std::fill(part.begin(), part.end(), minus_infinity);
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
