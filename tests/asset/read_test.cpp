#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coreai/base/error.h"
#include "fixtures.h"

namespace coreai {
namespace {

using ir::OpCode;
using test::fixture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<ir::Module> load(const std::string& relative) {
  return AIModelAsset::open(fixture(relative)).load_module();
}

std::vector<OpCode> body_codes(const ir::Module& module, std::string_view graph) {
  std::vector<OpCode> codes;
  for (const auto& op : module.find_graph(graph).value().body().ops) codes.push_back(op->code);
  return codes;
}

// The constants of `main` by the name of the output they feed.
std::map<std::string, const ir::Op*> constants_by_output(const ir::Module& module) {
  std::map<std::string, const ir::Op*> constants;
  const ir::Graph main = module.find_graph("main").value();
  const std::vector<std::string> names = main.output_names();
  const auto& operands = main.body().terminator().operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i]->op && operands[i]->op->code == OpCode::kConstant) constants[names[i]] = operands[i]->op;
  }
  return constants;
}

TEST(Read, EveryFixture) {
  int read = 0;
  for (const char* folder : {"format_fixtures", "op_assets"}) {
    for (const auto& path : test::assets_below(fixture(folder))) {
      SCOPED_TRACE(path.string());
      const AIModelAsset asset = AIModelAsset::open(path);
      if (path.stem() == "encoding_version_3") {
        EXPECT_THROW(asset.load_module(), UnsupportedError);
        continue;
      }
      ASSERT_NO_THROW({
        const auto module = asset.load_module();
        EXPECT_FALSE(module->body().ops.empty());
        summarize(*module);
      });
      ++read;
    }
  }
  EXPECT_GT(read, 170);
}

TEST(Read, GraphAndTypes) {
  const auto module = load("op_assets/composite_rms_norm.aimodel");
  std::optional<ir::CompositeDecl> composite;
  for (const ir::Graph& graph : module->graphs()) {
    if (!composite) composite = graph.composite();
  }
  ASSERT_TRUE(composite);
  EXPECT_EQ(composite->name, "rms_norm");
  EXPECT_THAT(composite->input_names, ElementsAre("input", "scale"));
  EXPECT_EQ(composite->attribute("axes")->as_int(), -1);
  EXPECT_GT(composite->attribute("eps")->as_float(), 0.0);
  ASSERT_EQ(module->functions().size(), 1u);
  const ir::Graph main = module->functions()[0];
  EXPECT_EQ(main.body().arguments[0]->type->shape()[1], kDynamic);
  for (const auto& op : main.body().ops) {
    EXPECT_TRUE(op->code != OpCode::kInvoke || module->callee(*op).composite());
  }
}

TEST(Read, NamespacesAndStates) {
  const auto names = load("op_assets/namespace.aimodel");
  bool nested = false;
  for (const ir::Graph& graph : names->graphs()) nested |= graph.symbol().find("::") != std::string::npos;
  EXPECT_TRUE(nested);

  const auto states = load("op_assets/states_two.aimodel");
  const FunctionDescriptor function = describe(states->functions().at(0));
  EXPECT_EQ(function.states.size(), 2u);
  EXPECT_FALSE(function.outputs.empty());
  for (const ValueDescriptor& output : function.outputs) EXPECT_EQ(output.type_name.find("token"), std::string::npos);
}

TEST(Read, ConstantsKeepTheirValues) {
  const auto module = load("format_fixtures/const_subbyte_run.aimodel");
  // Values that the reference's interpreter gave for the same packed bytes; `o_X` is fed by the constant of dtype X.
  const std::map<DType, std::vector<double>> expected = {{DType::kF4E2M1FN, {1, -3, 6}},
                                                         {DType::kSI2, {0, 1, -2, -1, 1}},
                                                         {DType::kSI4, {0, 7, -8, -1, 3, -4}},
                                                         {DType::kUI1, {1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1}},
                                                         {DType::kUI2, {0, 1, 2, 3, 1}},
                                                         {DType::kUI3, {1, 2, 4, 7, 5}},
                                                         {DType::kUI4, {1, 8, 15}},
                                                         {DType::kUI6, {1, 32, 63, 5, 17}}};
  std::size_t checked = 0;
  for (const auto& op : module->find_graph("main")->body().ops) {
    if (op->code != OpCode::kConstant || !expected.contains(op->results[0]->type->dtype())) continue;
    const NDArray value = ir::constant_value(*op);
    const std::vector<double>& want = expected.at(value.dtype());
    ASSERT_EQ(static_cast<std::size_t>(value.element_count()), want.size());
    std::vector<double> have(want.size());
    read_as_f64(value, have);
    EXPECT_EQ(have, want) << dtype_name(value.dtype());
    ++checked;
  }
  EXPECT_EQ(checked, expected.size());
}

