// How the next token is chosen from logits.
// The chain is temperature, top-k, min-p, top-p on the renormalised rest, softmax, draw: the order that the reference
// system implements. Greedy is the first of equal maxima.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coreai/base/dtype.h"
#include "coreai/text/tokenizer.h"

namespace coreai {

struct SamplingConfiguration {
  float temperature = 0.0F;  // 0 = greedy, and the filters below are without effect
  std::int32_t top_k = 0;    // keep the k largest; 0 = off
  float top_p = 1.0F;        // keep the shortest prefix of this mass; 1 = off, 0 = only the best
  float min_p = 0.0F;        // keep what has at least this share of the best one's probability; 0 = off
  std::uint64_t seed = 0;    // used when temperature > 0

  bool greedy() const { return temperature == 0.0F; }
  // Throws InvalidArgumentError that lists every field out of range, with its value and the range.
  void validate() const;
  // Legal but suspicious combinations, a sentence each; empty when there is none.
  std::vector<std::string> warnings() const;
};

// Draw number `step` of seed `seed`, in [0, 1) with 24 bits: the step-th output of SplitMix64 (Steele, Lea and Flood,
// OOPSLA 2014) started at `seed`. Random access, so a draw depends on the step alone and not on what ran before.
float uniform_draw(std::uint64_t seed, std::uint64_t step);

// The elements of one row of logits (f32, f16 or bf16) as f32. A masked f16 element (-65504) becomes -infinity.
// Throws UnsupportedError for another dtype, InvalidArgumentError when the sizes differ.
void widen_logits(DType dtype, std::span<const std::byte> row, std::span<float> out);

// Chooses tokens. Holds only scratch memory, so it allocates nothing once it has seen the vocabulary.
// Not thread-safe; cheap to make one per generation.
class Sampler {
 public:
  // Throws as validate().
  explicit Sampler(const SamplingConfiguration& configuration);

  const SamplingConfiguration& configuration() const { return configuration_; }
  // The token for draw number `step`. -infinity is never chosen. Throws InvalidArgumentError when no element is finite
  // or one is NaN or +infinity.
  TokenId sample(std::span<const float> logits, std::uint64_t step);

  struct Candidate {
    float logit;  // after temperature
    TokenId token;
  };
  // What the filters keep, best first, ties by lower id. Valid until the next call. Throws as sample().
  std::span<const Candidate> keep(std::span<const float> logits);

 private:
  TokenId sample_all(std::span<const float> logits, float best, float draw);
  void collect_top_k(std::span<const float> logits, float floor);
  void collect_above(std::span<const float> logits, float floor);
  void cut_top_p(std::span<const float> logits, float best, float floor);
  float scaled(float logit) const { return logit / configuration_.temperature; }

  SamplingConfiguration configuration_;
  std::vector<Candidate> candidates_;
  std::vector<float> weights_;
  std::vector<double> block_sums_;
};

}  // namespace coreai
