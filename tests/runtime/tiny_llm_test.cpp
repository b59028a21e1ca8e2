// The small language model of tests/fixtures against an independent forward pass in NumPy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/base/npy.h"
#include "coreai/runtime/ai_model.h"
#include "runtime/sequence.h"

namespace coreai {
namespace {

using testing_support::Sequence;

const std::filesystem::path kFolder = std::filesystem::path(COREAI_FIXTURE_DIR) / "tiny_llm";

struct Form {
  std::string name, asset;
  double tolerance;
};

class TinyLlm : public testing::TestWithParam<Form> {
 protected:
  static InferenceFunction function() {
    SpecializationOptions options;
    options.precision = Precision::kStrict;
    options.use_cache = false;
    return AIModel::load(kFolder / GetParam().name / GetParam().asset, options).load_function();
  }
};

nlohmann::json golden() {
  return nlohmann::json::parse(read_text_file(kFolder / "golden.json"));
}

double worst(const std::vector<float>& got, const NDArray& want) {
  std::vector<double> values(static_cast<std::size_t>(want.element_count()));
  read_as_f64(want, values);
  if (got.size() != values.size()) return INFINITY;
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(got[i]) - values[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return error;
}

TEST_P(TinyLlm, LogitsFollowTheIndependentForwardPass) {
  const nlohmann::json first = golden()["cases"][0];
  Sequence sequence(function());
  const auto prompt = first["prompt_ids"].get<std::vector<std::int32_t>>();
  const auto greedy = first["greedy_ids"].get<std::vector<std::int32_t>>();
  const double prefill = worst(sequence.step(prompt), read_npy(kFolder / "logits_numpy_f32_prefill.npy"));
  std::vector<float> decoded;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::vector<float> row = sequence.step({greedy[i]});
    decoded.insert(decoded.end(), row.begin(), row.end());
  }
  const double decode = worst(decoded, read_npy(kFolder / "logits_numpy_f32_decode4.npy"));
  RecordProperty("prefill_error", std::to_string(prefill));
  RecordProperty("decode_error", std::to_string(decode));
  EXPECT_LE(prefill, GetParam().tolerance);
  EXPECT_LE(decode, GetParam().tolerance);
}

TEST_P(TinyLlm, GreedyTokensAreTheGoldenOnes) {
  if (GetParam().name == "f16") GTEST_SKIP() << "f16 rounding may turn a close choice";
  const InferenceFunction decoder = function();
  const nlohmann::json all = golden();
  ASSERT_EQ(all["cases"].size(), 5u);
  for (const nlohmann::json& item : all["cases"]) {
    Sequence sequence(decoder, 256);
    std::vector<std::int32_t> tokens = item["prompt_ids"].get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> got;
    const auto want = item["greedy_ids"].get<std::vector<std::int32_t>>();
    while (got.size() < want.size()) {
      const std::vector<float> logits = sequence.step(tokens, 1);
      ASSERT_EQ(logits.size(), 512u);
      got.push_back(static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      tokens = {got.back()};
    }
    EXPECT_EQ(got, want) << item["user"];
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TinyLlm,
                         testing::Values(Form{"f32", "tiny-llama-random-f32.aimodel", 1e-3},
                                         Form{"q4", "tiny-llama-random-q4.aimodel", 1e-3},
                                         Form{"f32_composites", "tiny-llama-random-f32.aimodel", 1e-3},
                                         Form{"f16", "tiny-llama-random-f16.aimodel", 0.45}),
                         [](const auto& form) { return form.param.name; });

}  // namespace
}  // namespace coreai
