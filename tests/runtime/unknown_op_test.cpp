// Operations of a newer dialect: one that carries a decomposition runs through it, one without is refused by name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/runtime/ai_model.h"
#include "coreai/runtime/op_usage.h"
#include "runtime/op_table.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class UnknownOp : public testing::TestWithParam<Precision> {
 protected:
  UnknownOp() { fs::create_directories(folder_); }
  ~UnknownOp() override { fs::remove_all(folder_); }

  // An asset of the program in which one operation's name is replaced by one that no table has.
  fs::path asset(const std::string& program, const std::string& known, const std::string& unknown) const {
    const nlohmann::json cases =
        nlohmann::json::array({{{"function", "main"}, {"program", nlohmann::json::parse(program)}}});
    const fs::path written = folder_ / (unknown + ".aimodel");
    testing_support::write_programs(cases, written);
    std::string bytes = read_text_file(written / "main.mlirb");
    const std::size_t at = bytes.find(known);
    EXPECT_NE(at, std::string::npos);
    EXPECT_EQ(known.size(), unknown.size());
    bytes.replace(at, known.size(), unknown);
    const auto span = std::as_bytes(std::span(bytes));
    write_file_atomically(written / "main.mlirb", span);
    const std::vector<std::byte> digest = sha256(span);
    write_file_atomically(written / "main.hash", std::span<const std::byte>(digest));
    return written;
  }
  AIModel load(const fs::path& path) const {
    SpecializationOptions options;
    options.precision = GetParam();
    options.use_cache = false;
    return AIModel::load(path, options);
  }
  std::vector<float> run(const fs::path& path, const std::vector<float>& x) const {
    const auto n = static_cast<std::int64_t>(x.size());
    const NDArray input = NDArray::from<float>(DType::kF32, {n}, x);
    const NamedArrays outputs = load(path).load_function("main").run({{"x0", input}});
    const auto values = outputs.at(0).second.values<float>();
    return {values.begin(), values.end()};
  }

  const fs::path folder_ =
      fs::temp_directory_path() / fmt::format("unknown_op_{}_{}", getpid(), precision_name(GetParam()));
};

// silu's name is lost; what it carries says x * x + x, which no kernel of ours would compute.
constexpr const char* kWithBody = R"({"inputs":["?xf32"],"steps":[["silu_v1",[0],["?xf32"],{},
    {"inputs":["?xf32"],"steps":[["broadcasting_mul_v1",[0,0],["?xf32"],{}],
                                 ["broadcasting_add_v1",[1,0],["?xf32"],{}]],"outputs":[2]}]],"outputs":[1]})";

TEST_P(UnknownOp, RunsThroughItsDecomposition) {
  const fs::path path = asset(kWithBody, "silu_v1", "sixu_v1");
  EXPECT_EQ(run(path, {1, 2, -3}), (std::vector<float>{2, 6, 6}));
  // It is kept when the program is written again.
  const auto module = AIModelAsset::open(path).load_module();
  save_asset(*module, folder_ / "again.aimodel", {});
  EXPECT_EQ(run(folder_ / "again.aimodel", {4}), std::vector<float>{20});
  const FunctionOps ops = op_usage(*module, module->functions().at(0), {});
  EXPECT_EQ(ops.count(OpPath::kRefused), 0);
  EXPECT_EQ(ops.count(OpPath::kBody), 1);
  EXPECT_EQ(ops.execution, "compiled");
}

// What could not be read would be missing in what is written.
TEST_P(UnknownOp, IsNotWrittenWithoutItsAttributes) {
  const fs::path path = asset(R"({"inputs":["?xf32"],"steps":[["primitive.gelu_v1",[0],["?xf32"],{"approximate":1}]],
      "outputs":[1]})",
                              "primitive.gelu_v1", "primitive.gexu_v1");
  const auto module = AIModelAsset::open(path).load_module();
  try {
    save_asset(*module, folder_ / "again.aimodel", {});
    FAIL() << "written";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("attributes of aicode.primitive.gexu_v1"));
  }
  EXPECT_FALSE(fs::exists(folder_ / "again.aimodel"));
}

TEST_P(UnknownOp, RunsInsideOfAnother) {
  const fs::path path = asset(R"({"inputs":["?xf32"],"steps":[["primitive.exp_v1",[0],["?xf32"],{}],
      ["sigmoid_v1",[1],["?xf32"],{},{"inputs":["?xf32"],"steps":[["silu_v1",[0],["?xf32"],{},
          {"inputs":["?xf32"],"steps":[["primitive.abs_v1",[0],["?xf32"],{}]],"outputs":[1]}]],"outputs":[1]}]],
      "outputs":[2]})",
                              "sigmoid_v1", "sigmoix_v1");
  const std::vector<float> y = run(path, {0});
  EXPECT_NEAR(y.at(0), 0.7310586f, 1e-6);  // the known operation inside keeps its own meaning
}

TEST_P(UnknownOp, IsRefusedByNameWithoutOne) {
  const auto refused = [&](const std::string& program, const std::string& known, const std::string& unknown) {
    const AIModel model = load(asset(program, known, unknown));
    try {
      (void)model.load_function("main");
    } catch (const UnsupportedError& error) {
      EXPECT_THAT(error.what(), HasSubstr("@main"));
      return std::string(error.what());
    }
    return std::string("no UnsupportedError");
  };
  const std::string plain = R"({"inputs":["?xf32"],"steps":[["primitive.tan_v1",[0],["?xf32"],{}]],"outputs":[1]})";
  EXPECT_THAT(refused(plain, "primitive.tan_v1", "primitive.tax_v1"), HasSubstr("aicode.primitive.tax_v1 is unknown"));
  // A body that yields nothing, and one of other types, cannot stand in.
  const std::string empty = R"({"inputs":["?xf32"],"steps":[["relu_v1",[0],["?xf32"],{}]],"outputs":[1]})";
  EXPECT_THAT(refused(empty, "relu_v1", "rexu_v1"), HasSubstr("aicode.rexu_v1 is unknown"));
  const std::string other = R"({"inputs":["?xf32"],"steps":[["silu_v1",[0],["?xf32"],{},
      {"inputs":["?xf32"],"steps":[["primitive.cast_v1",[0],["?xf16"],{}]],"outputs":[1]}]],"outputs":[1]})";
  EXPECT_THAT(refused(other, "silu_v1", "siyu_v1"), HasSubstr("aicode.siyu_v1 is unknown"));
  // Another attribute record than any we know.
  const std::string gelu = R"({"inputs":["?xf32"],"steps":[["primitive.gelu_v1",[0],["?xf32"],{"approximate":1}]],
      "outputs":[1]})";
  EXPECT_THAT(refused(gelu, "primitive.gelu_v1", "primitive.gexu_v1"), HasSubstr("aicode.primitive.gexu_v1"));
}

INSTANTIATE_TEST_SUITE_P(Executors, UnknownOp, testing::Values(Precision::kStrict, Precision::kFaithful),
                         [](const auto& test) { return std::string(precision_name(test.param)); });

}  // namespace
}  // namespace coreai
