#include "coreai/language/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "coreai/base/error.h"
#include "coreai/base/float_types.h"

namespace coreai {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
// Lowest finite f16: what f16 graphs write where they mean -infinity.
constexpr float kLowestF16 = -65504.0F;
// Distance from the best logit (in nats) that top-p looks at first; e^-12 of the best one's weight lies beyond.
constexpr float kFirstWindow = 12.0F;

bool better(const Sampler::Candidate& a, const Sampler::Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

struct Best {
  std::size_t index = 0;
  float value = kMasked;
};

// Lanes of the scans below: enough for the compiler to keep vector registers busy.
constexpr std::size_t kLanes = 16;

// First of equal maxima. NaN and +infinity say that the model went wrong: an error beats token 0.
Best find_best(std::span<const float> logits) {
  float highest[kLanes];
  int unordered[kLanes] = {};
  std::fill(std::begin(highest), std::end(highest), kMasked);
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = logits[i + lane];
      highest[lane] = x > highest[lane] ? x : highest[lane];
      unordered[lane] |= x != x;
    }
  for (; i < logits.size(); ++i) {
    highest[0] = logits[i] > highest[0] ? logits[i] : highest[0];
    unordered[0] |= logits[i] != logits[i];
  }
  Best best;
  bool bad = false;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    best.value = std::max(best.value, highest[lane]);
    bad |= unordered[lane] != 0;
  }
  if (bad || best.value == std::numeric_limits<float>::infinity())
    throw InvalidArgumentError("a logit is NaN or +infinity", "sampling",
                               "Run the model with --precision strict to find out whether its arithmetic overflows");
  if (best.value == kMasked)
    throw InvalidArgumentError(fmt::format("none of the {} logits is finite", logits.size()), "sampling",
                               "Every token is masked: check the mask that was applied");
  best.index = static_cast<std::size_t>(std::find(logits.begin(), logits.end(), best.value) - logits.begin());
  return best;
}

// e^x for x <= 0 with a relative error below 2e-7; 0 below -87. The same bits on every machine, unlike the library's,
// and plain arithmetic, so that loops over it vectorise. Polynomial: Cephes expf (Moshier).
float exp_of_negative(float x) {
  const float clamped = x < -87.0F ? -87.0F : x;
  const auto n = static_cast<int>(clamped * 1.44269504F - 0.5F);
  const auto whole = static_cast<float>(n);
  const float r = clamped - whole * 0.693359375F + whole * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float scale = std::bit_cast<float>((n + 127) << 23);
  return x < -87.0F ? 0.0F : (p * r * r + r + 1.0F) * scale;
}

// Index of the element whose share of the cumulated weights holds `draw`; the last one when rounding runs past the end.
TokenId draw_from(std::span<const Sampler::Candidate> kept, float best, float draw) {
  double total = 0;
  for (const auto& c : kept) total += std::exp(static_cast<double>(c.logit - best));
  double rest = static_cast<double>(draw) * total;
  for (const auto& c : kept) {
    rest -= std::exp(static_cast<double>(c.logit - best));
    if (rest < 0) return c.token;
  }
  return kept.back().token;
}

}  // namespace

void SamplingConfiguration::validate() const {
  std::string faults;
  const auto fault = [&](bool broken, std::string text) {
    if (broken) faults += (faults.empty() ? "" : "; ") + text;
  };
  fault(!(temperature >= 0.0F) || std::isinf(temperature),
        fmt::format("temperature is {}, valid: 0 or more", temperature));
  fault(top_k < 0, fmt::format("top_k is {}, valid: 0 (off) or more", top_k));
  fault(!(top_p >= 0.0F && top_p <= 1.0F), fmt::format("top_p is {}, valid: 0 to 1", top_p));
  fault(!(min_p >= 0.0F && min_p <= 1.0F), fmt::format("min_p is {}, valid: 0 to 1", min_p));
  if (!faults.empty()) throw InvalidArgumentError(faults, "sampling", "Correct the named fields");
}

std::vector<std::string> SamplingConfiguration::warnings() const {
  std::vector<std::string> found;
  const bool filters = top_k > 0 || top_p < 1.0F || min_p > 0.0F;
  if (greedy() && filters) found.emplace_back("temperature 0 is greedy: top_k, top_p and min_p have no effect");
  if (!greedy() && top_k == 1)
    found.emplace_back("top_k 1 is greedy: temperature and the other filters have no effect");
  if (!greedy() && min_p > 0.0F && top_p < 1.0F)
    found.emplace_back("min_p and top_p are both set: top_p applies to what min_p leaves, renormalised");
  return found;
}

float uniform_draw(std::uint64_t seed, std::uint64_t step) {
  std::uint64_t z = seed + (step + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * 0x1p-24F;
}

void widen_logits(DType dtype, std::span<const std::byte> row, std::span<float> out) {
  if (row.size() != dtype_bytes(dtype, out.size()))
    throw InvalidArgumentError(
        fmt::format("{} bytes are not {} elements of {}", row.size(), out.size(), dtype_name(dtype)), "logits");
  const auto half = [&](std::size_t i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, row.data() + 2 * i, 2);
    return bits;
  };
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out.data(), row.data(), row.size());
      return;
    case DType::kF16:
      for (std::size_t i = 0; i < out.size(); ++i) {
        const float value = f16_to_f32(half(i));
        out[i] = value <= kLowestF16 ? kMasked : value;
      }
      return;
    case DType::kBF16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_f32(half(i));
      return;
    default:
      throw UnsupportedError(fmt::format("logits of type {}", dtype_name(dtype)), "sampling",
                             "Export the model with f32, f16 or bf16 logits");
  }
}

