// What counts as a norm, a rotation and a causal attention, however it is spelled, and what only looks like one. Both
// must give what the strict evaluator gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "backend/cpu/reference/evaluator.h"
#include "compiler/written_decoder.h"
#include "coreai/compiler/compiler.h"
#include "runtime/sequence.h"

namespace coreai {
namespace {

using testing_support::distance;
using testing_support::Sequence;
using testing_support::written_decoder;

// What the plan of a form is, beside that of the plain form.
enum class Expected { kSamePlan, kSameKernels, kFewerKernels, kAsWritten };
struct Form {
  std::string name;
  Expected expected;
  bool differs = true;  // its results from those of the plain form
};
std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

struct Planned {
  std::unique_ptr<ir::Module> module;
  std::optional<compiler::Plan> plan;
};

Planned plan_of(const std::string& form) {
  Planned out;
  out.module = written_decoder(form);
  out.plan = compiler::compile(*out.module, out.module->functions().at(0), cpu::reference_evaluator()).plan;
  return out;
}

std::vector<std::string> kernels(const compiler::Plan& plan) {
  std::vector<std::string> out;
  for (const auto& step : plan.steps) out.push_back(step.name);
  return out;
}

bool has_generic_step(const compiler::Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const auto& step) { return std::holds_alternative<compiler::GenericStep>(step.body); });
}

std::string text(const compiler::Plan& plan) {
  return to_text(plan, std::vector<std::int64_t>{1, 64, 128, 128}, false);
}

std::vector<float> run(const std::string& form, Precision precision) {
  SpecializationOptions options;
  options.precision = precision;
  options.threads = 2;
  options.use_cache = false;
  const InferenceFunction function = AIModel::from_module(written_decoder(form), options).load_function();
  Sequence sequence(function);
  std::vector<float> all;
  std::int32_t id = 3;
  for (const int piece : {25, 1, 1, 13, 1}) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < piece; ++i) ids.push_back(id = (7 * id + 11) % 47);
    const auto part = sequence.step(ids);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

class WrittenForm : public testing::TestWithParam<Form> {};

TEST_P(WrittenForm, IsPlannedAsWhatItIs) {
  const Planned plain = plan_of(""), form = plan_of(GetParam().name);
  ASSERT_TRUE(plain.plan && !has_generic_step(*plain.plan));
  switch (GetParam().expected) {
    case Expected::kSamePlan:
      ASSERT_TRUE(form.plan);
      EXPECT_EQ(text(*form.plan), text(*plain.plan));
      break;
    case Expected::kSameKernels:
      ASSERT_TRUE(form.plan);
      EXPECT_EQ(kernels(*form.plan), kernels(*plain.plan));
      break;
    case Expected::kFewerKernels:
      ASSERT_TRUE(form.plan && !has_generic_step(*form.plan));
      EXPECT_LT(form.plan->steps.size(), plain.plan->steps.size());
      break;
    case Expected::kAsWritten:
      EXPECT_TRUE(!form.plan || has_generic_step(*form.plan));
      break;
  }
}

TEST_P(WrittenForm, GivesTheStrictResult) {
  const auto strict = run(GetParam().name, Precision::kStrict), faithful = run(GetParam().name, Precision::kFaithful);
  float largest = 0;
  for (float x : strict) largest = std::max(largest, std::fabs(x));
  ASSERT_TRUE(std::isfinite(largest));
  EXPECT_LE(distance(strict, faithful), 3e-4f * largest);
  const float change = distance(strict, run("", Precision::kStrict));
  if (GetParam().differs) {
    EXPECT_GE(change, 6e-4f * largest);  // taking it for the plain form would be seen above
  } else {
    EXPECT_LE(change, 1e-5f * largest);
  }
}

std::vector<Form> forms() {
  std::vector<Form> out = {{"", Expected::kSamePlan, false}};
  for (const char* name :
       {"squares by power", "negative axis", "quotient by the root", "factor first", "scale first", "eps first",
        "reciprocal by power", "reciprocal by quotient", "rotation factors exchanged", "mask by or",
        "mask of a long chain", "bias by selection", "bias by difference", "heads repeated by broadcast", "grouped",
        "scale on the scores", "scale on the keys", "scores selected", "bias first"}) {
    out.push_back({name, Expected::kSamePlan, false});
  }
  for (const char* name : {"another scale", "window", "window by exclusive or", "scaled positions",
                           "rotation of a part", "rotation of a part, nested"}) {
    out.push_back({name, Expected::kSameKernels});
  }
  out.push_back({"mask of positions", Expected::kSameKernels, false});
  out.push_back({"without a cache", Expected::kFewerKernels});
  out.push_back({"without a cache, heads in rank 3", Expected::kFewerKernels});
  for (const char* name : {"squares of another value",
                           "sum of squares",
                           "mean over rows",
                           "quotient by the mean square",
                           "normed value in 8 bits",
                           "one scale",
                           "eps after the root",
                           "eps inside the mean twice",
                           "rotation with the wrong rest",
                           "positions in 8 bits",
                           "shifted positions",
                           "angles in bf16",
                           "cosine of other angles",
                           "rotation backwards",
                           "halves exchanged",
                           "first key left out",
                           "values are keys",
                           "mask from the upper left",
                           "mask of the first positions",
                           "mask of the past",
                           "mask of the diagonal too",
                           "mask one too late",
                           "window with a hole",
                           "weak mask",
                           "bias by selection the other way",
                           "heads interleaved",
                           "a scale per dimension",
                           "temperature after the mask",
                           "softmax over queries",
                           "weights scaled"}) {
    out.push_back({name, Expected::kAsWritten});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, WrittenForm, testing::ValuesIn(forms()), [](const auto& instance) {
  std::string name;
  for (const char c : instance.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name.empty() ? std::string("plain") : name;
});

}  // namespace
}  // namespace coreai
