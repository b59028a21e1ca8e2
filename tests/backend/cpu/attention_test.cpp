#include "backend/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "coreai/base/float_types.h"
#include "kernel_test_support.h"

namespace coreai::cpu {
namespace {

using testing::Random;

struct Problem {
  std::int64_t queries = 1, heads = 1, kv_heads = 1, head_dim = 64, value_dim = 64, length = 1;
  bool causal = true;
  std::int64_t window = 0;
  bool sinks = false, mask = false;
  DType dtype = DType::kF16;
  std::string text() const {
    return "q=" + std::to_string(queries) + " heads=" + std::to_string(heads) + "/" + std::to_string(kv_heads) +
           " dims=" + std::to_string(head_dim) + "," + std::to_string(value_dim) + " s=" + std::to_string(length) +
           " window=" + std::to_string(window) + (causal ? " causal" : "") + (sinks ? " sinks" : "") +
           (mask ? " mask" : "") + " " + std::string(dtype_name(dtype));
  }
};

float rounded(DType dtype, float x) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(x));
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(x));
  return x;
}

// Inputs of a problem, in arrays and in buffers that also hold rows behind `length` and another layer.
struct Data {
  Problem p;
  std::vector<float> q, k, v, sinks, mask;
  KvBuffer keys, values;

  explicit Data(const Problem& problem) : p(problem) {
    Random random(static_cast<std::uint64_t>(p.length * 131 + p.head_dim));
    const auto count = [](auto... extents) { return static_cast<std::size_t>((extents * ...)); };
    q = random.values(count(p.queries, p.heads, p.head_dim), -2.0f, 2.0f);
    k = random.values(count(p.length, p.kv_heads, p.head_dim), -1.0f, 1.0f);
    v = random.values(count(p.length, p.kv_heads, p.value_dim), -1.0f, 1.0f);
    for (float& x : k) x = rounded(p.dtype, x);
    for (float& x : v) x = rounded(p.dtype, x);
    sinks = random.values(static_cast<std::size_t>(p.heads), -1.0f, 2.0f);
    mask = random.values(count(p.heads, p.queries, p.length), -3.0f, 0.5f);
    for (std::size_t i = 0; i < mask.size(); i += 7) mask[i] = -std::numeric_limits<float>::infinity();
    const std::int64_t positions = p.length + 40;
    keys = KvBuffer(KvRole::kKey, p.dtype, {2, p.kv_heads, p.head_dim}, positions);
    values = KvBuffer(KvRole::kValue, p.dtype, {2, p.kv_heads, p.value_dim}, positions);
    const std::vector<float> junk(512, std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t h = 0; h < p.kv_heads; ++h) {
      keys.store_rows(1, h, 0, p.length, k.data() + h * p.head_dim, p.kv_heads * p.head_dim);
      values.store_rows(1, h, 0, p.length, v.data() + h * p.value_dim, p.kv_heads * p.value_dim);
      keys.store_rows(1, h, p.length, 40, junk.data(), 0);
      values.store_rows(1, h, p.length, 40, junk.data(), 0);
    }
  }

  AttentionArgs args(std::vector<float>& out) const {
    AttentionArgs a;
    a.q = q.data();
    a.q_row_stride = p.heads * p.head_dim;
    a.q_head_stride = p.head_dim;
    out.assign(static_cast<std::size_t>(p.queries * p.heads * p.value_dim), -7.0f);
    a.out = out.data();
    a.out_row_stride = p.heads * p.value_dim;
    a.out_head_stride = p.value_dim;
    a.keys = &keys;
    a.values = &values;
    a.layer = 1;
    a.queries = p.queries;
    a.heads = p.heads;
    a.kv_heads = p.kv_heads;
    a.head_dim = p.head_dim;
    a.value_dim = p.value_dim;
    a.length = p.length;
    a.scale = 0.3f;
    a.causal = p.causal;
    a.window = p.window;
    a.sinks = p.sinks ? sinks.data() : nullptr;
    a.mask = p.mask ? mask.data() : nullptr;
    a.mask_row_stride = p.length;
    a.mask_head_stride = p.queries * p.length;
    return a;
  }

  std::vector<double> reference() const {
    std::vector<double> out;
    for (std::int64_t i = 0; i < p.queries; ++i) {
      for (std::int64_t h = 0; h < p.heads; ++h) row(i, h, out);
    }
    return out;
  }

