// What a caller or a program does wrong at run time: op by op and compiled, each fault is a typed error that names the
// function, the value, what was expected and what was given; the same function then runs with good input.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/ir/builder.h"
#include "coreai/runtime/ai_model.h"
#include "runtime/op_table.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;

NDArray f32(const Shape& shape, float value = 1.0f) {
  NDArray array(DType::kF32, shape);
  std::ranges::fill(array.mutable_values<float>(), value);
  return array;
}
NDArray i32(const Shape& shape, const std::vector<std::int32_t>& values) {
  return NDArray::from<std::int32_t>(DType::kSI32, shape, values);
}
NDArray u32(const Shape& shape, const std::vector<std::uint32_t>& values) {
  return NDArray::from<std::uint32_t>(DType::kUI32, shape, values);
}

using Arrays = std::vector<NDArray>;  // by position: x0, x1, ...

// One program, input that it runs with and input that breaks a rule; the error must hold each of `says`.
struct BadCase {
  std::string name, program;
  Arrays good, bad;
  std::vector<std::string> says;
};

// One operation whose operands are the inputs.
std::string op(const std::string& name, const std::vector<std::string>& inputs, const std::string& result,
               const std::string& attributes = "{}") {
  std::string types, values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    types += fmt::format("{}\"{}\"", i ? "," : "", inputs[i]);
    values += fmt::format("{}{}", i ? "," : "", i);
  }
  return fmt::format(R"({{"inputs":[{}],"steps":[["{}",[{}],["{}"],{}]],"outputs":[{}]}})", types, name, values, result,
                     attributes, inputs.size());
}

std::vector<BadCase> index_cases() {
  const std::string nd = op("primitive.gather_nd_v1", {"?x2xf32", "?x1xsi32"}, "?x2xf32");
  const std::string along = op("primitive.gather_along_axis_v1", {"?x2xf32", "?x2xsi32", "si32"}, "?x2xf32");
  const std::string scatter = op("primitive.scatter_nd_v1", {"4xf32", "?x1xsi32", "?xf32"}, "4xf32");
  const std::string scatter_along =
      op("primitive.scatter_along_axis_v1", {"4xf32", "?xsi32", "?xf32", "si32"}, "4xf32", R"({"scatter_mode":1})");
  const NDArray axis = i32({}, {0});
  return {
      {"gather_nd_above", nd, {f32({3, 2}), i32({1, 1}, {2})}, {f32({3, 2}), i32({1, 1}, {3})}, {"index 3", "3"}},
      {"gather_nd_below", nd, {f32({3, 2}), i32({1, 1}, {-3})}, {f32({3, 2}), i32({1, 1}, {-4})}, {"index -4", "3"}},
      {"gather_nd_of_nothing", nd, {f32({1, 2}), i32({1, 1}, {0})}, {f32({0, 2}), i32({1, 1}, {0})}, {"index 0", "0"}},
      {"gather_along_axis",
       along,
       {f32({3, 2}), i32({1, 2}, {2, 0}), axis},
       {f32({3, 2}), i32({1, 2}, {0, 9}), axis},
       {"index 9", "3"}},
      {"gather_along_wrong_axis",
       along,
       {f32({3, 2}), i32({1, 2}, {2, 0}), axis},
       {f32({3, 2}), i32({1, 2}, {0, 1}), i32({}, {2})},
       {"axis 2", "rank 2"}},
      {"scatter_nd",
       scatter,
       {f32({4}), i32({1, 1}, {3}), f32({1})},
       {f32({4}), i32({1, 1}, {4}), f32({1})},
       {"index 4", "4"}},
      {"scatter_nd_updates",
       scatter,
       {f32({4}), i32({1, 1}, {3}), f32({1})},
       {f32({4}), i32({1, 1}, {3}), f32({2})},
       {"[2]", "[1]"}},
      {"scatter_along_axis",
       scatter_along,
       {f32({4}), i32({1}, {3}), f32({1}), axis},
       {f32({4}), i32({1}, {-5}), f32({1}), axis},
       {"index -5", "4"}},
  };
}