TEST(Read, WeightsStayMapped) {
  const AIModelAsset asset = AIModelAsset::open(fixture("format_fixtures/const_resource.aimodel"));
  const auto module = asset.load_module();
  const auto bytes = asset.program_bytes();
  int resources = 0;
  for (const auto& [name, op] : constants_by_output(*module)) {
    if (!op->required("value").is(ir::AttrCode::kSerializationDenseResource)) continue;
    const NDArray value = ir::constant_value(*op);
    EXPECT_GE(value.bytes().data(), bytes.data()) << name;
    EXPECT_LT(value.bytes().data(), bytes.data() + bytes.size()) << name;
    EXPECT_FALSE(value.storage()->writable());
    ++resources;
  }
  EXPECT_GT(resources, 10);
}

TEST(Read, InlineAndResourceFormsAgree) {
  // Both fixtures author the same values, once inline and once as resources.
  const auto inline_module = load("format_fixtures/const_inline.aimodel");
  const auto resource_module = load("format_fixtures/const_resource.aimodel");
  for (const ir::Module* module : {inline_module.get(), resource_module.get()}) {
    for (const auto& [name, op] : constants_by_output(*module)) {
      const NDArray value = ir::constant_value(*op);
      EXPECT_EQ(value.shape(), op->results[0]->type->shape()) << name;
      if (const auto splat = ir::constant_splat(*op); splat && !is_complex(value.dtype())) {
        std::vector<double> all(static_cast<std::size_t>(value.element_count())), one(1);
        read_as_f64(value, all);
        read_as_f64(*splat, one);
        for (const double element : all) EXPECT_EQ(element, one[0]) << name;
      }
    }
  }
}

TEST(Read, OldVersionsAreUpgraded) {
  EXPECT_THAT(body_codes(*load("op_assets/get_shape_v1.aimodel"), "main"),
              ElementsAre(OpCode::kGetShape, OpCode::kCast, OpCode::kOutput));
  EXPECT_THAT(body_codes(*load("op_assets/reshape_v1.aimodel"), "main"),
              ElementsAre(OpCode::kReshape, OpCode::kOutput));
  EXPECT_THAT(body_codes(*load("op_assets/tile_v1.aimodel"), "main"),
              ElementsAre(OpCode::kCast, OpCode::kTile, OpCode::kOutput));
  EXPECT_THAT(body_codes(*load("op_assets/quantize_v1.aimodel"), "main"),
              ElementsAre(OpCode::kConstant, OpCode::kConstant, OpCode::kQuantize, OpCode::kOutput));
  EXPECT_THAT(body_codes(*load("op_assets/blockwise_shift_scale_v1.aimodel"), "main"),
              ElementsAre(OpCode::kConstant, OpCode::kBlockwiseShiftScale, OpCode::kOutput));
  const auto module = load("op_assets/dequantize_v1.aimodel");
  const ir::Op& op = *module->find_graph("main")->body().ops.at(2);
  ASSERT_EQ(op.code, OpCode::kDequantize);
  EXPECT_EQ(op.operands.size(), 5u);
  EXPECT_EQ(op.operand_type(3)->dtype(), DType::kF32);
  EXPECT_EQ(op.operand_type(4)->dtype(), DType::kSI32);
  EXPECT_EQ(op.regions.at(0).block().arguments.size(), 5u);

  ReadOptions as_is;
  as_is.upgrade = false;
  const AIModelAsset asset = AIModelAsset::open(fixture("op_assets/tile_v1.aimodel"));
  const auto old = read_bytecode(test::storage_of(asset.program_bytes()), "tile_v1", as_is);
  EXPECT_THAT(body_codes(*old, "main"), ElementsAre(OpCode::kTileV1, OpCode::kOutput));
}

TEST(Read, LegacyLocationsBecomeCurrentOnes) {
  const auto module = load("format_fixtures/loc_builtin_legacy.aimodel");
  const ir::AttrRef location = module->find_graph("main")->op().location;
  ASSERT_TRUE(location->is(ir::AttrCode::kDebuginfoLocation));
  const ir::AttrRef source = location->field<ir::AttrRef>(0);
  EXPECT_EQ(source->field<ir::AttrRef>(0)->field<std::string>(0), "-");
  EXPECT_GT(source->field<std::uint64_t>(1), 0u);
}

}  // namespace
}  // namespace coreai
