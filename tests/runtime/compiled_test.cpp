// The compiled executor against itself under other shapes, threads and passes, and against the reference executor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>

#include "coreai/base/error.h"
#include "coreai/compiler/compiler.h"
#include "runtime/sequence.h"

namespace {
thread_local bool counting = false;
thread_local long allocations = 0;
}  // namespace

// Counts what a decode step allocates on the calling thread; every form of new ends here.
void* operator new(std::size_t size) {
  if (counting) ++allocations;
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  if (counting) ++allocations;
  const auto a = static_cast<std::size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (size + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  if (counting) ++allocations;
  return std::malloc(size ? size : 1);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace coreai {
namespace {

using testing_support::distance;
using testing_support::largest;
using testing_support::Sequence;

InferenceFunction load(const std::string& below, Precision precision, int threads = 1,
                       std::vector<std::string> disabled = {}) {
  SpecializationOptions options;
  options.precision = precision;
  options.threads = threads;
  options.use_cache = false;
  options.disabled_passes = std::move(disabled);
  return AIModel::load(testing_support::fixture(below), options).load_function();
}

std::vector<std::int32_t> tokens(int count, int seed = 3) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((17 * i + seed) % 300);
  return ids;
}

std::vector<float> run_in_pieces(const InferenceFunction& function, const std::vector<int>& pieces) {
  Sequence sequence(function);
  std::vector<float> all;
  const auto ids = tokens(64);
  int at = 0;
  for (int piece : pieces) {
    const auto part = sequence.step({ids.begin() + at, ids.begin() + at + piece});
    all.insert(all.end(), part.begin(), part.end());
    at += piece;
  }
  return all;
}

// Rounding of the file's own dtype against f32 between steps, as a share of the largest logit (docs/precision.md).
float tolerance(const std::string& below, float scale) {
  if (below.find("bf16") != std::string::npos) return 0.12f * scale;
  if (below.find("f32") != std::string::npos) return 1e-5f * scale;
  return 2e-2f * scale;
}

class Compiled : public testing::TestWithParam<std::string> {};

TEST_P(Compiled, IsPlannedAndAgreesWithTheReference) {
  const InferenceFunction faithful = load(GetParam(), Precision::kFaithful);
  EXPECT_EQ(faithful.execution_kind(), "compiled");
  const auto reference = run_in_pieces(load(GetParam(), Precision::kStrict), {5, 1, 1, 4});
  const auto got = run_in_pieces(faithful, {5, 1, 1, 4});
  EXPECT_LE(distance(reference, got), tolerance(GetParam(), largest(reference)));
}

TEST_P(Compiled, RowsChunksAndThreadsChangeNoBit) {
  const InferenceFunction one = load(GetParam(), Precision::kFaithful, 1);
  const InferenceFunction two = load(GetParam(), Precision::kFaithful, 2);
  const InferenceFunction three = load(GetParam(), Precision::kFaithful, 3);
  const auto whole = run_in_pieces(one, {23});
  for (const auto& pieces : {std::vector<int>{5, 1, 1, 16}, std::vector<int>(23, 1), std::vector<int>{22, 1}}) {
    EXPECT_EQ(whole, run_in_pieces(one, pieces));
    EXPECT_EQ(whole, run_in_pieces(two, pieces));
  }
  EXPECT_EQ(whole, run_in_pieces(three, {23}));
}

TEST_P(Compiled, LastRowsAreTheLastRows) {
  const InferenceFunction function = load(GetParam(), Precision::kFaithful);
  const auto all = run_in_pieces(function, {9});
  const std::size_t row = all.size() / 9;
  for (std::int64_t rows : {0, 1, 4, 9}) {
    Sequence sequence(function);
    const auto some = sequence.step(tokens(9), rows);
    ASSERT_EQ(some.size(), row * static_cast<std::size_t>(rows));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.end() - static_cast<std::ptrdiff_t>(some.size())));
  }
}

TEST_P(Compiled, EveryPassOffGivesTheSame) {
  const auto on = run_in_pieces(load(GetParam(), Precision::kFaithful), {5, 1, 3});
  std::vector<std::string> all;
  for (std::string_view pass : compiler::pass_names()) {
    all.emplace_back(pass);
    const auto off = run_in_pieces(load(GetParam(), Precision::kFaithful, 1, {std::string(pass)}), {5, 1, 3});
    EXPECT_LE(distance(on, off), tolerance(GetParam(), largest(on))) << "without " << pass;
  }
  const auto off = run_in_pieces(load(GetParam(), Precision::kFaithful, 1, all), {5, 1, 3});
  EXPECT_LE(distance(on, off), tolerance(GetParam(), largest(on))) << "without any pass";
}

TEST_P(Compiled, ADecodeStepAllocatesNothing) {
  const InferenceFunction function = load(GetParam(), Precision::kFaithful, 2);
  Sequence sequence(function);
  sequence.step(tokens(9), 1);
  NDArray ids(DType::kSI32, {1, 1});
  NDArray positions(DType::kSI32, {1, 64});
  std::iota(positions.mutable_values<std::int32_t>().begin(), positions.mutable_values<std::int32_t>().end(), 0);
  for (std::int64_t s = 10; s < 40; ++s) {
    ids.mutable_values<std::int32_t>()[0] = static_cast<std::int32_t>(s);
    counting = s > 20;  // the first steps size the workspace
    sequence.call().set_input(0, ids);
    sequence.call().set_input(1, NDArray(DType::kSI32, Shape{1, s}, positions.storage()));
    sequence.call().set_last_rows(0, 1);
    sequence.call().run();
    counting = false;
  }
  EXPECT_EQ(std::exchange(allocations, 0), 0);
}

TEST_P(Compiled, APositionOutsideTheStateIsAnError) {
  const InferenceFunction function = load(GetParam(), Precision::kFaithful);
  Sequence sequence(function, 8);
  const bool fixed = function.descriptor().states[0].shape.is_static();
  if (fixed) return;  // its capacity is not ours to choose
  EXPECT_THROW(sequence.step(tokens(9)), ContextLengthError);
  Sequence fresh(function, 16);
  EXPECT_FALSE(fresh.step(tokens(9)).empty());  // the function stays usable
}

INSTANTIATE_TEST_SUITE_P(Mixtures, Compiled, testing::ValuesIn(testing_support::planned_mixtures()),
                         [](const auto& p) { return testing_support::test_name(p.param); });
INSTANTIATE_TEST_SUITE_P(Decoders, Compiled, testing::ValuesIn(testing_support::planned_decoders()),
                         [](const auto& p) { return testing_support::test_name(p.param); });

// More threads than cores lose theirs in the middle of a step; nobody waits for them, so they read on while states and
// inputs of the finished call are freed (for the address sanitizer) and other calls run.
TEST(CompiledThreads, StatesAndInputsMayGoWhileAThreadIsLate) {
  const InferenceFunction function = load("tiny_llm/q4/tiny-llama-random-q4.aimodel", Precision::kFaithful, 8);
  const auto wanted = run_in_pieces(function, {5, 1, 1});
  for (int i = 0; i < 40; ++i) EXPECT_EQ(run_in_pieces(function, {5, 1, 1}), wanted);
}

TEST(CompiledGuards, PositionsThatDoNotIncreaseRunOpByOp) {
  const std::string below = "tiny_llm/f32/tiny-llama-random-f32.aimodel";
  const InferenceFunction faithful = load(below, Precision::kFaithful), strict = load(below, Precision::kStrict);
  Sequence a(faithful), b(strict);
  const std::vector<std::int32_t> positions = {0, 1, 1, 2, 0};
  const auto got = a.step_at(tokens(5), positions), wanted = b.step_at(tokens(5), positions);
  EXPECT_EQ(got, wanted);  // the same executor computes both
  // The states hold what that call stored.
  EXPECT_LE(distance(a.step_at(tokens(1), {0, 1, 2, 3, 4, 5}), b.step_at(tokens(1), {0, 1, 2, 3, 4, 5})), 1e-3f);
}

TEST(CompiledGuards, IdsOutsideTheVocabularyAreRefused) {
  const InferenceFunction function = load("tiny_llm/q4/tiny-llama-random-q4.aimodel", Precision::kFaithful);
  Sequence sequence(function);
  EXPECT_THROW(sequence.step({512}), Error);
  EXPECT_THROW(sequence.step_at({-513}, {0}), Error);
  EXPECT_FALSE(sequence.step_at({511}, {0}).empty());
}

TEST(CompiledGuards, UnknownPassesAreRefused) {
  EXPECT_THROW(load("tiny_llm/q4/tiny-llama-random-q4.aimodel", Precision::kFaithful, 1, {"magic"}),
               InvalidArgumentError);
}

TEST(CompiledStates, ReadAndWriteInTheDeclaredLayout) {
  const InferenceFunction function = load("tiny_llm/f32/tiny-llama-random-f32.aimodel", Precision::kFaithful);
  const InferenceFunction strict = load("tiny_llm/f32/tiny-llama-random-f32.aimodel", Precision::kStrict);
  Sequence a(function), b(strict);
  a.step(tokens(7));
  b.step(tokens(7));
  for (std::size_t i = 0; i < a.states().size(); ++i) {
    const NDArray x = a.states()[i].read(), y = b.states()[i].read();
    ASSERT_EQ(x.shape(), y.shape());
    for (std::size_t k = 0; k < x.values<float>().size(); ++k) {
      ASSERT_NEAR(x.values<float>()[k], y.values<float>()[k], 1e-4f) << i << " " << k;
    }
  }
  Sequence c(function);
  for (std::size_t i = 0; i < a.states().size(); ++i) c.states()[i].write(a.states()[i].read());
  const std::vector<std::int32_t> positions = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(c.step_at({9}, positions), a.step_at({9}, positions));
}

}  // namespace
}  // namespace coreai
