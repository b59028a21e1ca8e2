// Every precision and form that the exporter writes: the same few steps, the strict evaluator's results, and no bit of
// them changed by pieces or threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "backend/cpu/reference/evaluator.h"
#include "coreai/compiler/compiler.h"
#include "coreai/exporter/llm_exporter.h"
#include "runtime/sequence.h"

namespace coreai {
namespace {

using testing_support::distance;
using testing_support::largest;
using testing_support::Sequence;

struct Form {
  std::string model;
  DType compute = DType::kF32;
  std::optional<DType> kv;
};
std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.model << " " << dtype_name(form.compute) << " kv " << (form.kv ? dtype_name(*form.kv) : "default");
}

std::unique_ptr<ir::Module> author(const Form& form, bool composites) {
  const GgufFile file = GgufFile::open(testing_support::fixture("gguf/" + form.model + ".gguf"));
  LlmExportOptions options;
  options.compute_precision = form.compute;
  options.kv_precision = form.kv;
  options.composites = composites;
  return author_decoder(file, options);
}

compiler::Plan plan_of(const ir::Module& module) {
  auto result = compiler::compile(module, module.functions().at(0), cpu::reference_evaluator());
  if (!result.plan) throw std::runtime_error(result.reason);
  return std::move(*result.plan);
}

std::vector<float> run(const Form& form, bool composites, Precision precision, int threads,
                       const std::vector<int>& pieces) {
  SpecializationOptions options;
  options.precision = precision;
  options.threads = threads;
  options.use_cache = false;
  const InferenceFunction function = AIModel::from_module(author(form, composites), options).load_function();
  EXPECT_EQ(function.execution_kind() == "compiled", precision != Precision::kStrict) << function.execution_kind();
  Sequence sequence(function);
  std::vector<float> all;
  std::int32_t id = 5;
  for (const int piece : pieces) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < piece; ++i) ids.push_back((id += 17) % 300);
    const auto part = sequence.step(ids);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// Share of the largest logit: two digits of 8 bits, the rounding of the cache, and that of the evaluator between steps.
float tolerance(const Form& form) {
  const DType kv = form.kv.value_or(form.compute == DType::kBF16 ? DType::kBF16 : DType::kF16);
  const float cache = kv == DType::kF32 ? 2e-4f : kv == DType::kF16 ? 1e-3f : 4e-3f;
  const float steps = form.compute == DType::kF32 ? 0 : form.compute == DType::kF16 ? 5e-3f : 5e-2f;
  return cache + steps;
}

class ExportedPlan : public testing::TestWithParam<Form> {};

TEST_P(ExportedPlan, HasTheSameFewStepsInBothForms) {
  const auto called = author(GetParam(), true), written = author(GetParam(), false);
  const compiler::Plan a = plan_of(*called), b = plan_of(*written);
  const std::vector<std::int64_t> extents = {1, 128, 128, 128};
  ASSERT_EQ(a.symbols.size(), extents.size());
  EXPECT_EQ(to_text(a, extents, false), to_text(b, extents, false));
  std::vector<std::size_t> attentions;
  for (std::size_t i = 0; i < b.steps.size(); ++i) {
    const auto& step = b.steps[i];
    if (std::holds_alternative<compiler::AttentionStep>(step.body)) attentions.push_back(i);
    EXPECT_FALSE(std::holds_alternative<compiler::GenericStep>(step.body)) << step.name;
    if (std::holds_alternative<compiler::CopyStep>(step.body)) {
      EXPECT_EQ(step.name, "copy output");
    }
  }
  const bool gemma = GetParam().model == "tiny_gemma3";
  ASSERT_EQ(attentions.size(), gemma ? 7u : 2u);
  // From one attention to the next; the global layer of Gemma adds a table for its rotation.
  const std::size_t layer = gemma ? 10 : 8;
  for (std::size_t i = 1; i < attentions.size(); ++i) {
    const std::size_t table = gemma && i == 5 ? 1 : 0;
    EXPECT_EQ(attentions[i] - attentions[i - 1], layer + table) << "layer " << i;
  }
}

TEST_P(ExportedPlan, AgreesWithTheStrictEvaluatorInBothForms) {
  const std::vector<int> pieces = {7, 1, 1, 6, 1};
  const auto strict = run(GetParam(), false, Precision::kStrict, 1, pieces);
  for (const bool composites : {true, false}) {
    const auto got = run(GetParam(), composites, Precision::kFaithful, 2, pieces);
    const float error = distance(strict, got) / largest(strict);
    EXPECT_LE(error, tolerance(GetParam())) << (composites ? "composites" : "written out");
    RecordProperty(composites ? "composites" : "written_out", std::to_string(error));
  }
}

TEST_P(ExportedPlan, IsStableToTheBit) {
  const auto whole = run(GetParam(), false, Precision::kFaithful, 1, {19});
  EXPECT_EQ(whole, run(GetParam(), false, Precision::kFaithful, 2, {11, 1, 1, 6}));
  EXPECT_EQ(whole, run(GetParam(), false, Precision::kFaithful, 3, {1, 17, 1}));
  EXPECT_EQ(whole, run(GetParam(), true, Precision::kFaithful, 2, {19}));
}

std::vector<Form> forms() {
  std::vector<Form> out;
  for (const char* model : {"tiny_llama", "tiny_gemma3"}) {
    for (const DType compute : {DType::kF32, DType::kF16, DType::kBF16}) {
      out.push_back({model, compute, std::nullopt});
      for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16}) out.push_back({model, compute, kv});
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, ExportedPlan, testing::ValuesIn(forms()), [](const auto& instance) {
  std::string name;
  for (const char c : testing::PrintToString(instance.param)) name += c == ' ' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace coreai