std::vector<BadCase> shape_cases() {
  const std::string slice = op("primitive.slice_v1", {"?xf32", "1xsi32", "1xsi32", "1xsi32"}, "?xf32");
  const std::string update = op("primitive.slice_update_v1", {"?xf32", "1xsi32", "1xsi32", "1xsi32", "?xf32"}, "?xf32");
  const NDArray zero = i32({1}, {0}), one = i32({1}, {1}), two = i32({1}, {2});
  const std::string reshape = op("primitive.reshape_v2", {"?xf32", "2xsi32"}, "?x?xf32");
  const std::string add = op("broadcasting_add_v1", {"?x?xf32", "?xf32"}, "?x?xf32");
  const std::string concat = R"({"inputs":["?x?xf32","?x?xf32"],"steps":[["const","si32","00000000"],
      ["primitive.concat_v1",[2,0,1],["?x?xf32"],{}]],"outputs":[3]})";
  const std::string split = R"({"inputs":["?xf32","2xui32"],"steps":[["const","si32","00000000"],
      ["primitive.split_v1",[0,1,2],["?xf32","?xf32"],{}]],"outputs":[3,4]})";
  const std::string to = op("primitive.broadcast_to_v1", {"?xf32", "2xui32"}, "?x?xf32");
  const std::string range = op("primitive.range_v1", {"si32", "si32", "si32"}, "?xsi32");
  const std::string matmul = op("broadcasting_batch_matmul_v1", {"?x?xf32", "?x?xf32"}, "?x?xf32");
  const std::string pad = op("primitive.pad_v1", {"?xf32", "2xui32", "f32"}, "?xf32", R"({"padding_mode":2})");
  const std::string pad_both = op("primitive.pad_v1", {"?x?xf32", "4xui32", "f32"}, "?x?xf32", R"({"padding_mode":1})");
  const std::string sum = op("reduce_sum_v1", {"?x?xf32", "1xsi32"}, "?x?xf32");
  const std::string transpose = op("primitive.transpose_v1", {"?x?xf32", "2xui32"}, "?x?xf32");
  const std::string tile = op("tile_v2", {"?x?xf32", "2xui32"}, "?x?xf32");
  const std::string shrink = op("primitive.shrink_dims_v1", {"?x?xf32", "1xsi32"}, "?xf32");
  const std::string argmax = R"({"inputs":["?xf32"],"steps":[["const","si32","00000000"],
      ["argmax_v1",[0,1],["1xui32"],{}]],"outputs":[2]})";
  const std::string refine = op("primitive.cast_v1", {"?xf32"}, "3xf32");
  return {
      {"slice_stride_zero", slice, {f32({5}), zero, two, one}, {f32({5}), zero, two, zero}, {"stride", "0"}},
      {"slice_update_stride_zero",
       update,
       {f32({5}), zero, two, one, f32({2})},
       {f32({5}), zero, two, zero, f32({2})},
       {"stride", "0"}},
      {"slice_update_longer",
       update,
       {f32({5}), zero, two, one, f32({2})},
       {f32({5}), zero, two, one, f32({3})},
       {"[3]", "[2]"}},
      {"reshape_count", reshape, {f32({6}), i32({2}, {2, -1})}, {f32({6}), i32({2}, {4, 2})}, {"[6]", "4", "2"}},
      {"reshape_remainder", reshape, {f32({6}), i32({2}, {2, -1})}, {f32({6}), i32({2}, {4, -1})}, {"[6]", "4"}},
      {"reshape_two_unknown", reshape, {f32({6}), i32({2}, {2, -1})}, {f32({6}), i32({2}, {-1, -1})}, {"-1"}},
      {"reshape_negative", reshape, {f32({6}), i32({2}, {2, -1})}, {f32({6}), i32({2}, {-2, -3})}, {"-2"}},
      {"reshape_overflow",
       reshape,
       {f32({6}), i32({2}, {2, 3})},
       {f32({6}), i32({2}, {2147483647, 2147483647})},
       {"[6]", "2147483647"}},
      {"broadcast_mismatch", add, {f32({2, 3}), f32({3})}, {f32({2, 3}), f32({4})}, {"[2x3]", "[4]"}},
      {"concat_mismatch", concat, {f32({2, 3}), f32({1, 3})}, {f32({2, 3}), f32({1, 4})}, {"2x3", "1x4"}},
      {"split_sections", split, {f32({5}), u32({2}, {2, 3})}, {f32({5}), u32({2}, {2, 4})}, {"sections [2, 4]", "5"}},
      {"broadcast_to_mismatch", to, {f32({3}), u32({2}, {2, 3})}, {f32({3}), u32({2}, {2, 4})}, {"[3]", "4"}},
      {"broadcast_to_overflow",
       to,
       {f32({1}), u32({2}, {2, 3})},
       {f32({1}), u32({2}, {4294967295u, 4294967295u})},
       {"4294967295"}},
      {"range_step_zero",
       range,
       {i32({}, {0}), i32({}, {4}), i32({}, {2})},
       {i32({}, {0}), i32({}, {4}), i32({}, {0})},
       {"step"}},
      {"matmul_inner", matmul, {f32({2, 3}), f32({3, 4})}, {f32({2, 3}), f32({5, 4})}, {"2x3", "5x4"}},
      {"pad_reflect_beyond",
       pad,
       {f32({3}), u32({2}, {1, 1}), f32({})},
       {f32({3}), u32({2}, {3, 0}), f32({})},
       {"3", "reflect"}},
      {"pad_overflow",
       pad_both,
       {f32({2, 3}), u32({4}, {1, 1, 1, 1}), f32({})},
       {f32({2, 3}), u32({4}, {4294967295u, 1, 4294967295u, 1}), f32({})},
       {"4294967298x4294967299"}},
      {"reduce_axis", sum, {f32({2, 3}), one}, {f32({2, 3}), two}, {"axis 2", "rank 2"}},
      {"transpose_twice", transpose, {f32({2, 3}), u32({2}, {1, 0})}, {f32({2, 3}), u32({2}, {1, 1})}, {"1"}},
      {"transpose_axis", transpose, {f32({2, 3}), u32({2}, {1, 0})}, {f32({2, 3}), u32({2}, {2, 0})}, {"2"}},
      {"tile_overflow",
       tile,
       {f32({2, 3}), u32({2}, {2, 1})},
       {f32({2, 3}), u32({2}, {4294967295u, 4294967295u})},
       {"8589934590x12884901885"}},
      {"shrink_not_one", shrink, {f32({1, 3}), zero}, {f32({2, 3}), zero}, {"[2x3]"}},
      {"argmax_of_nothing", argmax, {f32({3})}, {f32({0})}, {"[0]"}},
      {"cast_refines", refine, {f32({3})}, {f32({4})}, {"[4]", "[3]"}},
  };
}

