#include "coreai/language/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// The chain written plainly: sort everything, then cut. In double, so that it shares no rounding with the sampler.
std::vector<TokenId> plain_kept_set(const std::vector<float>& logits, const SamplingConfiguration& c) {
  std::vector<std::pair<double, TokenId>> all;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -kInf) all.emplace_back(static_cast<double>(logits[i] / c.temperature), static_cast<TokenId>(i));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  });
  if (c.top_k > 0 && all.size() > static_cast<std::size_t>(c.top_k)) all.resize(static_cast<std::size_t>(c.top_k));
  const double best = all[0].first;
  if (c.min_p > 0)
    std::erase_if(all, [&](const auto& e) { return std::exp(e.first - best) < static_cast<double>(c.min_p); });
  if (c.top_p < 1.0F) {
    double total = 0, sum = 0;
    for (const auto& e : all) total += std::exp(e.first - best);
    std::size_t n = 0;
    while (n < all.size()) {
      sum += std::exp(all[n++].first - best) / total;
      if (sum >= static_cast<double>(c.top_p)) break;
    }
    all.resize(std::max<std::size_t>(n, 1));
  }
  std::vector<TokenId> ids;
  for (const auto& e : all) ids.push_back(e.second);
  return ids;
}

std::vector<TokenId> ids_of(std::span<const Sampler::Candidate> kept) {
  std::vector<TokenId> ids;
  for (const auto& c : kept) ids.push_back(c.token);
  return ids;
}

std::vector<float> random_logits(std::mt19937& random, std::size_t n, float spread) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  return logits;
}

TEST(Sampler, GreedyTakesTheFirstOfEqualMaxima) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 3, 2}, 0), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInf, -5, -kInf}, 0), 1);
}

TEST(Sampler, KeptSetsEqualThePlainChain) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> unit(0.0F, 1.0F);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t n = 1 + random() % (round % 10 == 0 ? 5000 : 300);
    auto logits = random_logits(random, n, 0.5F + 4.0F * unit(random));
    for (float& x : logits)
      if (unit(random) < 0.05F) x = -kInf;
    logits[random() % n] = 1.0F;
    SamplingConfiguration c;
    c.temperature = 0.2F + 2.0F * unit(random);
    if (random() % 2) c.top_k = static_cast<std::int32_t>(1 + random() % 80);
    if (random() % 2) c.top_p = unit(random);
    if (random() % 2) c.min_p = unit(random) * 0.3F;
    Sampler sampler(c);
    ASSERT_EQ(ids_of(sampler.keep(logits)), plain_kept_set(logits, c))
        << "round " << round << " T " << c.temperature << " k " << c.top_k << " p " << c.top_p << " m " << c.min_p;
  }
}

TEST(Sampler, TiesAtTheCutKeepTheLowerIds) {
  std::vector<float> logits(1000, 0.5F);
  Sampler sampler({.temperature = 1.0F, .top_k = 3});
  EXPECT_THAT(ids_of(sampler.keep(logits)), testing::ElementsAre(0, 1, 2));
}

TEST(Sampler, OrderOfTheChain) {
  // Temperature first: with T = 2 the shares are .455 .276 .167 .102 and top-p 0.75 keeps three; before the
  // temperature they are .644 .237 ..., and it would keep two.
  const std::vector<float> logits{2, 1, 0, -1};
  Sampler first({.temperature = 2.0F, .top_p = 0.75F});
  EXPECT_THAT(ids_of(first.keep(logits)), testing::ElementsAre(0, 1, 2));
  // Top-p after top-k works on the renormalised rest: .731 of the two.
  Sampler second({.temperature = 1.0F, .top_k = 2, .top_p = 0.7F});
  EXPECT_THAT(ids_of(second.keep(logits)), testing::ElementsAre(0));
  Sampler nothing({.temperature = 1.0F, .top_p = 0.0F});
  EXPECT_THAT(ids_of(nothing.keep(logits)), testing::ElementsAre(0));
  Sampler strict({.temperature = 1.0F, .min_p = 1.0F});
  EXPECT_THAT(ids_of(strict.keep(std::vector<float>{1, 2, 2})), testing::ElementsAre(1, 2));
}

// Sum over the tokens of (seen - expected)^2 / expected against its 99.9 % quantile (Wilson and Hilferty, 1931).
void expect_frequencies(const SamplingConfiguration& c, const std::vector<float>& logits, const char* what) {
  const auto kept = plain_kept_set(logits, c);
  std::vector<double> share(logits.size(), 0.0);
  double total = 0;
  for (TokenId id : kept)
    total += share[static_cast<std::size_t>(id)] =
        std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) / static_cast<double>(c.temperature));
  constexpr int kDraws = 40000;
  std::vector<int> seen(logits.size(), 0);
  Sampler sampler(c);
  for (int i = 0; i < kDraws; ++i)
    ++seen[static_cast<std::size_t>(sampler.sample(logits, static_cast<std::uint64_t>(i)))];
  double chi = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double expected = share[i] / total * kDraws;
    if (expected == 0.0) {
      EXPECT_EQ(seen[i], 0) << what << ": token " << i << " must never be drawn";
      continue;
    }
    chi += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  const double df = static_cast<double>(kept.size()) - 1;
  const double h = 2.0 / (9.0 * df);
  EXPECT_LT(chi, df * std::pow(1.0 - h + 3.09 * std::sqrt(h), 3.0)) << what;
}

