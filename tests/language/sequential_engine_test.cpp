#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <thread>

#include "fake_decoder.h"

namespace coreai {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::FakeCall;
using testing_support::FakeDecoder;

class Engine : public testing::Test {
 protected:
  void make(std::int64_t positions, const EngineConfiguration& change = {}) {
    auto decoder = std::make_unique<FakeDecoder>(kVocab, positions);
    fake_ = decoder.get();
    EngineConfiguration configuration = change;
    configuration.max_context_length = positions;
    engine_ = std::make_unique<SequentialEngine>(std::move(decoder), configuration);
  }
  static std::vector<TokenId> prompt(std::size_t n) {
    std::vector<TokenId> ids(n);
    for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<TokenId>((i * 7 + 3) % kVocab);
    return ids;
  }
  static std::vector<TokenId> expected(std::vector<TokenId> history, std::size_t n) {
    std::vector<TokenId> out;
    while (out.size() < n) {
      out.push_back(FakeDecoder::next_token(history, kVocab));
      history.push_back(out.back());
    }
    return out;
  }
  static std::vector<TokenId> drain(Generation& generation) {
    std::vector<TokenId> ids;
    for (const GeneratedToken& t : generation) ids.push_back(t.token);
    return ids;
  }

  static constexpr std::int64_t kVocab = 97;
  FakeDecoder* fake_ = nullptr;
  std::unique_ptr<SequentialEngine> engine_;
};

TEST_F(Engine, GeneratesOneTokenPerPullFromTheLastRowOnly) {
  make(64);
  Generation generation = engine_->generate(prompt(5), {.max_tokens = 4});
  EXPECT_TRUE(engine_->is_busy());
  EXPECT_THAT(fake_->calls, ElementsAre());
  EXPECT_FALSE(generation.stop_reason());
  EXPECT_EQ(drain(generation), expected(prompt(5), 4));
  EXPECT_THAT(fake_->calls, ElementsAre(FakeCall{0, 5, 1}, FakeCall{5, 1, 1}, FakeCall{6, 1, 1}, FakeCall{7, 1, 1}));
  EXPECT_EQ(generation.stop_reason(), StopReason::kMaxTokens);
  EXPECT_FALSE(engine_->is_busy());
  EXPECT_EQ(engine_->processed_token_count(), 8);
  EXPECT_EQ(generation.statistics().prompt_tokens, 5);
  EXPECT_EQ(generation.statistics().generated_tokens, 4);
  EXPECT_FALSE(generation.next());
}

TEST_F(Engine, AnyDeclaredEndTokenStopsAndIsGivenOut) {
  make(64);
  const auto answer = expected(prompt(5), 6);
  Generation generation = engine_->generate(prompt(5), {.end_tokens = {-1, answer[2], answer[4]}});
  EXPECT_THAT(drain(generation), ElementsAre(answer[0], answer[1], answer[2]));
  EXPECT_EQ(generation.stop_reason(), StopReason::kEndToken);
}

TEST_F(Engine, LongPromptsGoInChunks) {
  make(4096);
  Generation whole = engine_->generate(prompt(1024), {.max_tokens = 1});
  drain(whole);
  EXPECT_THAT(fake_->calls, ElementsAre(FakeCall{0, 1024, 1}));
  fake_->calls.clear();
  Generation chunked = engine_->generate(prompt(1300), {.max_tokens = 3});
  EXPECT_EQ(drain(chunked), expected(prompt(1300), 3));
  EXPECT_THAT(fake_->calls, ElementsAre(FakeCall{0, 512, 0}, FakeCall{512, 512, 0}, FakeCall{1024, 276, 1},
                                        FakeCall{1300, 1, 1}, FakeCall{1301, 1, 1}));
}

TEST_F(Engine, ChunkThresholdComesFromTheEnvironment) {
  ::setenv("COREAI_CHUNK_THRESHOLD", "8", 1);
  make(64);
  ::unsetenv("COREAI_CHUNK_THRESHOLD");
  Generation generation = engine_->generate(prompt(16), {.max_tokens = 1});
  drain(generation);
  EXPECT_THAT(fake_->calls, ElementsAre(FakeCall{0, 8, 0}, FakeCall{8, 8, 1}));
  ::setenv("COREAI_CHUNK_THRESHOLD", "many", 1);
  EXPECT_EQ((EngineConfiguration{.max_context_length = 9}.resolved().chunk_threshold), 1024);
  ::unsetenv("COREAI_CHUNK_THRESHOLD");
}

TEST_F(Engine, APromptLongerThanTheContextIsRefusedBeforeAnyWork) {
  make(64);
  try {
    engine_->generate(prompt(70), {});
    FAIL() << "accepted";
  } catch (const ContextLengthError& e) {
    EXPECT_EQ(e.requested(), 70);
    EXPECT_EQ(e.capacity(), 64);
    EXPECT_THAT(e.what(), HasSubstr("70"));
    EXPECT_THAT(e.what(), HasSubstr("64"));
    EXPECT_THAT(e.next_step(), HasSubstr("Shorten the prompt"));
  }
  EXPECT_TRUE(fake_->calls.empty());
}

TEST_F(Engine, TheContextFillsUp) {
  make(64);
  Generation full = engine_->generate(prompt(64), {});
  EXPECT_TRUE(drain(full).empty());
  EXPECT_EQ(full.stop_reason(), StopReason::kContextFull);
  Generation nearly = engine_->generate(prompt(60), {.max_tokens = 10});
  EXPECT_EQ(drain(nearly), expected(prompt(60), 4));
  EXPECT_EQ(nearly.stop_reason(), StopReason::kContextFull);
  Generation exact = engine_->generate(prompt(60), {.max_tokens = 4});
  EXPECT_EQ(drain(exact).size(), 4u);
  EXPECT_EQ(exact.stop_reason(), StopReason::kMaxTokens);
  Generation none = engine_->generate(prompt(6), {.max_tokens = 0});
  EXPECT_TRUE(drain(none).empty());
  EXPECT_EQ(none.stop_reason(), StopReason::kMaxTokens);
}

TEST_F(Engine, BadArgumentsAreNamed) {
  make(64);
  EXPECT_THROW(engine_->generate({}, {}), InvalidArgumentError);
  EXPECT_THROW(engine_->generate(std::vector<TokenId>{1, 97}, {}), InvalidArgumentError);
  EXPECT_THROW(engine_->generate(std::vector<TokenId>{-1}, {}), InvalidArgumentError);
  EXPECT_THROW(engine_->generate(prompt(3), {.max_tokens = -1}), InvalidArgumentError);
  EXPECT_THROW(engine_->generate(prompt(3), {.sampling = {.temperature = -1.0F}}), InvalidArgumentError);
  EXPECT_THROW(EngineConfiguration{}.resolved(), InvalidArgumentError);
}

TEST_F(Engine, CancellingEndsTheStream) {
  make(64);
  std::stop_source source;
  Generation generation = engine_->generate(prompt(3), {.stop = source.get_token()});
  ASSERT_TRUE(generation.next());
  source.request_stop();
  EXPECT_FALSE(generation.next());
  EXPECT_EQ(generation.stop_reason(), StopReason::kCancelled);
  EXPECT_FALSE(engine_->is_busy());

  Generation second = engine_->generate(prompt(3), {});
  ASSERT_TRUE(second.next());
  std::thread([&] { engine_->cancel(); }).join();
  EXPECT_FALSE(second.next());
  EXPECT_EQ(second.stop_reason(), StopReason::kCancelled);
  engine_->cancel();
}

TEST_F(Engine, CancellingStopsBetweenChunksOfThePrompt) {
  make(4096);
  std::stop_source source;
  fake_->on_forward = [&] {
    if (fake_->calls.size() == 2) source.request_stop();
  };
  Generation generation = engine_->generate(prompt(3000), {.stop = source.get_token()});
  EXPECT_FALSE(generation.next());
  EXPECT_EQ(generation.stop_reason(), StopReason::kCancelled);
  EXPECT_EQ(fake_->calls.size(), 2u);
  EXPECT_EQ(engine_->processed_token_count(), 1024);
}

TEST_F(Engine, ANewPromptEndsTheOpenRun) {
  make(64);
  Generation first = engine_->generate(prompt(3), {});
  ASSERT_TRUE(first.next());
  Generation second = engine_->generate(prompt(4), {.max_tokens = 2});
  EXPECT_FALSE(first.next());
  EXPECT_EQ(first.stop_reason(), StopReason::kCancelled);
  EXPECT_EQ(drain(second), expected(prompt(4), 2));
  {
    Generation dropped = engine_->generate(prompt(4), {});
    ASSERT_TRUE(dropped.next());
  }
  EXPECT_FALSE(engine_->is_busy());
}

TEST_F(Engine, TheStreamOutlivesTheEngine) {
  make(64);
  Generation generation = engine_->generate(prompt(3), {.max_tokens = 3});
  engine_.reset();
  EXPECT_EQ(drain(generation), expected(prompt(3), 3));
}

TEST_F(Engine, ResetKeepsAPrefix) {
  make(64);
  Generation generation = engine_->generate(prompt(6), {.max_tokens = 3});
  drain(generation);
  EXPECT_EQ(engine_->processed_token_count(), 8);
  EXPECT_THROW(engine_->reset(9), InvalidArgumentError);
  EXPECT_THROW(engine_->reset(-1), InvalidArgumentError);
  engine_->reset(4);
  EXPECT_EQ(engine_->processed_token_count(), 4);
  fake_->rewindable = false;
  EXPECT_THROW(engine_->reset(2), UnsupportedError);
  const int clears = fake_->clears;
  engine_->reset();
  EXPECT_EQ(engine_->processed_token_count(), 0);
  EXPECT_EQ(fake_->clears, clears + 1);
}

TEST_F(Engine, LogitsComeWithTheTokenWhenAskedFor) {
  make(64);
  Generation generation = engine_->generate(prompt(3), {.max_tokens = 2, .include_logits = true});
  for (const GeneratedToken& t : generation) {
    ASSERT_EQ(t.logits.size(), static_cast<std::size_t>(kVocab));
    EXPECT_EQ(t.logits[static_cast<std::size_t>(t.token)], 5.0F);
  }
  Generation without = engine_->generate(prompt(3), {.max_tokens = 1});
  EXPECT_TRUE(without.next()->logits.empty());
}

TEST_F(Engine, BadLogitsEndTheRunWithAnError) {
  make(64);
  fake_->poison = true;
  Generation generation = engine_->generate(prompt(3), {});
  EXPECT_THROW(generation.next(), InvalidArgumentError);
  EXPECT_FALSE(generation.next());
  EXPECT_FALSE(generation.stop_reason());
  EXPECT_FALSE(engine_->is_busy());
}

TEST_F(Engine, EvaluateGivesEveryRow) {
  make(4096);
  std::vector<TokenId> best;
  engine_->evaluate(prompt(1200), [&](std::int64_t first, const NDArray& logits) {
    EXPECT_EQ(first, static_cast<std::int64_t>(best.size()));
    const auto values = logits.values<float>();
    for (std::size_t row = 0; row * kVocab < values.size(); ++row) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * kVocab);
      best.push_back(static_cast<TokenId>(std::max_element(begin, begin + kVocab) - begin));
    }
  });
  ASSERT_EQ(best.size(), 1200u);
  for (std::size_t n : {1u, 511u, 512u, 513u, 1200u})
    EXPECT_EQ(best[n - 1], FakeDecoder::next_token(prompt(n), kVocab));
  EXPECT_EQ(fake_->calls.front(), (FakeCall{0, 512, 512}));
}

}  // namespace
}  // namespace coreai