std::vector<BadCase> window_cases() {
  const std::string conv = R"({"inputs":["1x1x?x?xf32","1x1x3x3xf32"],"steps":[["const","2xui32","0100000001000000"],
      ["const","ui32","01000000"],["primitive.conv2d_v1",[0,1,2,2,3],["1x1x?x?xf32"],{}]],"outputs":[4]})";
  const std::string pool = R"({"inputs":["1x1x?x?xf32","2xui32"],"steps":[["const","2xui32","0100000001000000"],
      ["primitive.sum_pool_2d_v1",[0,1,2,2],["1x1x?x?xf32"],{}]],"outputs":[3]})";
  const std::string max_pool = R"({"inputs":["1x1x?x?xf32","2xui32","2xui32"],"steps":[
      ["const","2xui32","0100000001000000"],["const","i1","00"],
      ["primitive.max_pool_2d_v1",[0,1,2,3,4],["1x1x?x?xf32"],{}]],"outputs":[5]})";
  const std::string groups = R"({"inputs":["1x?x3x3xf32","2x1x1x1xf32","ui32"],"steps":[
      ["const","2xui32","0100000001000000"],["primitive.conv2d_v1",[0,1,3,3,2],["1x2x?x?xf32"],{}]],"outputs":[4]})";
  const NDArray ones = u32({2}, {1, 1}), two = u32({2}, {2, 2});
  return {
      {"conv_kernel",
       conv,
       {f32({1, 1, 3, 4}), f32({1, 1, 3, 3})},
       {f32({1, 1, 2, 4}), f32({1, 1, 3, 3})},
       {"1x1x2x4", "1x1x3x3", "kernel"}},
      {"conv_groups",
       groups,
       {f32({1, 2, 3, 3}), f32({2, 1, 1, 1}), u32({}, {2})},
       {f32({1, 2, 3, 3}), f32({2, 1, 1, 1}), u32({}, {0})},
       {"group"}},
      {"sum_pool_window", pool, {f32({1, 1, 3, 4}), two}, {f32({1, 1, 1, 4}), two}, {"1x1x1x4", "window"}},
      {"max_pool_window",
       max_pool,
       {f32({1, 1, 3, 4}), two, ones},
       {f32({1, 1, 1, 4}), two, ones},
       {"1x1x1x4", "window"}},
      {"max_pool_stride", max_pool, {f32({1, 1, 3, 4}), two, ones}, {f32({1, 1, 3, 4}), two, u32({2}, {0, 1})}, {"0"}},
  };
}

