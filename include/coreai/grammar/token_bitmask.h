// One bit per token of the vocabulary, 32 to a word, lowest bit first: bit id % 32 of word id / 32. Set: allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coreai::grammar {

constexpr std::size_t bitmask_words(std::size_t vocab_size) {
  return (vocab_size + 31) / 32;
}

// Sets the logits of tokens that are not allowed to minus infinity; the others keep their bits, NaN included.
// Logits beyond the mask are not allowed. f16 and bf16 come as their bits. Throws InvalidArgumentError: a mask with
// more words than the logits need.
void apply_token_bitmask(std::span<const std::uint32_t> mask, std::span<float> logits);
void apply_token_bitmask_f16(std::span<const std::uint32_t> mask, std::span<std::uint16_t> logits);
void apply_token_bitmask_bf16(std::span<const std::uint32_t> mask, std::span<std::uint16_t> logits);

}  // namespace coreai::grammar
