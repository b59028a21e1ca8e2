#include "coreai/grammar/token_bitmask.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

TEST(TokenBitmask, MasksEveryKindOfWordAndTheRest) {
  std::mt19937 random(3);
  for (const std::size_t vocab : {1u, 31u, 32u, 33u, 200u, 1000u}) {
    std::vector<std::uint32_t> mask(bitmask_words(vocab));
    for (std::uint32_t& word : mask)
      word = random() % 3 == 0 ? 0 : random() % 2 == 0 ? ~0u : static_cast<std::uint32_t>(random());
    std::vector<float> logits(vocab);
    std::vector<std::uint16_t> f16(vocab), bf16(vocab);
    for (std::size_t i = 0; i < vocab; ++i) {
      logits[i] = i % 7 == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(i);
      f16[i] = bf16[i] = static_cast<std::uint16_t>(i);
    }
    const auto before = logits;
    apply_token_bitmask(mask, logits);
    apply_token_bitmask_f16(mask, f16);
    apply_token_bitmask_bf16(mask, bf16);
    for (std::size_t i = 0; i < vocab; ++i) {
      const bool allowed = (mask[i / 32] >> (i % 32)) & 1u;
      const auto expected = std::bit_cast<std::uint32_t>(allowed ? before[i] : -std::numeric_limits<float>::infinity());
      EXPECT_EQ(std::bit_cast<std::uint32_t>(logits[i]), expected);
      EXPECT_EQ(f16[i], allowed ? i : 0xfc00u);
      EXPECT_EQ(bf16[i], allowed ? i : 0xff80u);
    }
  }
}

// Every bit pattern of a NaN or infinity must come through where its token is allowed, and nothing else change.
TEST(TokenBitmask, KeepsTheBitsOfWhatIsAllowed) {
  std::mt19937 random(7);
  for (const std::size_t vocab : {16u, 32u, 47u, 64u, 95u, 1030u}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::uint32_t> mask(bitmask_words(vocab)), bits(vocab);
      for (std::uint32_t& word : mask) word = static_cast<std::uint32_t>(random());
      std::vector<float> f32(vocab);
      std::vector<std::uint16_t> f16(vocab), bf16(vocab);
      for (std::size_t i = 0; i < vocab; ++i) {
        bits[i] = static_cast<std::uint32_t>(random()) | (i % 2 == 0 ? 0x7f80'0000u : 0u);
        f32[i] = std::bit_cast<float>(bits[i]);
        f16[i] = bf16[i] = static_cast<std::uint16_t>(bits[i] >> 16);
      }
      apply_token_bitmask(mask, f32);
      apply_token_bitmask_f16(mask, f16);
      apply_token_bitmask_bf16(mask, bf16);
      for (std::size_t i = 0; i < vocab; ++i) {
        const bool allowed = (mask[i / 32] >> (i % 32)) & 1u;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(f32[i]), allowed ? bits[i] : 0xff80'0000u) << i << " of " << vocab;
        ASSERT_EQ(f16[i], allowed ? bits[i] >> 16 : 0xfc00u) << i << " of " << vocab;
        ASSERT_EQ(bf16[i], allowed ? bits[i] >> 16 : 0xff80u) << i << " of " << vocab;
      }
    }
  }
}

TEST(TokenBitmask, AShortMaskAllowsNothingBeyondItAndALongOneIsRefused) {
  std::vector<float> logits(70, 1.0f);
  apply_token_bitmask(std::vector<std::uint32_t>{~0u}, logits);
  EXPECT_EQ(std::ranges::count(logits, 1.0f), 32);
  EXPECT_THROW(apply_token_bitmask(std::vector<std::uint32_t>(4), logits), InvalidArgumentError);
}

}  // namespace
}  // namespace coreai::grammar
