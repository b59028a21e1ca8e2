// What the plan of a decoder must look like: few steps, no copies, bytes that the arithmetic accounts for.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "backend/cpu/reference/evaluator.h"
#include "coreai/asset/asset.h"
#include "coreai/compiler/compiler.h"
#include "runtime/sequence.h"

namespace coreai::compiler {
namespace {

struct Planned {
  std::unique_ptr<ir::Module> module;
  Plan plan;
  std::int64_t layers = 0;
};

Planned plan_of(const std::string& below, const CompileOptions& options = {}) {
  Planned out;
  out.module = AIModelAsset::open(testing_support::fixture(below)).load_module();
  const ir::Graph main = out.module->functions().at(0);
  CompileResult result = compile(*out.module, main, cpu::reference_evaluator(), options);
  if (!result.plan) throw std::runtime_error(result.reason);
  out.plan = std::move(*result.plan);
  out.layers = describe(main).states.at(0).shape[0];
  return out;
}

// One new token, 128 positions.
std::vector<std::int64_t> decode_extents(const Plan& plan) {
  std::vector<std::int64_t> extents;
  for (const SymbolBinding& s : plan.symbols) extents.push_back(s.of_state ? 128 : s.index == 0 ? 1 : 128);
  return extents;
}

class DecoderPlan : public testing::TestWithParam<std::string> {};

TEST_P(DecoderPlan, HasAtMostTenStepsALayerAndCopiesNothing) {
  const Planned p = plan_of(GetParam());
  std::int64_t attentions = 0, between = 0;
  std::size_t first = 0, last = 0;
  for (std::size_t i = 0; i < p.plan.steps.size(); ++i) {
    const Step& step = p.plan.steps[i];
    if (std::holds_alternative<AttentionStep>(step.body)) {
      if (attentions++ == 0) first = i;
      last = i;
    }
    EXPECT_FALSE(std::holds_alternative<GenericStep>(step.body)) << step.name;
    if (std::holds_alternative<CopyStep>(step.body)) {
      EXPECT_EQ(step.name, "copy output");
    }
  }
  ASSERT_EQ(attentions, p.layers);
  between = static_cast<std::int64_t>(last - first);
  if (p.layers > 1) {
    EXPECT_LE(between, 10 * (p.layers - 1) + 1);  // one more table of another rotation
  }
}

TEST_P(DecoderPlan, LimitsTheHeadToTheLastRows) {
  const Planned p = plan_of(GetParam());
  bool head = false;
  for (const Step& step : p.plan.steps) {
    if (std::holds_alternative<HeadsStep>(step.body)) {
      EXPECT_FALSE(step.last_rows);
    }
    if (const auto* linear = std::get_if<LinearStep>(&step.body)) head = step.last_rows && linear->out.width > 256;
  }
  EXPECT_TRUE(head);
  EXPECT_EQ(p.plan.output_row_axis.at(0), 1);
}

// Bytes of a decode step: every weight of the file once, the cache once, activations.
TEST_P(DecoderPlan, ReadsEachWeightOnce) {
  const Planned p = plan_of(GetParam());
  const auto json = nlohmann::json::parse(to_text(p.plan, decode_extents(p.plan), true));
  std::map<const std::byte*, std::int64_t> weights;
  for (const auto& list : p.plan.weights) {
    for (const WeightSource& w : list) {
      std::int64_t bytes = static_cast<std::int64_t>(w.data.byte_size());
      for (const auto& part : {w.scale, w.offset}) bytes += part ? static_cast<std::int64_t>(part->byte_size()) : 0;
      weights[w.data.bytes().data()] = bytes;
    }
  }
  std::int64_t total = 0, norms = 0;
  for (const auto& [data, bytes] : weights) total += bytes;
  for (const Step& s : p.plan.steps) {
    if (const auto* n = std::get_if<NormStep>(&s.body)) norms += static_cast<std::int64_t>(n->scale.size()) * 4;
  }
  const auto read = json["total"]["weight_bytes"].get<std::int64_t>();
  // The row of the embedding comes on top; an untied embedding is read by that row alone.
  EXPECT_LE(read, total + norms + total / 20);
}

// The bodies of composites are what an exporter writes that knows none.
TEST_P(DecoderPlan, IsTheSameWhenCompositesAreWrittenOut) {
  const Planned called = plan_of(GetParam()), written = plan_of(GetParam(), {{"resolve"}});
  EXPECT_EQ(to_text(called.plan, decode_extents(called.plan), false),
            to_text(written.plan, decode_extents(written.plan), false));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DecoderPlan, testing::ValuesIn(testing_support::planned_decoders()),
                         [](const auto& p) { return testing_support::test_name(p.param); });

}  // namespace
}  // namespace coreai::compiler
