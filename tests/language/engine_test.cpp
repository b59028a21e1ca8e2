// The engine on real assets: tiny random models written by the genuine wheel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "coreai/bundle/language_bundle.h"
#include "coreai/language/inference_engine.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kFixtures = fs::path(COREAI_FIXTURE_DIR) / "tiny_llm";

const Json& golden() {
  static const Json cases = [] {
    std::ifstream file(kFixtures / "golden.json");
    return Json::parse(file).at("cases");
  }();
  return cases;
}

SpecializationOptions options(Precision precision, int threads = 1) {
  SpecializationOptions made;
  made.precision = precision;
  made.threads = threads;
  made.use_cache = false;
  return made;
}

std::unique_ptr<SequentialEngine> make_engine(const std::string& variant, Precision precision,
                                              EngineConfiguration configuration = {}, int threads = 1) {
  const LanguageBundle bundle = LanguageBundle::open(kFixtures / variant);
  configuration.max_context_length = bundle.max_context_length();
  const AIModel model = AIModel::load(bundle.model_path(), options(precision, threads));
  return SequentialEngine::create(model.load_function(bundle.function("main")), configuration);
}

struct Answer {
  std::vector<TokenId> ids;
  std::vector<float> logits;  // of all steps
  std::optional<StopReason> reason;
};

Answer run(SequentialEngine& engine, const std::vector<TokenId>& prompt, std::int64_t count) {
  Generation generation = engine.generate(prompt, {.max_tokens = count, .include_logits = true});
  Answer answer;
  for (const GeneratedToken& token : generation) {
    answer.ids.push_back(token.token);
    answer.logits.insert(answer.logits.end(), token.logits.begin(), token.logits.end());
  }
  answer.reason = generation.stop_reason();
  return answer;
}

std::vector<TokenId> long_prompt(std::size_t count) {
  std::vector<TokenId> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<TokenId>((i * 37 + 11) % 500);
  return ids;
}

class TinyLlm : public testing::TestWithParam<std::tuple<std::string, Precision>> {};

TEST_P(TinyLlm, GivesTheGoldenTokens) {
  const auto& [variant, precision] = GetParam();
  const auto engine = make_engine(variant, precision);
  for (const Json& c : golden()) {
    const auto wanted = c.at("greedy_ids").get<std::vector<TokenId>>();
    const auto answer = run(*engine, c.at("prompt_ids").get<std::vector<TokenId>>(), std::ssize(wanted));
    EXPECT_EQ(answer.ids, wanted) << c.at("user");
  }
}

TEST_P(TinyLlm, GrowingTheCacheChangesNoBit) {
  const auto& [variant, precision] = GetParam();
  const auto engine = make_engine(variant, precision);
  const auto prompt = long_prompt(250);
  const Answer grown = run(*engine, prompt, 16);
  const Answer roomy = run(*make_engine(variant, precision, {.initial_capacity = 512}), prompt, 16);
  EXPECT_EQ(grown.ids, roomy.ids);
  EXPECT_EQ(grown.logits, roomy.logits);
  // Doubling from 3 positions, in the middle of the prompt too.
  const Answer often = run(*make_engine(variant, precision, {.initial_capacity = 3, .chunk_threshold = 7}), prompt, 16);
  EXPECT_EQ(often.logits, roomy.logits);
}

TEST_P(TinyLlm, ChunksOfThePromptChangeNoBit) {
  const auto& [variant, precision] = GetParam();
  const auto prompt = long_prompt(100);
  const Answer whole = run(*make_engine(variant, precision), prompt, 8);
  for (const EngineConfiguration& configuration :
       {EngineConfiguration{.chunk_threshold = 32}, EngineConfiguration{.chunk_threshold = 50, .chunk_size = 33},
        EngineConfiguration{.chunk_threshold = 1, .chunk_size = 1}}) {
    const Answer chunked = run(*make_engine(variant, precision, configuration), prompt, 8);
    EXPECT_EQ(chunked.ids, whole.ids);
    EXPECT_EQ(chunked.logits, whole.logits) << "chunks of " << configuration.chunk_size;
  }
}