 private:
  void row(std::int64_t i, std::int64_t h, std::vector<double>& out) const {
    const std::int64_t g = h / (p.heads / p.kv_heads);
    std::vector<double> score(static_cast<std::size_t>(p.length), -INFINITY);
    double top = p.sinks ? static_cast<double>(sinks[static_cast<std::size_t>(h)]) : -INFINITY;
    for (std::int64_t j = 0; j < p.length; ++j) {
      const std::int64_t at = i + p.length - p.queries;
      if ((p.causal && j > at) || (p.window > 0 && j <= at - p.window)) continue;
      double s = 0;
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        s += static_cast<double>(q[static_cast<std::size_t>((i * p.heads + h) * p.head_dim + d)]) *
             static_cast<double>(k[static_cast<std::size_t>((j * p.kv_heads + g) * p.head_dim + d)]);
      }
      s *= static_cast<double>(0.3f);
      if (p.mask) s += static_cast<double>(mask[static_cast<std::size_t>((h * p.queries + i) * p.length + j)]);
      score[static_cast<std::size_t>(j)] = s;
      top = std::max(top, s);
    }
    double total = p.sinks ? std::exp(static_cast<double>(sinks[static_cast<std::size_t>(h)]) - top) : 0.0;
    std::vector<double> sum(static_cast<std::size_t>(p.value_dim), 0.0);
    for (std::int64_t j = 0; j < p.length && top > -INFINITY; ++j) {
      const double w = std::exp(score[static_cast<std::size_t>(j)] - top);
      total += w;
      for (std::int64_t d = 0; d < p.value_dim; ++d) {
        sum[static_cast<std::size_t>(d)] +=
            w * static_cast<double>(v[static_cast<std::size_t>((j * p.kv_heads + g) * p.value_dim + d)]);
      }
    }
    for (const double s : sum) out.push_back(total > 0 ? s / total : 0.0);
  }
};

struct Aligned {
  explicit Aligned(std::size_t bytes)
      : data(static_cast<std::byte*>(::operator new(bytes + 64, std::align_val_t{64}))) {}
  ~Aligned() { ::operator delete(data, std::align_val_t{64}); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* data;
};

void run(Isa isa, const AttentionArgs& args, int threads) {
  const AttentionPlan plan = plan_attention(args, threads);
  const Aligned workspace(attention_workspace_bytes(plan));
  std::memset(workspace.data, 0xff, attention_workspace_bytes(plan));  // NaN
  run_attention(isa, args, plan, workspace.data);
}

std::vector<Problem> problems() {
  std::vector<Problem> out;
  const auto add = [&](Problem p) { out.push_back(p); };
  for (const std::int64_t s : {1, 31, 32, 33, 255, 256, 257, 700}) {
    add({.heads = 3, .kv_heads = 1, .length = s});
  }
  for (const std::int64_t dim : {8, 16, 24, 33, 80, 128, 256}) {
    add({.queries = 5, .heads = 4, .kv_heads = 2, .head_dim = dim, .value_dim = dim, .length = 300});
    add({.queries = 1,
         .heads = 4,
         .kv_heads = 2,
         .head_dim = dim,
         .value_dim = dim,
         .length = 290,
         .dtype = DType::kBF16});
  }
  for (const std::int64_t group : {1, 2, 5, 6, 7, 8, 73}) {
    add({.queries = 2, .heads = 2 * group, .kv_heads = 2, .head_dim = 16, .value_dim = 32, .length = 270});
  }
  for (const std::int64_t q : {37, 150, 300}) {
    add({.queries = q, .heads = 6, .kv_heads = 2, .length = 300, .dtype = DType::kF32});
  }
  add({.queries = 60, .heads = 2, .kv_heads = 1, .head_dim = 32, .value_dim = 32, .length = 600, .window = 100});
  add({.queries = 1, .heads = 2, .kv_heads = 1, .head_dim = 32, .value_dim = 32, .length = 900, .window = 300});
  add({.queries = 1, .heads = 2, .kv_heads = 1, .head_dim = 32, .value_dim = 32, .length = 600, .window = 1});
  add({.queries = 40, .heads = 4, .kv_heads = 2, .length = 300, .sinks = true});
  add({.queries = 1, .heads = 4, .kv_heads = 2, .length = 600, .window = 128, .sinks = true});
  add({.queries = 33, .heads = 4, .kv_heads = 2, .length = 299, .causal = false});
  add({.queries = 33, .heads = 4, .kv_heads = 2, .length = 299, .causal = false, .mask = true});
  add({.queries = 7, .heads = 4, .kv_heads = 2, .length = 299, .sinks = true, .mask = true});
  add({.queries = 40, .heads = 2, .kv_heads = 1, .length = 25});  // the first 15 rows see nothing
  add({.queries = 2, .heads = 2, .kv_heads = 1, .length = 0});
  add({.queries = 2, .heads = 2, .kv_heads = 1, .head_dim = 512, .value_dim = 512, .length = 70});
  return out;
}

TEST(Attention, MatchesAPlainDoubleLoopOnEveryLevelWithTheSameBits) {
  for (const Problem& problem : problems()) {
    SCOPED_TRACE(problem.text());
    const Data data(problem);
    const std::vector<double> want = data.reference();
    std::vector<float> first;
    for (const Isa isa : testing::levels()) {
      SCOPED_TRACE(isa_name(isa));
      for (const int threads : {1, 2, 16}) {
        std::vector<float> out;
        run(isa, data.args(out), threads);
        double worst = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
          worst = std::max(worst, std::fabs(static_cast<double>(out[i]) - want[i]));
        }
        ASSERT_LT(worst, 2e-6);
        if (first.empty()) first = out;
        ASSERT_TRUE(testing::same_bits(out, first)) << threads;
      }
    }
  }
}

