// The gated delta rule of a layer shaped like Qwen3-Next's: 32 heads of 128 x 128, normalised, states in f32. Prints
// one line of JSON per number of tokens; exits 1 when a result is wrong.
//   delta_bench [seconds per figure] [level]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "backend/cpu/delta_rule.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kernel_tables.h"

namespace {

using namespace coreai;
using namespace coreai::cpu;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kHeads = 32, kDim = 128;

struct Layer {
  explicit Layer(std::int64_t tokens) {
    auto fill = [seed = std::uint64_t{1}](std::vector<float>& v, std::int64_t n) mutable {
      v.resize(static_cast<std::size_t>(n));
      for (float& x : v) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x = static_cast<float>(static_cast<std::int32_t>(seed >> 32)) * 0x1p-32f;
      }
    };
    fill(query, kHeads * tokens * kDim), fill(key, kHeads * tokens * kDim), fill(value, kHeads * tokens * kDim);
    fill(decay, kHeads * tokens), fill(beta, kHeads * tokens), fill(state, kHeads * kDim * kDim);
    for (float& g : decay) g = -std::fabs(g);
    out.resize(value.size());
    next.resize(state.size());
    args.query = {query.data(), 0, tokens * kDim, kDim}, args.key = {key.data(), 0, tokens * kDim, kDim};
    args.value = {value.data(), 0, tokens * kDim, kDim}, args.out = {out.data(), 0, tokens * kDim, kDim};
    args.decay = {decay.data(), 0, tokens, 1}, args.beta = {beta.data(), 0, tokens, 1};
    args.state_in = {reinterpret_cast<const std::byte*>(state.data()), DType::kF32, 0, kDim * kDim};
    args.state_out = {reinterpret_cast<std::byte*>(next.data()), DType::kF32, 0, kDim * kDim};
    args.batch = 1, args.heads = kHeads, args.tokens = tokens, args.key_dim = args.value_dim = kDim;
    args.normalise = true, args.eps = 1e-6f, args.scale = 0.1f;
  }
  std::vector<float> query, key, value, decay, beta, state, out, next;
  DeltaRuleArgs args;
};

// Head 0 in double.
double largest_error(const Layer& layer) {
  const auto n = static_cast<std::size_t>(kDim), tokens = static_cast<std::size_t>(layer.args.tokens);
  std::vector<double> s(layer.state.begin(), layer.state.begin() + kDim * kDim), seen(n), mixed(n);
  double error = 0;
  for (std::size_t t = 0; t < tokens; ++t) {
    const float *q = &layer.query[t * n], *k = &layer.key[t * n], *v = &layer.value[t * n];
    double qq = 0, kk = 0;
    for (std::size_t i = 0; i < n; ++i) qq += static_cast<double>(q[i]) * q[i], kk += static_cast<double>(k[i]) * k[i];
    const double fq = 0.1 / std::sqrt(qq + 1e-6), fk = 1 / std::sqrt(kk + 1e-6), kept = std::exp(layer.decay[t]);
    std::ranges::fill(seen, 0), std::ranges::fill(mixed, 0);
    for (std::size_t i = 0; i < n * n; ++i) s[i] *= kept, seen[i % n] += s[i] * k[i / n] * fk;
    for (std::size_t i = 0; i < n * n; ++i) {
      s[i] += k[i / n] * fk * (v[i % n] - seen[i % n]) * layer.beta[t];
      mixed[i % n] += s[i] * q[i / n] * fq;
    }
    for (std::size_t e = 0; e < n; ++e) error = std::max(error, std::fabs(mixed[e] - layer.out[t * n + e]));
  }
  return error;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  Isa isa = detect_isa();
  if (argc > 2 && std::string(argv[2]) == "portable") isa = Isa::kPortable;
  for (const std::int64_t tokens : {1, 8, 64, 512}) {
    Layer layer(tokens);
    std::vector<float> scratch(delta_scratch_bytes(layer.args) / sizeof(float) + 16);
    const auto run = [&] { kernel_tables(isa).delta_rule(layer.args, 0, delta_units(layer.args), scratch.data()); };
    run();
    const double error = largest_error(layer);
    if (!(error < 1e-4)) {
      fmt::print(stderr, "error: {} off by {}\n", tokens, error);
      return 1;
    }
    std::vector<double> ms;
    const auto begin = Clock::now();
    while (ms.size() < 5 || std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
      const auto start = Clock::now();
      run();
      ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    std::ranges::sort(ms);
    const double flop = 6.0 * static_cast<double>(kHeads * kDim * kDim * tokens);
    fmt::print("{{\"what\":\"delta_rule\",\"tokens\":{},\"median_ms\":{:.4f},\"best_ms\":{:.4f},\"gflops\":{:.2f}}}\n",
               tokens, ms[ms.size() / 2], ms[0], flop / ms[ms.size() / 2] * 1e-6);
  }
  return 0;
}