std::vector<BadCase> number_cases() {
  std::vector<BadCase> cases;
  for (const std::string name : {"divide", "floor_divide", "modulo"}) {
    cases.push_back({name + "_by_zero",
                     op("broadcasting_" + name + "_v1", {"?xsi32", "?xsi32"}, "?xsi32"),
                     {i32({2}, {7, -7}), i32({2}, {2, 2})},
                     {i32({2}, {7, -7}), i32({2}, {2, 0})},
                     {"division by zero", "[2]si32"}});
    cases.push_back({name + "_unsigned_by_zero",
                     op("broadcasting_" + name + "_v1", {"?xui32", "ui32"}, "?xui32"),
                     {u32({1}, {7}), u32({}, {2})},
                     {u32({1}, {7}), u32({}, {0})},
                     {"division by zero", "[]ui32"}});
  }
  cases.push_back(
      {"scatter_divides_by_zero",
       op("primitive.scatter_along_axis_v1", {"2xsi32", "?xsi32", "?xsi32", "si32"}, "2xsi32", R"({"scatter_mode":4})"),
       {i32({2}, {7, 8}), i32({1}, {0}), i32({1}, {2}), i32({}, {0})},
       {i32({2}, {7, 8}), i32({1}, {1}), i32({1}, {0}), i32({}, {0})},
       {"division by zero", "[2]si32"}});
  return cases;
}

std::vector<BadCase> all_cases() {
  std::vector<BadCase> cases;
  for (const auto& list : {index_cases(), shape_cases(), window_cases(), number_cases()}) {
    cases.insert(cases.end(), list.begin(), list.end());
  }
  return cases;
}

class BadInput : public testing::TestWithParam<Precision> {
 protected:
  BadInput() { fs::create_directories(folder_); }
  ~BadInput() override { fs::remove_all(folder_); }

  AIModel load(const std::vector<std::pair<std::string, std::string>>& programs) const {
    nlohmann::json cases = nlohmann::json::array();
    for (const auto& [name, program] : programs) {
      cases.push_back({{"function", name}, {"program", nlohmann::json::parse(program)}});
    }
    testing_support::write_programs(cases, folder_ / "bad.aimodel");
    SpecializationOptions options;
    options.precision = GetParam();
    options.threads = 2;
    options.use_cache = false;
    return AIModel::load(folder_ / "bad.aimodel", options);
  }
  static NamedArrays named(const Arrays& arrays) {
    NamedArrays inputs;
    for (std::size_t i = 0; i < arrays.size(); ++i) inputs.emplace_back(fmt::format("x{}", i), arrays[i]);
    return inputs;
  }
  // Runs what must fail; the text of the error, which names the function.
  static std::string error_of(const std::string& function, const std::function<void()>& call) {
    try {
      call();
    } catch (const InternalError& error) {
      ADD_FAILURE() << function << ": an invariant instead of a check: " << error.what();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(function), std::string::npos) << function << ": " << error.what();
      return error.what();
    }
    ADD_FAILURE() << function << ": no error";
    return "";
  }

  const fs::path folder_ =
      fs::temp_directory_path() / fmt::format("bad_input_{}_{}", getpid(), precision_name(GetParam()));
};

TEST_P(BadInput, EachOperationSaysWhatIsWrongAndRunsAgain) {
  std::vector<std::pair<std::string, std::string>> programs;
  for (const BadCase& item : all_cases()) programs.emplace_back(item.name, item.program);
  const AIModel model = load(programs);
  for (const BadCase& item : all_cases()) {
    const InferenceFunction function = model.load_function(item.name);
    const NamedArrays before = function.run(named(item.good));
    const std::string text = error_of(item.name, [&] { function.run(named(item.bad)); });
    for (const std::string& part : item.says) {
      EXPECT_NE(text.find(part), std::string::npos) << item.name << ": no \"" << part << "\" in: " << text;
    }
    const NamedArrays after = function.run(named(item.good));
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(before[i].second.bytes(), after[i].second.bytes())) << item.name;
    }
  }
}

