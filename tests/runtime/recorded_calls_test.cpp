#include "coreai/runtime/recorded_calls.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/compiler/compiler.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
const fs::path kFixtures = COREAI_FIXTURE_DIR;

CheckOptions without_cache() {
  CheckOptions options;
  options.specialization.use_cache = false;
  return options;
}

// The wheel folded these slices away when it wrote the asset: the program returns its input, so that no runtime can
// give what is recorded.
const std::set<std::string> kNotInTheFile = {"slice_revall", "slice_revm1"};

// Recorded in f32 from end to end; strict rounds to f16 after each operation, as the program says.
const std::set<std::string> kRecordedWithoutRounding = {"chain_attention_f16"};

// Every recorded case of every operation, in strict.
TEST(OpGoldens, EveryCaseGivesWhatIsRecorded) {
  std::map<std::string, std::pair<int, int>> by_op;  // passed, all
  std::size_t cases = 0;
  std::size_t advisory_failed = 0;
  for (const auto& entry : fs::directory_iterator(kFixtures / "op_goldens")) {
    if (entry.path().extension() != ".json") continue;
    const CheckReport report = check_recorded_calls(entry.path(), without_cache());
    const auto json = nlohmann::json::parse(read_text_file(entry.path()));
    for (std::size_t i = 0; i < report.cases.size(); ++i) {
      const CaseResult& result = report.cases[i];
      for (const auto& op : json["cases"][i]["ops"]) {
        auto& [passed, all] = by_op[op.get<std::string>()];
        passed += result.passed ? 1 : 0;
        ++all;
      }
      if (kNotInTheFile.contains(result.name)) {
        EXPECT_FALSE(result.passed) << result.name;
        continue;
      }
      if (kRecordedWithoutRounding.contains(result.name)) {
        EXPECT_LT(result.worst_share, 1.5) << result.problem;
        continue;
      }
      EXPECT_TRUE(result.passed || !result.must)
          << entry.path().filename() << " " << result.name << ": " << result.problem;
    }
    cases += report.cases.size();
    advisory_failed += report.advisory_failed;
  }
  EXPECT_EQ(cases, 732u);
  RecordProperty("advisory_failed", static_cast<int>(advisory_failed));
  for (const auto& [op, counts] : by_op) {
    RecordProperty(op, std::to_string(counts.first) + "/" + std::to_string(counts.second));
  }
}

// The same in faithful, without exceptions.
TEST(OpGoldens, EveryCasePassesInFaithful) {
  CheckOptions options = without_cache();
  options.specialization.precision = Precision::kFaithful;
  options.specialization.threads = 1;
  for (const auto& entry : fs::directory_iterator(kFixtures / "op_goldens")) {
    if (entry.path().extension() != ".json") continue;
    for (const CaseResult& result : check_recorded_calls(entry.path(), options).cases) {
      if (kNotInTheFile.contains(result.name)) continue;
      EXPECT_TRUE(result.passed || !result.must)
          << entry.path().filename() << " " << result.name << ": " << result.problem;
    }
  }
}

// Bundles that the genuine exporters wrote: prefill, single steps and a continuation, outputs and states.
class GenuineBundle : public testing::TestWithParam<std::string> {};

TEST_P(GenuineBundle, RecordedCallsPassInStrict) {
  const CheckReport report = check_recorded_calls(kFixtures / "genuine" / GetParam() / "cases.json", without_cache());
  EXPECT_GT(report.passed, 0u);
  EXPECT_EQ(report.failed, 0u);
  double worst = 0, share = 0;
  for (const CaseResult& result : report.cases) {
    EXPECT_TRUE(result.passed) << result.name << ": " << result.problem;
    worst = std::max(worst, result.worst_error);
    share = std::max(share, result.worst_share);
  }
  RecordProperty("worst_error_e9", static_cast<int>(std::min(worst * 1e9, 2e9)));
  EXPECT_LT(share, 0.5) << "of the tolerance, at an error of " << worst;
}

void expect_faithful(const std::string& bundle, std::vector<std::string> disabled_passes) {
  CheckOptions options = without_cache();
  options.specialization.precision = Precision::kFaithful;
  options.specialization.disabled_passes = std::move(disabled_passes);
  const CheckReport report = check_recorded_calls(kFixtures / "genuine" / bundle / "cases.json", options);
  EXPECT_GT(report.passed, 0u);
  for (const CaseResult& result : report.cases) EXPECT_TRUE(result.passed) << result.name << ": " << result.problem;
}