Sampler::Sampler(const SamplingConfiguration& configuration) : configuration_(configuration) {
  configuration_.validate();
}

TokenId Sampler::sample(std::span<const float> logits, std::uint64_t step) {
  const bool filters = configuration_.top_k > 0 || configuration_.top_p < 1.0F || configuration_.min_p > 0.0F;
  if (configuration_.greedy()) return static_cast<TokenId>(find_best(logits).index);
  const float draw = uniform_draw(configuration_.seed, step);
  if (!filters) return sample_all(logits, find_best(logits).value, draw);
  const auto kept = keep(logits);
  return draw_from(kept, kept.front().logit, draw);
}

// One pass over the weights, whose sums of each block then tell in which block the draw falls.
TokenId Sampler::sample_all(std::span<const float> logits, float best, float draw) {
  constexpr std::size_t kBlock = 256;
  const float top = scaled(best);
  weights_.resize(logits.size());
  block_sums_.clear();
  double total = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, logits.size());
    for (std::size_t i = begin; i < end; ++i) weights_[i] = exp_of_negative(scaled(logits[i]) - top);
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += static_cast<double>(weights_[i]);
    block_sums_.push_back(sum);
    total += sum;
  }
  double rest = static_cast<double>(draw) * total;
  std::size_t block = 0;
  while (block + 1 < block_sums_.size() && rest >= block_sums_[block]) rest -= block_sums_[block++];
  std::size_t last = logits.size();
  for (std::size_t i = block * kBlock; i < logits.size(); ++i) {
    if (weights_[i] > 0) last = i;
    rest -= static_cast<double>(weights_[i]);
    if (rest < 0) return static_cast<TokenId>(i);
  }
  if (last == logits.size())  // rounding ran past the last weight, which lies in an earlier block
    while (!(weights_[--last] > 0)) {
    }
  return static_cast<TokenId>(last);
}

std::span<const Sampler::Candidate> Sampler::keep(std::span<const float> logits) {
  const Best found = find_best(logits);
  candidates_.clear();
  const float temperature = configuration_.temperature;
  if (temperature == 0.0F) {
    candidates_.push_back({found.value, static_cast<TokenId>(found.index)});
    return candidates_;
  }
  const float best = scaled(found.value);
  // What min-p lets through depends on the best element only, so it can go before top-k without changing the set.
  const float floor = configuration_.min_p > 0.0F ? best + std::log(configuration_.min_p) : kMasked;
  const auto k = static_cast<std::size_t>(configuration_.top_k);
  if (k > 0 && k < logits.size()) {
    collect_top_k(logits, floor);
  } else if (configuration_.top_p < 1.0F) {
    cut_top_p(logits, best, floor);
    return candidates_;
  } else {
    collect_above(logits, floor);
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
  if (configuration_.top_p >= 1.0F) return candidates_;
  double total = 0;
  for (const auto& c : candidates_) total += std::exp(static_cast<double>(c.logit - best));
  double sum = 0;
  std::size_t count = 0;
  while (count < candidates_.size()) {
    sum += std::exp(static_cast<double>(candidates_[count++].logit - best));
    if (sum >= static_cast<double>(configuration_.top_p) * total) break;
  }
  candidates_.resize(std::max<std::size_t>(count, 1));
  return candidates_;
}

void Sampler::collect_above(std::span<const float> logits, float floor) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float x = scaled(logits[i]);
    if (x >= floor && x > kMasked) candidates_.push_back({x, static_cast<TokenId>(i)});
  }
}

// One pass with a buffer of a few k: whenever it is full, the k best stay and the k-th raises the bar.
// Later elements have higher ids, so an element equal to the bar loses its tie.
void Sampler::collect_top_k(std::span<const float> logits, float floor) {
  const auto k = static_cast<std::size_t>(configuration_.top_k);
  const std::size_t limit = std::max<std::size_t>(4 * k, 256);
  float bar = kMasked;
  const auto shrink = [&] {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k - 1), candidates_.end(),
                     better);
    candidates_.resize(k);
    bar = candidates_[k - 1].logit;
  };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float x = scaled(logits[i]);
    if (!(x > bar) || x < floor) continue;
    candidates_.push_back({x, static_cast<TokenId>(i)});
    if (candidates_.size() == limit) shrink();
  }
  if (candidates_.size() > k) shrink();
}

// The total mass needs every element, the kept prefix only those near the best: collect what lies within a window of
// the best one and widen it until its mass is enough.
void Sampler::cut_top_p(std::span<const float> logits, float best, float floor) {
  double total = 0;
  for (float logit : logits) {
    const float x = scaled(logit);
    if (x >= floor) total += static_cast<double>(exp_of_negative(x - best));
  }
  const double wanted = static_cast<double>(configuration_.top_p) * total;
  for (float window = kFirstWindow;; window *= 4.0F) {
    const float bar = std::max(floor, best - window);
    candidates_.clear();
    collect_above(logits, bar);
    std::sort(candidates_.begin(), candidates_.end(), better);
    double sum = 0;
    for (std::size_t count = 0; count < candidates_.size(); ++count) {
      sum += static_cast<double>(exp_of_negative(candidates_[count].logit - best));
      if (sum < wanted) continue;
      candidates_.resize(count + 1);
      return;
    }
    // Beyond 87 exp_of_negative() is 0: all that has weight has been seen.
    if (bar == floor || window > 87.0F) return;
  }
}

}  // namespace coreai
