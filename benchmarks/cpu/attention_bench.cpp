// Attention over the cache of a model shaped like SmolLM2-135M: 9 heads on 3 kv heads of 64, 30 layers, f16.
// Prints one line of JSON per figure, with the read rate of the same caches beside it; exits 1 when a result is wrong.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/row_kernels.h"
#include "coreai/base/thread_pool.h"

namespace {

using namespace coreai;
using namespace coreai::cpu;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kLayers = 30, kHeads = 9, kKvHeads = 3, kDim = 64;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
// Core time of this thread: what holds on a machine with other load, for one thread.
double core_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
float noise(std::uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31f;
}

struct Cache {
  explicit Cache(std::int64_t positions)
      : keys(KvRole::kKey, DType::kF16, {kLayers, kKvHeads, kDim}, positions),
        values(KvRole::kValue, DType::kF16, {kLayers, kKvHeads, kDim}, positions) {
    std::uint64_t state = 1;
    std::vector<float> rows(static_cast<std::size_t>(positions * kDim));
    for (float& x : rows) x = noise(state);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (std::int64_t head = 0; head < kKvHeads; ++head) {
        keys.store_rows(layer, head, 0, positions, rows.data(), kDim);
        values.store_rows(layer, head, 0, positions, rows.data(), kDim);
      }
    }
  }
  std::int64_t bytes(std::int64_t length) const { return length * kLayers * kKvHeads * kDim * 2 * 2; }
  KvBuffer keys, values;
};

