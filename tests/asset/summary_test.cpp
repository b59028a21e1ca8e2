#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.h"

namespace coreai {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

AIModelAssetSummary summary_of(const std::string& relative) {
  return AIModelAsset::open(test::fixture(relative)).summary();
}

// Counts as the reference's own summary gives them.
TEST(Summary, CountsDecompositionsAsTheReferenceDoes) {
  const AIModelAssetSummary relu = summary_of("op_assets/relu.aimodel");
  EXPECT_THAT(relu.operation_distribution,
              UnorderedElementsAre(Pair("constant", 4), Pair("broadcast_in_dims", 1), Pair("broadcasting_maximum", 1),
                                   Pair("maximum", 1), Pair("relu", 1), Pair("reshape", 1)));
  EXPECT_THAT(relu.top_level_operations, ElementsAre(Pair("relu", 1)));
  EXPECT_THAT(summary_of("op_assets/while.aimodel").operation_distribution,
              UnorderedElementsAre(Pair("add", 2), Pair("constant", 2), Pair("condition", 1), Pair("greater", 1),
                                   Pair("while", 1)));
}

TEST(Summary, FunctionsAndComposites) {
  const AIModelAssetSummary summary = summary_of("op_assets/composite_rms_norm.aimodel");
  EXPECT_THAT(summary.composites, ElementsAre("rms_norm"));
  ASSERT_EQ(summary.functions.size(), 1u);
  EXPECT_EQ(summary.functions[0].inputs.at(0).type_name.substr(0, 9), "tensor<1x");
  EXPECT_GT(summary.program_bytes, 1000u);
  EXPECT_EQ(summary_of("op_assets/multi_function.aimodel").functions.size(), 2u);
  const FunctionDescriptor states = summary_of("op_assets/states_two.aimodel").functions.at(0);
  EXPECT_EQ(states.states.size(), 2u);
  EXPECT_EQ(states.states[0].type_name.substr(0, 22), "!coreai.handle<tensor<");
}

TEST(Summary, BytesPerDtype) {
  const AIModelAssetSummary summary = summary_of("format_fixtures/const_subbyte_run.aimodel");
  EXPECT_EQ(summary.storage_bytes.at("ui1"), 2u);       // 11 elements
  EXPECT_EQ(summary.storage_bytes.at("si4"), 3u);       // 6
  EXPECT_EQ(summary.storage_bytes.at("ui6"), 4u);       // 5
  EXPECT_EQ(summary.storage_bytes.at("f4E2M1FN"), 2u);  // 3
}

}  // namespace
}  // namespace coreai
