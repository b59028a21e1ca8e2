// Products by experts against a double loop over the dense matrices, and bit for bit against themselves row by row.
#include "backend/cpu/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "coreai/base/error.h"
#include "linear_test_support.h"

namespace coreai::cpu {
namespace {

using test::AlignedBytes;
using test::Weight;
using test::WeightSpec;

struct Form {
  std::string name;
  WeightSpec weight;  // of all experts, one after the other; n of one expert
  double tolerance = 0;
};

class Experts : public testing::TestWithParam<Form> {
 protected:
  static constexpr std::int64_t kExperts = 5;

  // All experts' rows; when gated twice as many.
  Experts() {
    WeightSpec spec = GetParam().weight;
    n_ = spec.n;
    k_ = spec.k;
    spec.n *= 2 * kExperts;
    weight_ = std::make_unique<Weight>(spec, 7);
    dense_ = weight_->dense();
  }

  PackedMatrix pack(bool gated) {
    std::vector<MatrixSource> sources(static_cast<std::size_t>(gated ? 2 * kExperts : kExperts), weight_->source());
    for (std::size_t e = 0; e < sources.size(); ++e) {
      sources[e].row_begin = static_cast<std::int64_t>(e) * n_;
      sources[e].row_end = sources[e].row_begin + n_;
    }
    const PackPlan plan(std::move(sources), {gated, true});
    bytes_ = std::make_unique<AlignedBytes>(plan.size());
    coreai::cpu::pack(plan, bytes_->data());
    return PackedMatrix::view(bytes_->span(), "test");
  }

  ExpertArgs args(const PackedMatrix& weights, Isa isa) const {
    ExpertArgs a;
    a.weights = &weights;
    a.experts = kExperts;
    a.outputs = n_;
    a.activation = weights.gate_up() ? Activation::kSilu : Activation::kIdentity;
    a.isa = isa;
    return a;
  }

  // y of rows that are named by `indices`.
  std::vector<float> run(ExpertArgs a, const std::vector<std::int32_t>& indices, const float* x, int threads) const {
    a.rows = static_cast<std::int64_t>(indices.size());
    a.indices = reinterpret_cast<const std::byte*>(indices.data());
    a.x = x;
    a.x_stride = k_;
    std::vector<float> y(indices.size() * static_cast<std::size_t>(n_), -99.0f);
    a.y = y.data();
    a.y_stride = n_;
    ExpertProduct product;
    product.bind(a, threads);
    const AlignedBytes sorted(product.gathered_bytes()), scratch(product.scratch_bytes());
    product.set_gathered(sorted.data());
    product.route();
    for (int c = product.gather_chunks(); c-- > 0;) product.gather(c);
    for (int c = product.chunks(); c-- > 0;) product.compute(c, scratch.data());
    return y;
  }

  std::vector<double> wanted(const std::vector<std::int32_t>& indices, const float* x, std::int64_t choices,
                             bool gated) const {
    const auto product = [&](std::int64_t matrix_row, std::int64_t x_row) {
      double sum = 0;
      for (std::int64_t c = 0; c < k_; ++c)
        sum += static_cast<double>(dense_[static_cast<std::size_t>(matrix_row * k_ + c)]) *
               static_cast<double>(x[x_row * k_ + c]);
      return sum;
    };
    std::vector<double> y;
    for (std::size_t r = 0; r < indices.size(); ++r) {
      const std::int64_t e = indices[r] < 0 ? indices[r] + kExperts : indices[r];
      for (std::int64_t j = 0; j < n_; ++j) {
        const std::int64_t x_row = static_cast<std::int64_t>(r) / choices;
        const double gate = product(e * n_ + j, x_row);
        y.push_back(gated ? gate / (1 + std::exp(-gate)) * product((kExperts + e) * n_ + j, x_row) : gate);
      }
    }
    return y;
  }

  std::vector<float> random_rows(std::int64_t rows) const {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(rows * k_));
    for (float& v : x) v = normal(random);
    return x;
  }

  std::int64_t n_ = 0, k_ = 0;
  std::unique_ptr<Weight> weight_;
  std::vector<float> dense_;
  std::unique_ptr<AlignedBytes> bytes_;
};

std::vector<Isa> levels() {
  std::vector<Isa> all{Isa::kPortable};
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (isa_supported(isa)) all.push_back(isa);
  }
  return all;
}

TEST_P(Experts, EveryRowIsMultipliedByItsMatrix) {
  // One expert has many rows, one has one, one has none.
  std::vector<std::int32_t> indices(2 * 75, 2);
  indices[3] = 4, indices[7] = -5, indices[8] = -2, indices[149] = 0;
  const auto x = random_rows(150);
  for (const bool gated : {false, true}) {
    const PackedMatrix weights = pack(gated);
    for (const Isa isa : levels()) {
      for (const std::int64_t choices : {1, 2}) {
        ExpertArgs a = args(weights, isa);
        a.choices = choices;
        const auto got = run(a, indices, x.data(), 2);
        const auto right = wanted(indices, x.data(), choices, gated);
        double worst = 0, largest = 0;
        for (std::size_t i = 0; i < right.size(); ++i) {
          worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - right[i]));
          largest = std::max(largest, std::fabs(right[i]));
        }
        EXPECT_LE(worst, GetParam().tolerance * largest) << gated << " " << choices;
      }
    }
  }
}

TEST_P(Experts, RowsAndThreadsChangeNoBit) {
  std::vector<std::int32_t> indices;
  for (int i = 0; i < 90; ++i) indices.push_back(i * i % 7 % 5);
  const auto x = random_rows(90);
  const PackedMatrix weights = pack(false);
  for (const Isa isa : levels()) {
    const ExpertArgs a = args(weights, isa);
    const auto all = run(a, indices, x.data(), 1);
    EXPECT_EQ(all, run(a, indices, x.data(), 3));
    for (std::size_t r = 0; r < indices.size(); r += 11) {
      const auto one = run(a, {indices[r]}, x.data() + r * static_cast<std::size_t>(k_), 2);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(r) * n_)) << r;
    }
  }
}

TEST_P(Experts, AnIndexOutsideIsRefusedWithItsValue) {
  const PackedMatrix weights = pack(false);
  const auto x = random_rows(2);
  for (const std::int32_t index : {5, -6, INT32_MAX, INT32_MIN}) {
    try {
      run(args(weights, Isa::kPortable), {1, index}, x.data(), 2);
      ADD_FAILURE() << index;
    } catch (const InvalidArgumentError& e) {
      EXPECT_NE(std::string(e.what()).find(std::to_string(index)), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("gather_mm"), std::string::npos) << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Weights, Experts,
    testing::Values(Form{"f32", {.dtype = DType::kF32, .n = 64, .k = 130}, 1e-5},
                    Form{"f32_odd", {.dtype = DType::kF32, .n = 45, .k = 33}, 1e-5},
                    Form{"f16", {.dtype = DType::kF16, .n = 96, .k = 64}, 1e-5},
                    Form{"bf16", {.dtype = DType::kBF16, .n = 40, .k = 64}, 1e-5},
                    Form{"si4", {.dtype = DType::kSI4, .n = 64, .k = 96, .block = 32, .scale = DType::kF16}, 2e-4},
                    Form{"ui4_odd", {.dtype = DType::kUI4, .n = 41, .k = 96, .block = 32, .offset1 = true}, 2e-4},
                    Form{"si8", {.dtype = DType::kSI8, .n = 35, .k = 64, .block = 64}, 2e-4}),
    [](const auto& form) { return form.param.name; });

}  // namespace
}  // namespace coreai::cpu