TEST(Sampler, FrequenciesFollowTheProbabilities) {
  std::vector<float> logits{0.3F, 1.2F, -0.7F, 2.0F, 0.0F, -kInf, 1.1F, -1.5F};
  expect_frequencies({.temperature = 1.0F, .seed = 11}, logits, "temperature 1");
  std::mt19937 random(9);
  auto wide = random_logits(random, 1000, 1.0F);
  for (std::size_t i = 300; i < 700; ++i) wide[i] = -kInf;
  expect_frequencies({.temperature = 0.8F, .seed = 10}, wide, "several blocks, some of them masked");
  expect_frequencies({.temperature = 0.6F, .seed = 12}, logits, "temperature 0.6");
  expect_frequencies({.temperature = 1.5F, .top_k = 4, .seed = 13}, logits, "top-k");
  expect_frequencies({.temperature = 1.0F, .top_p = 0.8F, .seed = 14}, logits, "top-p");
  expect_frequencies({.temperature = 1.3F, .min_p = 0.2F, .seed = 15}, logits, "min-p");
  expect_frequencies({.temperature = 1.3F, .top_k = 6, .top_p = 0.9F, .min_p = 0.05F, .seed = 16}, logits, "all");
}

TEST(Sampler, TheSeedFixesTheSequence) {
  std::mt19937 random(3);
  const auto logits = random_logits(random, 500, 1.0F);
  const auto draw = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1.0F, .seed = seed});
    std::vector<TokenId> ids;
    for (std::uint64_t i = 0; i < 50; ++i) ids.push_back(sampler.sample(logits, i));
    return ids;
  };
  EXPECT_EQ(draw(5), draw(5));
  EXPECT_NE(draw(5), draw(6));
}

TEST(Sampler, DrawsAreSplitMix64) {
  // First outputs of SplitMix64 from state 0: e220a8397b1dcdaf, 6e789e6aa1b965f4.
  EXPECT_EQ(uniform_draw(0, 0), static_cast<float>(0xe220a8) * 0x1p-24F);
  EXPECT_EQ(uniform_draw(0, 1), static_cast<float>(0x6e789e) * 0x1p-24F);
}

TEST(Sampler, BadLogitsAreErrors) {
  for (float temperature : {0.0F, 1.0F}) {
    Sampler sampler({.temperature = temperature});
    EXPECT_THROW(sampler.sample(std::vector<float>{1, std::nanf(""), 2}, 0), InvalidArgumentError);
    EXPECT_THROW(sampler.sample(std::vector<float>{1, kInf}, 0), InvalidArgumentError);
    EXPECT_THROW(sampler.sample(std::vector<float>{-kInf, -kInf}, 0), InvalidArgumentError);
    EXPECT_THROW(sampler.sample(std::vector<float>{}, 0), InvalidArgumentError);
  }
}

TEST(SamplingConfiguration, ValidateNamesEveryField) {
  SamplingConfiguration c{.temperature = -1.0F, .top_k = -2, .top_p = 1.5F, .min_p = std::nanf("")};
  try {
    c.validate();
    FAIL() << "accepted";
  } catch (const InvalidArgumentError& e) {
    for (const char* part : {"temperature is -1", "top_k is -2", "top_p is 1.5", "min_p is nan"})
      EXPECT_THAT(e.what(), testing::HasSubstr(part));
  }
  SamplingConfiguration legal{.temperature = 0.0F, .top_k = 5};
  legal.validate();
  EXPECT_EQ(legal.warnings().size(), 1u);
  EXPECT_TRUE(SamplingConfiguration{}.warnings().empty());
}

TEST(Logits, RowsWidenExactly) {
  const std::vector<float> values{1.5F, -2.25F, -65504.0F, 0.0F};
  std::vector<std::uint16_t> f16, bf16;
  for (float v : values) f16.push_back(f32_to_f16(v));
  for (float v : values) bf16.push_back(f32_to_bf16(v));
  std::vector<float> out(4);
  widen_logits(DType::kF16, std::as_bytes(std::span(f16)), out);
  EXPECT_THAT(out, testing::ElementsAre(1.5F, -2.25F, -kInf, 0.0F));
  widen_logits(DType::kBF16, std::as_bytes(std::span(bf16)), out);
  EXPECT_THAT(out, testing::ElementsAre(1.5F, -2.25F, -65536.0F, 0.0F));
  widen_logits(DType::kF32, std::as_bytes(std::span(values)), out);
  EXPECT_EQ(out, values);
  EXPECT_THROW(widen_logits(DType::kSI8, std::as_bytes(std::span(values)).first(4), out), UnsupportedError);
  EXPECT_THROW(widen_logits(DType::kF32, std::as_bytes(std::span(values)).first(4), out), InvalidArgumentError);
}

}  // namespace
}  // namespace coreai
