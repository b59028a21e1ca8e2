// coreai-run as a user meets it: arrays in and out, replays, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "coreai/base/npy.h"
#include "tools/process.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

const fs::path kFixtures = COREAI_FIXTURE_DIR;
const std::string kAsset = (kFixtures / "tiny_llm/f32/tiny-llama-random-f32.aimodel").string();

using testing_support::slurp;
using Result = testing_support::ProcessResult;

class CoreaiRun : public testing_support::ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    write_npy(dir_ / "ids.npy", ints({1, 99, 105}));
    write_npy(dir_ / "positions.npy", ints({0, 1, 2}));
  }

  static NDArray ints(const std::vector<std::int32_t>& values) {
    return NDArray::from<std::int32_t>(DType::kSI32, {1, static_cast<std::int64_t>(values.size())}, values);
  }
  Result run(const std::string& arguments) { return shell(std::string("'") + COREAI_RUN + "' " + arguments); }
  // The names and sizes of tiny_llm's states, as options.
  static std::string states() { return " --state keyCache=zeros:2x1x2x32x16 --state valueCache=zeros:2x1x2x32x16"; }
};

TEST_F(CoreaiRun, WritesOutputsAndStatesAndRecordsTheCall) {
  const std::string call = kAsset + " --precision strict --input input_ids=ids.npy --input position_ids=positions.npy" +
                           states() + " --output-dir results --record cases.json";
  const Result first = run(call);
  ASSERT_EQ(first.code, 0) << first.err;
  const NDArray logits = read_npy(dir_ / "results/logits.npy");
  EXPECT_EQ(logits.shape(), (Shape{1, 3, 512}));
  EXPECT_EQ(logits.dtype(), DType::kF32);
  EXPECT_EQ(read_npy(dir_ / "results/keyCache.state.npy").shape(), (Shape{2, 1, 2, 32, 16}));

  const Result check = run("--check cases.json");
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_THAT(check.out, HasSubstr("1 passed, 0 failed"));
  EXPECT_THAT(check.out, HasSubstr("worst error 0"));
}

TEST_F(CoreaiRun, AStateThatIsWrittenContinuesTheSequence) {
  write_npy(dir_ / "two.npy", ints({1, 99}));
  write_npy(dir_ / "two_positions.npy", ints({0, 1}));
  write_npy(dir_ / "third.npy", ints({105}));
  const std::string begin = kAsset + " --precision strict ";
  ASSERT_EQ(
      run(begin + "--input input_ids=ids.npy --input position_ids=positions.npy" + states() + " --output-dir whole")
          .code,
      0);
  ASSERT_EQ(
      run(begin + "--input input_ids=two.npy --input position_ids=two_positions.npy" + states() + " --output-dir half")
          .code,
      0);
  const Result rest = run(begin +
                          "--input input_ids=third.npy --input position_ids=positions.npy --output-dir rest --json"
                          " --state keyCache=half/keyCache.state.npy --state valueCache=half/valueCache.state.npy");
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(Json::parse(rest.out)["outputs"][0]["shape"], Json({1, 1, 512}));
  const NDArray whole = read_npy(dir_ / "whole/logits.npy");
  const NDArray last = read_npy(dir_ / "rest/logits.npy");
  for (std::size_t i = 0; i < 512; ++i)
    EXPECT_NEAR(whole.values<float>()[1024 + i], last.values<float>()[i], 1e-4) << i;
}

// The same bits on every level that this CPU has; a level that it lacks is refused by name.
TEST_F(CoreaiRun, KernelsOfEveryLevelGiveTheSameBits) {
  const std::string call = kAsset + " --input input_ids=ids.npy --input position_ids=positions.npy" + states();
  ASSERT_EQ(run(call + " --output-dir best").code, 0);
  const std::string best = slurp(dir_ / "best/logits.npy");
  int levels = 0;
  for (const std::string level : {"portable", "avx2", "avx512"}) {
    const Result result = run(call + " --kernels " + level + " --output-dir " + level);
    if (result.code == 0) {
      ++levels;
      EXPECT_EQ(slurp(dir_ / (level + "/logits.npy")), best) << level;
    } else {
      EXPECT_EQ(result.code, 1);
      EXPECT_THAT(result.err, HasSubstr("kernels is \"" + level + "\""));
    }
  }
  EXPECT_GE(levels, 1);
  EXPECT_EQ(run(call + " --kernels sse").code, 64);
}

// A pass that is left out changes how the function runs, not what it gives; an unknown one is a wrong call.
TEST_F(CoreaiRun, PassesCanBeLeftOut) {
  const std::string call = kAsset + " --input input_ids=ids.npy --input position_ids=positions.npy" + states();
  ASSERT_EQ(run(call + " --output-dir on").code, 0);
  ASSERT_EQ(run(call + " --disable-pass fusion --disable-pass elementwise --output-dir off").code, 0);
  const NDArray on = read_npy(dir_ / "on/logits.npy"), off = read_npy(dir_ / "off/logits.npy");
  for (std::size_t i = 0; i < 512; ++i) EXPECT_NEAR(on.values<float>()[i], off.values<float>()[i], 1e-4) << i;
  const auto fused = run(call + " --profile --repeat 1"),
             written = run(call + " --profile --repeat 1 --disable-pass fusion");
  EXPECT_THAT(fused.out, HasSubstr("linear gated"));
  EXPECT_EQ(written.out.find("linear gated"), std::string::npos) << written.out;
  const Result unknown = run(call + " --disable-pass fusing");
  EXPECT_EQ(unknown.code, 64);
  EXPECT_THAT(unknown.err, HasSubstr("fusing"));
}