TEST_P(GenuineBundle, RecordedCallsPassInFaithful) {
  expect_faithful(GetParam(), {});
}

TEST_P(GenuineBundle, RecordedCallsPassWithoutAnyPass) {
  const auto names = compiler::pass_names();
  expect_faithful(GetParam(), {names.begin(), names.end()});
}

INSTANTIATE_TEST_SUITE_P(DenseDecoders, GenuineBundle,
                         testing::Values("gemma3_2l_f32_b3", "gemma3_4bit_bf16_b3", "gemma3_f32_b3", "mistral_4bit_b3",
                                         "phi3_f16_b3", "qwen2_4bit_b2", "qwen2_4bit_b3", "qwen2_bf16_b3",
                                         "qwen3_4bit_b3", "qwen3_4bit_debuginfo_b3", "qwen3_4bit_staticcache_b2",
                                         "qwen3_5l_f32_b3", "qwen3_f16", "qwen3_f32_b3"),
                         [](const auto& bundle) { return bundle.param; });

INSTANTIATE_TEST_SUITE_P(Families, GenuineBundle,
                         testing::Values("clip", "edsr_dyn", "gated_delta_f16_b3", "mistral_ios_none_b3",
                                         "mixtral_4bit_b3", "onnx_cnn", "parakeet_dyn", "pvt_f16", "qwen3_ios_mixed_b3",
                                         "qwen3_moe_4bit_b3", "qwen3_moe_f32_b2", "qwen3_vl_b3", "roberta_dyn",
                                         "sd15_f16_b3", "t5_dyn", "wav2vec2", "whisper_f16", "yolos"),
                         [](const auto& bundle) { return bundle.param; });

class RecordedCalls : public testing::Test {
 protected:
  RecordedCalls() { fs::create_directories(folder_); }
  ~RecordedCalls() override { fs::remove_all(folder_); }