TEST(Attention, GivesARowTheSameBitsWhateverItIsComputedWith) {
  const Isa isa = detect_isa();
  for (const Problem& problem : problems()) {
    if (!problem.causal || problem.mask || problem.queries < 2) continue;
    SCOPED_TRACE(problem.text());
    const Data data(problem);
    std::vector<float> whole;
    run(isa, data.args(whole), 2);
    for (const std::int64_t step : {1, 3, 50}) {
      std::vector<float> pieces;
      const AttentionArgs all = data.args(pieces);
      for (std::int64_t i = 0; i < problem.queries; i += step) {
        AttentionArgs args = all;
        args.queries = std::min(step, problem.queries - i);
        args.length = std::max<std::int64_t>(0, problem.length - problem.queries + i + args.queries);
        args.q += i * args.q_row_stride;
        args.out += i * args.out_row_stride;
        run(isa, args, 1 + static_cast<int>(i % 3) * 4);
      }
      ASSERT_TRUE(testing::same_bits(pieces, whole)) << step;
    }
  }
}

TEST(Attention, ReadsStridedArraysWithTheSameBits) {
  for (const Problem& problem : problems()) {
    SCOPED_TRACE(problem.text());
    const Data data(problem);
    std::vector<float> from_cache, from_arrays;
    run(detect_isa(), data.args(from_cache), 2);
    AttentionArgs args = data.args(from_arrays);
    args.keys = args.values = nullptr;
    args.strided = {data.k.data(), problem.kv_heads * problem.head_dim,  problem.head_dim,
                    data.v.data(), problem.kv_heads * problem.value_dim, problem.value_dim};
    run(detect_isa(), args, 2);
    ASSERT_TRUE(testing::same_bits(from_cache, from_arrays));
  }
}

TEST(Attention, LateInfinitiesDoNotReachEarlierRows) {
  Problem problem{.queries = 64, .heads = 3, .kv_heads = 1, .length = 64, .dtype = DType::kF32};
  Data data(problem);
  std::vector<float> clean, spoilt;
  run(detect_isa(), data.args(clean), 1);
  std::vector<float> row(64, std::numeric_limits<float>::infinity());
  data.values.store_rows(1, 0, 40, 1, row.data(), 0);
  row.assign(64, std::numeric_limits<float>::quiet_NaN());
  data.keys.store_rows(1, 0, 41, 1, row.data(), 0);
  run(detect_isa(), data.args(spoilt), 1);
  const std::size_t rows = 40 * 3 * 64;
  EXPECT_TRUE(testing::same_bits(std::span(clean).first(rows), std::span(spoilt).first(rows)));
  EXPECT_FALSE(std::isfinite(spoilt[rows]));
  EXPECT_TRUE(std::isnan(spoilt[rows + 3 * 64]));
}

}  // namespace
}  // namespace coreai::cpu