// Every layer's attention, as an executor runs it: redoable steps when there is one query.
class Program final : public StepProgram {
 public:
  Program(Isa isa, Cache& cache, std::int64_t queries, std::int64_t length, int threads)
      : kernels_(attention_kernels(isa)), redoable_(queries == 1) {
    std::uint64_t state = 7;
    q_.resize(static_cast<std::size_t>(queries * kHeads * kDim));
    for (float& x : q_) x = 4.0f * noise(state);
    out_.resize(q_.size() * kLayers);
    AttentionArgs a;
    a.q = q_.data();
    a.q_row_stride = a.out_row_stride = kHeads * kDim;
    a.q_head_stride = a.out_head_stride = kDim;
    a.keys = &cache.keys;
    a.values = &cache.values;
    a.queries = queries;
    a.heads = kHeads;
    a.kv_heads = kKvHeads;
    a.head_dim = a.value_dim = kDim;
    a.length = length;
    a.scale = 0.125f;
    plan_ = plan_attention(a, threads);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      a.layer = layer;
      a.out = out_.data() + static_cast<std::size_t>(layer) * q_.size();
      args_.push_back(a);
    }
    partials_.resize(plan_.partial_floats);
    for (int c = 0; c < plan_.chunks && plan_.split; ++c) {
      largest_ = std::max(largest_, attention_partial_of(a, plan_, c).count);
    }
    largest_ = std::max<std::size_t>(largest_, redoable_ ? kHeads * kDim : 0);
  }

  void use(Cache& cache) {
    for (AttentionArgs& a : args_) {
      a.keys = &cache.keys;
      a.values = &cache.values;
    }
  }
  int step_count() const override { return static_cast<int>(kLayers) * (plan_.split ? 2 : 1); }
  StepInfo step_info(int step) const override { return {joins(step) ? plan_.join_chunks : plan_.chunks, redoable_}; }
  std::size_t scratch_bytes() const override { return plan_.scratch_bytes + largest_ * sizeof(float); }
  void compute(int step, int chunk, const Worker& worker) override {
    const AttentionArgs& a = args(step);
    auto* result = reinterpret_cast<float*>(worker.scratch + plan_.scratch_bytes);
    if (joins(step)) {
      const AttentionRows rows = attention_rows_of(a, plan_, chunk);
      kernels_.join(a, plan_, chunk, partials_.data(), result, rows.heads * kDim, kDim);
    } else if (plan_.split) {
      kernels_.partial(a, plan_, chunk, result, worker.scratch);
    } else {
      const AttentionRows rows = attention_rows_of(a, plan_, chunk);
      float* out = redoable_ ? result : place(a, rows);
      kernels_.rows(a, plan_, chunk, out, redoable_ ? rows.heads * kDim : a.out_row_stride, kDim, worker.scratch);
    }
  }
  void publish(int step, int chunk, const Worker& worker) override {
    const AttentionArgs& a = args(step);
    const std::byte* result = worker.scratch + plan_.scratch_bytes;
    if (plan_.split && !joins(step)) {
      const auto range = attention_partial_of(a, plan_, chunk);
      std::memcpy(partials_.data() + range.offset, result, range.count * sizeof(float));
      return;
    }
    const AttentionRows rows = attention_rows_of(a, plan_, chunk);
    std::memcpy(place(a, rows), result, static_cast<std::size_t>(rows.heads * kDim) * sizeof(float));
  }

  // Largest difference to a plain double loop over a few rows of the first and last layer.
  double worst_error() const {
    double worst = 0;
    const std::int64_t queries = args_[0].queries;
    for (const std::int64_t layer : {std::int64_t{0}, kLayers - 1}) {
      for (std::int64_t i = 0; i < queries; i += std::max<std::int64_t>(1, queries / 3)) {
        for (std::int64_t h = 0; h < kHeads; h += 4) worst = std::max(worst, row_error(layer, i, h));
      }
    }
    return worst;
  }

 private:
  bool joins(int step) const { return plan_.split && step % 2 == 1; }
  const AttentionArgs& args(int step) const { return args_[static_cast<std::size_t>(plan_.split ? step / 2 : step)]; }
  static float* place(const AttentionArgs& a, const AttentionRows& rows) {
    return a.out + rows.first_query * a.out_row_stride + rows.first_head * a.out_head_stride;
  }
  double row_error(std::int64_t layer, std::int64_t i, std::int64_t h) const {
    const AttentionArgs& a = args_[static_cast<std::size_t>(layer)];
    const std::int64_t seen = a.length - a.queries + i + 1;
    std::vector<float> k(static_cast<std::size_t>(seen * kDim)), v(k.size());
    a.keys->load_rows(layer, h / 3, 0, seen, k.data(), kDim);
    a.values->load_rows(layer, h / 3, 0, seen, v.data(), kDim);
    const float* q = a.q + i * a.q_row_stride + h * kDim;
    double total = 0, sum[kDim] = {};
    for (std::int64_t j = 0; j < seen; ++j) {
      double s = 0;
      for (std::int64_t d = 0; d < kDim; ++d) {
        s += static_cast<double>(q[d]) * static_cast<double>(k[static_cast<std::size_t>(j * kDim + d)]);
      }
      const double w = std::exp(s * 0.125);
      total += w;
      for (std::int64_t d = 0; d < kDim; ++d)
        sum[d] += w * static_cast<double>(v[static_cast<std::size_t>(j * kDim + d)]);
    }
    double worst = 0;
    for (std::int64_t d = 0; d < kDim; ++d) {
      const float got = a.out[i * a.out_row_stride + h * kDim + d];
      worst = std::max(worst, std::fabs(static_cast<double>(got) - sum[d] / total));
    }
    return worst;
  }

  const AttentionKernels& kernels_;
  bool redoable_;
  std::vector<float> q_, out_, partials_;
  AttentionPlan plan_;
  std::vector<AttentionArgs> args_;
  std::size_t largest_ = 0;
};