TEST_P(BadInput, ACallThatDoesNotFitTheDescriptorIsRefused) {
  const AIModel model = load({{"adds", op("broadcasting_add_v1", {"2x?xf32", "?xf32"}, "2x?xf32")}});
  const InferenceFunction function = model.load_function("adds");
  const NamedArrays good = {{"x0", f32({2, 3})}, {"x1", f32({3})}};
  struct Call {
    NamedArrays inputs;
    std::vector<std::string> says;
  };
  const std::vector<Call> calls = {
      {{{"x0", f32({4, 3})}, {"x1", f32({3})}}, {"x0", "[4x3]f32", "[2x?]f32"}},
      {{{"x0", f32({2, 3, 1})}, {"x1", f32({3})}}, {"x0", "[2x3x1]f32", "[2x?]f32"}},
      {{{"x0", f32({})}, {"x1", f32({3})}}, {"x0", "[]f32", "[2x?]f32"}},
      {{{"x0", f32({2, 3})}, {"x1", i32({3}, {1, 2, 3})}}, {"x1", "[3]si32", "[?]f32"}},
      {{{"x0", f32({2, 3})}}, {"x1", "missing"}},
      {{{"x0", f32({2, 3})}, {"x1", NDArray()}}, {"x1", "missing"}},
      {{{"x0", f32({2, 3})}, {"x1", f32({3})}, {"x2", f32({3})}}, {"x2", "x0, x1"}},
      {{{"x0", f32({2, 3})}, {"x1", f32({3})}, {"x1", f32({3})}}, {"x1", "twice"}},
  };
  for (const Call& call : calls) {
    const std::string text = error_of("adds", [&] { function.run(call.inputs); });
    for (const std::string& part : call.says) EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
    EXPECT_EQ(function.run(good)[0].second.values<float>()[5], 2.0f);
  }
  EXPECT_THROW(model.load_function("subtracts"), NotFoundError);
  EXPECT_THROW(NDArray(DType::kF32, {std::int64_t{1} << 40, std::int64_t{1} << 40}), ShapeError);
  EXPECT_THROW(NDArray(DType::kF32, {2, kDynamic}), ShapeError);
  EXPECT_THROW(NDArray(DType::kF32, {-2, 3}), ShapeError);
}

TEST_P(BadInput, AStateThatIsMissingOrOfAnotherKindIsRefused) {
  ir::Module module;
  ir::Builder builder(module);
  const ir::TypeRef tensor = builder.context().tensor_type(DType::kF32, {3});
  const ir::TypeRef token = builder.context().token_type();
  ir::GraphSpec spec;
  spec.name = "counts";
  spec.inputs = {{"step", tensor, ""}, {"total", builder.context().handle_type(tensor), "new_total"}};
  spec.outputs = {{"new_total", token, ""}, {"sum", tensor, ""}};
  const auto arguments = builder.begin_graph(spec).body().arguments;
  ir::Value* start = builder.op1(ir::OpCode::kCreateToken, {}, token);
  const auto read = builder.op(ir::OpCode::kReadHandle, {arguments[1], start}, {tensor, token});
  ir::Value* sum = builder.op1(ir::OpCode::kBroadcastingAdd, {read[0], arguments[0]}, tensor);
  ir::Value* written = builder.op1(ir::OpCode::kWriteHandle, {arguments[1], sum, read[1]}, token);
  const auto again = builder.op(ir::OpCode::kReadHandle, {arguments[1], written}, {tensor, token});
  builder.end_graph({again[1], again[0]});
  save_asset(module, folder_ / "state.aimodel", {});
  SpecializationOptions options;
  options.precision = GetParam();
  options.use_cache = false;
  const InferenceFunction function = AIModel::load(folder_ / "state.aimodel", options).load_function("counts");
  const NamedArrays one = {{"step", f32({3})}};

  EXPECT_NE(error_of("counts", [&] { function.run(one); }).find("state \"total\" is missing"), std::string::npos);
  EXPECT_NE(error_of("counts", [&] { (void)function.make_state("sum", {3}); }).find("total"), std::string::npos);
  const std::string text = error_of("counts", [&] { (void)function.make_state("total", {4}); });
  EXPECT_NE(text.find("[4]f32"), std::string::npos) << text;
  EXPECT_NE(text.find("[3]f32"), std::string::npos) << text;
  State state = function.make_state("total", {3});
  EXPECT_THROW(state.write(f32({4})), ShapeError);
  EXPECT_THROW(state.write(i32({3}, {1, 2, 3})), ShapeError);
  EXPECT_THROW(state.grow({4}), ShapeError);
  State* states[] = {&state};
  State* twice[] = {&state, &state};
  EXPECT_EQ(function.run(one, states)[0].second.values<float>()[0], 1.0f);
  EXPECT_EQ(function.run(one, twice)[0].second.values<float>()[0], 2.0f) << "one state named twice is one state";
  EXPECT_EQ(state.read().values<float>()[2], 2.0f);
}

INSTANTIATE_TEST_SUITE_P(Executors, BadInput, testing::Values(Precision::kStrict, Precision::kFaithful),
                         [](const auto& test) { return std::string(precision_name(test.param)); });

}  // namespace
}  // namespace coreai