// What only a device or another program defines is refused by name, with what to do instead.
// Reading makes the second version of the first.
TEST_F(CoreaiRun, RefusesByNameWhatNothingHereDefines) {
  for (const auto& [asset, name] : {std::pair{"delegate", "execution.delegate_v2"},
                                    {"delegate_v1", "execution.delegate_v2"},
                                    {"metal4_kernel", "metal.metal4_kernel_v1"},
                                    {"udml_call", "udml.call_v1"},
                                    {"udml_placeholder", "udml.placeholder_v1"}}) {
    const Result result = run((kFixtures / "op_assets" / asset).string() + ".aimodel");
    EXPECT_EQ(result.code, 1) << asset;
    EXPECT_THAT(result.err, AllOf(HasSubstr("@main: "), HasSubstr(name)));
    EXPECT_THAT(result.err, AnyOf(HasSubstr(". Export "), HasSubstr(". Give "), HasSubstr(". Convert "))) << asset;
  }
}

TEST_F(CoreaiRun, ProfilesEveryStep) {
  const std::string call =
      kAsset + " --input input_ids=ids.npy --input position_ids=positions.npy" + states() + " --profile --repeat 2";
  for (const std::string precision : {"faithful", "strict"}) {
    const Result result = run(call + " --json --precision " + precision);
    ASSERT_EQ(result.code, 0) << result.err;
    const Json report = Json::parse(result.out);
    EXPECT_GT(report["call_ms"].get<double>(), 0.0);
    double sum = 0;
    for (const Json& step : report["steps"]) sum += step["ms"].get<double>();
    EXPECT_GT(sum, 0.0);
    EXPECT_EQ(report["execution"] == "compiled", precision == "faithful");
    const double workspace = report["workspace_bytes"].get<double>();
    EXPECT_EQ(workspace > 0, precision == "faithful");
    EXPECT_LE(workspace, 1.2 * report["largest_live_bytes"].get<double>());
  }
  const Result table = run(call);
  EXPECT_THAT(table.out, HasSubstr("GFLOP/s"));
  EXPECT_THAT(table.out, HasSubstr("attention"));
  EXPECT_THAT(table.out, HasSubstr("live at one time"));
  EXPECT_EQ(run("--check cases.json --profile").code, 64);
}

TEST_F(CoreaiRun, ReplaysAndReportsFailures) {
  const std::string file = (kFixtures / "op_goldens/range.json").string();
  const Result good = run("--check " + file + " --json");
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(Json::parse(good.out)["failed"], 0);

  Json json = Json::parse(slurp(file));
  json["asset"] = (kFixtures / "op_goldens/range.aimodel").string();
  const std::string name = json["cases"][0]["case"];
  json["cases"][0]["calls"][0]["outputs"][0]["name"] = "no_such_output";
  std::ofstream(dir_ / "bad.json") << json.dump();
  const Result bad = run("--check bad.json");
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.out, HasSubstr("1 failed"));
  EXPECT_THAT(bad.out, HasSubstr("no_such_output"));
  EXPECT_EQ(run("--check bad.json --case " + json["cases"][1]["case"].get<std::string>()).code, 0);
  EXPECT_EQ(run("--check bad.json --case " + name).code, 1);
  EXPECT_EQ(run("--check bad.json none.json").code, 1);
}

TEST_F(CoreaiRun, ExitCodesTellWhatWentWrong) {
  EXPECT_EQ(run("--check none.json").code, 2);
  EXPECT_EQ(run("--check ids.npy").code, 2);
  // An asset that cannot be opened: no case was looked at, and one line says why.
  const Result compiled = run("none.aimodel --check " + (kFixtures / "op_goldens/range.json").string());
  EXPECT_EQ(compiled.code, 2);
  EXPECT_EQ(compiled.out, "");
  EXPECT_EQ(std::count(compiled.err.begin(), compiled.err.end(), '\n'), 1) << compiled.err;
  EXPECT_EQ(run("none.aimodel").code, 1);
  EXPECT_EQ(run("").code, 64);
  const Result unknown = run("--no-such-option");
  EXPECT_EQ(unknown.code, 64);
  EXPECT_THAT(unknown.err, HasSubstr("there is no option '--no-such-option'"));
  EXPECT_THAT(run("").err, HasSubstr("coreai-run --help"));
  EXPECT_EQ(run("--check a.json --input x=y.npy").code, 64);
  EXPECT_EQ(run("--version").code, 0);

  const std::string inputs = kAsset + " --input input_ids=ids.npy --input position_ids=positions.npy";
  const Result no_state = run(inputs);
  EXPECT_EQ(no_state.code, 1);
  EXPECT_THAT(no_state.err, HasSubstr("--state"));
  EXPECT_EQ(run(inputs + states() + " --input nobody=ids.npy").code, 1);
  EXPECT_EQ(run(inputs + " --state keyCache=zeros:2x1x2x-1x16").code, 1);
  EXPECT_EQ(run(kAsset + " --function nobody").code, 1);
  EXPECT_EQ(run(inputs + states() + " --precision sloppy").code, 64);
  EXPECT_EQ(run(kAsset + " --input input_ids" + states()).code, 64);
  const Result no_input = run(kAsset + states());
  EXPECT_EQ(no_input.code, 1);
  EXPECT_THAT(no_input.err, HasSubstr("Give --input input_ids=file.npy"));
}

}  // namespace
}  // namespace coreai