  fs::path write(const std::string& text) const {
    const fs::path file = folder_ / "cases.json";
    std::ofstream(file) << text;
    return file;
  }
  // A file with one case of `add.aimodel`'s 26-element function, whose call is `call`.
  fs::path with_call(const std::string& call, const std::string& keys = "") const {
    return write(R"({"format":1,"asset":")" + (kFixtures / "op_goldens/abs.aimodel").string() +
                 R"(","cases":[{"case":"c","function":"abs_si8_min",)" + keys + R"("calls":[)" + call + "]}]}");
  }
  const fs::path folder_ = fs::temp_directory_path() / ("recorded_calls_" + std::to_string(getpid()) + "_" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(RecordedCalls, WhatIsRecordedIsReplayed) {
  const fs::path asset = kFixtures / "tiny_llm/q4/tiny-llama-random-q4.aimodel";
  SpecializationOptions strict;
  strict.precision = Precision::kStrict;
  strict.use_cache = false;
  const InferenceFunction function = AIModel::load(asset, strict).load_function();
  RecordedCall call;
  call.asset = asset;
  call.function = "main";
  call.inputs = {
      {"input_ids", NDArray::from<std::int32_t>(DType::kSI32, {1, 3}, std::vector<std::int32_t>{1, 2, 3})},
      {"position_ids", NDArray::from<std::int32_t>(DType::kSI32, {1, 3}, std::vector<std::int32_t>{0, 1, 2})}};
  std::vector<State> states;
  for (const ValueDescriptor& state : function.descriptor().states) {
    Shape shape = state.shape;
    for (std::size_t d = 0; d < shape.rank(); ++d) shape[d] = shape[d] == kDynamic ? 32 : shape[d];
    states.push_back(function.make_state(state.name, shape));
    call.initial_states.emplace_back(state.name, states.back().read());
  }
  std::vector<State*> pointers;
  for (State& state : states) pointers.push_back(&state);
  call.outputs = function.run(call.inputs, pointers);
  for (const State& state : states) call.states_after.emplace_back(state.name(), state.read());
  const fs::path file = folder_ / "recorded.json";
  record_call(file, call);
  call.case_name = "second";
  record_call(file, call);
  EXPECT_THROW(record_call(file, call), InvalidArgumentError);
  const CheckReport report = check_recorded_calls(file, without_cache());
  EXPECT_EQ(report.passed, 2u);
  EXPECT_EQ(report.failed, 0u);
  EXPECT_EQ(report.cases[0].worst_error, 0.0);
  CheckOptions one = without_cache();
  one.case_name = "second";
  EXPECT_EQ(check_recorded_calls(file, one).cases.size(), 1u);
  one.case_name = "third";
  EXPECT_THROW(check_recorded_calls(file, one), NotFoundError);

  // A flipped byte of an expected output is found.
  std::string text = read_text_file(file);
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
  json["cases"][0]["calls"][0]["outputs"][0]["shape"][1] = 2;
  std::ofstream(file) << json.dump();
  EXPECT_THROW(check_recorded_calls(file, without_cache()), MalformedError);
  fs::path side = folder_ / "recorded.bin";
  std::ofstream(file) << text;
  std::fstream bytes(side, std::ios::in | std::ios::out | std::ios::binary);
  const auto offset = nlohmann::json::parse(text)["cases"][0]["calls"][0]["outputs"][0]["offset"].get<int>();
  bytes.seekp(offset + 3);
  bytes.put('\x7e');
  bytes.close();
  EXPECT_EQ(check_recorded_calls(file, without_cache()).failed, 1u);
}

TEST_F(RecordedCalls, RefusesFilesThatBreakTheFormat) {
  EXPECT_THROW(check_recorded_calls(folder_ / "none.json"), NotFoundError);
  EXPECT_THROW(check_recorded_calls(write("{")), MalformedError);
  EXPECT_THROW(check_recorded_calls(write(R"({"format":2,"cases":[]})")), MalformedError);
  EXPECT_THROW(check_recorded_calls(write(R"({"format":1,"asset":null,"cases":[]})")), NotFoundError);
  EXPECT_THROW(
      check_recorded_calls(write(R"({"format":1,"asset":"none.aimodel","cases":[{"case":"c","calls":[{}]}]})")),
      NotFoundError);
  for (const char* tensor :
       {R"({"name":"x","dtype":"si9","shape":[1],"data":"00"})", R"({"name":"x","dtype":"si8","data":"00"})",
        R"({"name":"x","dtype":"si8","shape":[-1],"data":"00"})",
        R"({"name":"x","dtype":"si8","shape":[2],"data":"00"})",
        R"({"name":"x","dtype":"si8","shape":[1],"data":"0G"})",
        R"({"name":"x","dtype":"si8","shape":[1],"data":"000"})",
        R"({"name":"x","dtype":"si8","shape":[1],"init":"ones"})",
        R"({"name":"x","dtype":"i1","shape":[1],"data":"02"})",
        R"({"name":"x","dtype":"f32","shape":[4611686018427387904],"data":""})",
        R"({"name":"x","dtype":"si8","shape":[1],"file":"../secret","offset":0,"bytes":1})",
        R"({"name":"x","dtype":"si8","shape":"1","data":"00"})",
        R"({"name":7,"dtype":"si8","shape":[1],"data":"00"})"}) {
    EXPECT_THROW(check_recorded_calls(with_call(std::string(R"({"inputs":[)") + tensor + "]}")), Error) << tensor;
  }
  std::ofstream(folder_ / "side.bin") << "abc";
  EXPECT_THROW(check_recorded_calls(with_call(
                   R"({"inputs":[{"name":"x","dtype":"si8","shape":[2],"file":"side.bin","offset":2,"bytes":2}]})")),
               MalformedError);
}

TEST_F(RecordedCalls, AnExpectedErrorThatDoesNotComeFails) {
  const auto report = check_recorded_calls(with_call(R"({"inputs":[],"expect":"ok"})"));
  EXPECT_EQ(report.failed, 1u);
  EXPECT_NE(report.cases[0].problem.find("call 1"), std::string::npos) << report.cases[0].problem;
  EXPECT_EQ(check_recorded_calls(with_call(R"({"inputs":[],"expect":"error"})")).failed, 0u);
  const auto advisory = check_recorded_calls(with_call(R"({"inputs":[]})", R"("strength":"advisory",)"));
  EXPECT_EQ(advisory.failed, 0u);
  EXPECT_EQ(advisory.advisory_failed, 1u);
}

}  // namespace
}  // namespace coreai