// Plain reading of the same bytes by the same threads.
double read_seconds(ThreadPool& pool, Cache& cache, std::int64_t length) {
  std::vector<std::uint64_t> sums(64);
  const auto start = Clock::now();
  pool.parallel_for(static_cast<int>(kLayers * kKvHeads), [&](int unit) {
    std::uint64_t sum = 0;
    for (std::int64_t b = 0; b * KvBuffer::kBlockPositions < length; ++b) {
      for (const KvBuffer* buffer : {&cache.keys, &cache.values}) {
        const auto* words =
            reinterpret_cast<const std::uint64_t*>(buffer->head_block(unit / kKvHeads, unit % kKvHeads, b));
        const std::int64_t count =
            std::min(KvBuffer::kBlockPositions, length - b * KvBuffer::kBlockPositions) * kDim / 4;
        std::uint64_t part[8] = {};
        for (std::int64_t i = 0; i + 8 <= count; i += 8) {
          for (int j = 0; j < 8; ++j) part[j] += words[i + j];
        }
        for (const std::uint64_t p : part) sum += p;
      }
    }
    sums[static_cast<std::size_t>(unit % 64)] = sum;
  });
  return seconds_since(start);
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

bool measure(Isa isa, std::vector<Cache>& caches, std::int64_t queries, std::int64_t length, int threads,
             double budget) {
  ThreadPool pool(threads);
  Program program(isa, caches[0], queries, length, threads);
  pool.run(program);
  const double error = program.worst_error();
  const bool ok = error < 2e-6;
  std::vector<double> times, reads;
  std::size_t turn = 0;
  double core = 1e9;
  for (const auto start = Clock::now(); seconds_since(start) < budget || times.size() < 3; ++turn) {
    Cache& cache = caches[turn % caches.size()];
    program.use(cache);
    const double core_before = core_seconds();
    const auto before = Clock::now();
    pool.run(program);
    times.push_back(seconds_since(before));
    core = std::min(core, core_seconds() - core_before);
    // Another copy, so that neither finds what the other left in the cache.
    if (queries == 1) reads.push_back(read_seconds(pool, caches[(turn + caches.size() / 2) % caches.size()], length));
  }
  const double best = *std::min_element(times.begin(), times.end()), typical = median(times);
  if (queries == 1) {
    const double bytes = static_cast<double>(caches[0].bytes(length));
    const double read = median(reads);
    fmt::print(
        "{{\"benchmark\":\"attention_decode\",\"isa\":\"{}\",\"threads\":{},\"positions\":{},\"ms\":{:.3f},\"best_ms\":"
        "{:.3f},\"best_core_ms\":{:.3f},\"gb_per_s\":{:.1f},\"best_gb_per_s\":{:.1f},\"read_gb_per_s\":{:.1f},\"best_"
        "read_gb_per_s\":{:.1f},"
        "\"error\":{:.1e},\"correct\":{}}}\n",
        isa_name(isa), threads, length, typical * 1e3, best * 1e3, core * 1e3, bytes / typical * 1e-9,
        bytes / best * 1e-9, bytes / read * 1e-9, bytes / *std::min_element(reads.begin(), reads.end()) * 1e-9, error,
        ok);
  } else {
    const double pairs =
        static_cast<double>(queries) * (static_cast<double>(length - queries) + (static_cast<double>(queries) + 1) / 2);
    const double flops = pairs * kHeads * kDim * 4 * kLayers;
    fmt::print(
        "{{\"benchmark\":\"attention_prefill\",\"isa\":\"{}\",\"threads\":{},\"queries\":{},\"positions\":{},\"ms\":{:."
        "2f},"
        "\"best_ms\":{:.2f},\"best_core_ms\":{:.2f},\"gflop_per_s\":{:.1f},\"best_gflop_per_s\":{:.1f},\"error\":{:.1e}"
        ",\"correct\":{}}}\n",
        isa_name(isa), threads, queries, length, typical * 1e3, best * 1e3, core * 1e3, flops / typical * 1e-9,
        flops / best * 1e-9, error, ok);
  }
  return ok;
}

}  // namespace

// attention_bench [seconds per figure] [level] [threads...]
int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 1.0;
  const auto isa = argc > 2 ? isa_from_name(argv[2]) : std::optional(detect_isa());
  if (!isa || !isa_supported(*isa)) {
    fmt::print(stderr, "level {} is unknown or cannot run on this CPU\n", argv[2]);
    return 64;
  }
  std::vector<Cache> caches;
  for (int i = 0; i < 4; ++i) caches.emplace_back(2048);
  bool ok = true;
  for (const int threads : {1, 2}) {
    for (const std::int64_t length : {128, 512, 2048}) ok = measure(*isa, caches, 1, length, threads, budget) && ok;
    for (const std::int64_t queries : {128, 512}) ok = measure(*isa, caches, queries, queries, threads, budget) && ok;
  }
  return ok ? 0 : 1;
}