TEST_P(TinyLlm, ThreadsChangeNoBit) {
  const auto& [variant, precision] = GetParam();
  const auto prompt = long_prompt(60);
  const Answer one = run(*make_engine(variant, precision, {}, 1), prompt, 8);
  const Answer two = run(*make_engine(variant, precision, {}, 2), prompt, 8);
  EXPECT_EQ(one.logits, two.logits);
}

TEST_P(TinyLlm, FillsTheContextAndStartsAgain) {
  const auto& [variant, precision] = GetParam();
  const auto engine = make_engine(variant, precision);
  EXPECT_EQ(engine->max_context_length(), 512);
  EXPECT_EQ(engine->vocab_size(), 512);
  EXPECT_TRUE(engine->supports_rewind());
  const Answer full = run(*engine, long_prompt(507), 100);
  EXPECT_EQ(full.ids.size(), 5u);
  EXPECT_EQ(full.reason, StopReason::kContextFull);
  EXPECT_THROW(engine->generate(long_prompt(513), {}), ContextLengthError);
  // Nothing of the long run is left in the cache.
  const Answer again = run(*engine, long_prompt(40), 6);
  EXPECT_EQ(again.logits, run(*make_engine(variant, precision), long_prompt(40), 6).logits);
}

TEST_P(TinyLlm, EvaluateEqualsGeneration) {
  const auto& [variant, precision] = GetParam();
  const auto engine = make_engine(variant, precision);
  const auto prompt = long_prompt(30);
  std::vector<float> rows;
  engine->evaluate(prompt, [&](std::int64_t, const NDArray& logits) {
    std::vector<float> piece(static_cast<std::size_t>(logits.element_count()));
    widen_logits(logits.dtype(), logits.bytes(), piece);
    rows.insert(rows.end(), piece.begin(), piece.end());
  });
  ASSERT_EQ(rows.size(), 30u * 512u);
  const Answer last = run(*engine, prompt, 1);
  EXPECT_TRUE(std::equal(last.logits.begin(), last.logits.end(), rows.end() - 512));
}

// A cache of fixed length: what the bundle declares of it decides what it is.
TEST(DeclaredStates, OfFixedLengthAreWhatTheBundleSays) {
  const LanguageBundle bundle =
      LanguageBundle::open(fs::path(COREAI_FIXTURE_DIR) / "genuine" / "qwen3_4bit_staticcache_b2");
  const auto function = AIModel::load(bundle.model_path(), options(Precision::kFaithful)).load_function("main");
  const auto engine = [&](std::vector<DeclaredState> states) {
    return SequentialEngine::create(function, {.max_context_length = 1000, .states = std::move(states)});
  };
  const auto capacity = function.descriptor().states.at(0).shape[3];
  for (const auto& states :
       {std::vector<DeclaredState>{}, {{"keyCache", StateKind::kKvCache}, {"valueCache", StateKind::kKvCache}}}) {
    const auto made = engine(states);
    EXPECT_TRUE(made->supports_rewind());
    EXPECT_EQ(made->max_context_length(), capacity);
  }
  const auto recurrent = engine({{"keyCache", StateKind::kFixed}, {"valueCache", StateKind::kSlidingCache}});
  EXPECT_FALSE(recurrent->supports_rewind());
  EXPECT_EQ(recurrent->max_context_length(), 1000);
}

INSTANTIATE_TEST_SUITE_P(All, TinyLlm,
                         testing::Combine(testing::Values("f32", "q4", "f32_composites"),
                                          testing::Values(Precision::kStrict, Precision::kFaithful)),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  std::string(precision_name(std::get<1>(instance.param)));
                         });

}  // namespace
}  // namespace coreai
