#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "coreai/base/error.h"
#include "coreai/ir/builder.h"
#include "fixtures.h"
#include "program_dump.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using ir::OpCode;
using test::fixture;

std::unique_ptr<ir::Module> read(std::span<const std::byte> bytes) {
  return read_bytecode(test::storage_of(bytes), "rewritten");
}

// Reads, writes and reads again: the same program, and from then on the same bytes.
void expect_identity(const fs::path& path) {
  SCOPED_TRACE(path.string());
  const AIModelAsset asset = AIModelAsset::open(path);
  const auto original = asset.load_module();
  const std::vector<std::byte> bytes = write_bytecode(*original);
  const auto again = read(bytes);
  EXPECT_EQ(test::ProgramDump::of(*original), test::ProgramDump::of(*again));
  EXPECT_EQ(write_bytecode(*again), bytes);
}

TEST(Write, EveryFixtureComesBackTheSame) {
  for (const char* folder : {"format_fixtures", "op_assets"}) {
    for (const auto& path : test::assets_below(fixture(folder))) {
      if (path.stem() != "encoding_version_3") expect_identity(path);
    }
  }
}

TEST(Write, EveryRecordedAssetComesBackTheSame) {
  const fs::path shared = fs::path(COREAI_SOURCE_DIR) / "../shared/data";
  if (!fs::exists(shared)) GTEST_SKIP() << "no recorded assets at " << shared;
  for (const char* folder : {"op_goldens", "tiny_llm", "genuine"}) {
    for (const auto& path : test::assets_below(shared / folder)) expect_identity(path);
  }
}

// The date that the genuine writer put into a file is the one that ours computes.
TEST(Write, ModuleVersionIsTheNewestDateUsed) {
  int compared = 0;
  for (const auto& path : test::assets_below(fixture("op_assets"))) {
    const AIModelAsset asset = AIModelAsset::open(path);
    const std::string stem = path.stem().string();
    // Re-encoded by hand from another version: their date was not computed.
    if (stem.ends_with("_v1") || asset.metadata().producer.empty()) continue;
    const auto original = asset.load_module();
    const ir::AttrRef stated = original->root().attribute("version");
    if (!stated) continue;
    const auto again = read(write_bytecode(*original));
    EXPECT_EQ(again->root().attribute("version")->as_int(), stated->as_int()) << stem;
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST(Write, StrippedLocations) {
  const auto module = AIModelAsset::open(fixture("format_fixtures/loc_python.aimodel")).load_module();
  WriteOptions options;
  options.strip_locations = true;
  const std::vector<std::byte> bare = write_bytecode(*module, options);
  EXPECT_LT(bare.size(), write_bytecode(*module).size());
  const auto again = read(bare);
  EXPECT_EQ(again->find_graph("main")->op().location, again->context().unknown_location());
}

// A program of every kind of constant and region, from nothing.
std::unique_ptr<ir::Module> built_module() {
  auto module = std::make_unique<ir::Module>();
  ir::Builder builder(*module);
  ir::Context& context = module->context();
  const ir::TypeRef tensor = context.tensor_type(DType::kF32, {20, 20});
  const ir::Graph graph = builder.begin_graph({"main", {{"x", tensor, ""}}, {{"y", tensor, ""}}, false, false, {}});
  std::vector<float> weights(400);
  std::iota(weights.begin(), weights.end(), 0.5f);
  ir::Value* sum = builder.op1(
      OpCode::kBroadcastingAdd,
      {graph.body().arguments[0], builder.constant(NDArray::from<float>(DType::kF32, {20, 20}, weights))}, tensor);
  ir::Value* condition = builder.splat(DType::kI1, {}, 1.0);
  ir::Op& branch = builder.create(OpCode::kIf, {condition}, {tensor});
  ir::Block* outer = builder.block();
  for (ir::Region& region : branch.regions) {
    builder.set_block(&region.block());
    builder.op(OpCode::kYield, {builder.op1(OpCode::kSin, {sum}, tensor)}, {});
  }
  builder.set_block(outer);
  builder.end_graph({builder.op1(OpCode::kAdd, {branch.results[0], sum}, tensor)});
  return module;
}

TEST(Write, BuiltProgram) {
  const auto module = built_module();
  const std::vector<std::byte> bytes = write_bytecode(*module);
  const auto again = read(bytes);
  EXPECT_EQ(test::ProgramDump::of(*module), test::ProgramDump::of(*again));
  EXPECT_EQ(write_bytecode(*built_module()), bytes);  // equal modules give equal bytes
  ASSERT_EQ(again->resources.size(), 1u);
  EXPECT_EQ(again->resources[0]->offset % 16, 0u);
  EXPECT_EQ(again->resources[0]->name, module->resources[0]->name);
}

TEST(Write, RefusesWhatCannotBeRead) {
  {
    const auto module = built_module();
    module->find_graph("main")->op().set_attribute("name", nullptr);
    EXPECT_THROW(write_bytecode(*module), VerificationError);
  }
  {
    // A value from inside the branch used outside of it.
    const auto module = built_module();
    ir::Block& body = module->find_graph("main")->body();
    for (const auto& op : body.ops) {
      if (op->code == OpCode::kIf) body.terminator().operands[0] = op->regions[0].block().ops[0]->results[0];
    }
    EXPECT_THROW(write_bytecode(*module), VerificationError);
  }
  {
    const auto module = built_module();
    for (const auto& op : module->find_graph("main")->body().ops) {
      if (op->code != OpCode::kConstant || !op->attributes[0]->is(ir::AttrCode::kSerializationDenseResource)) continue;
      auto twin = std::make_shared<const ir::Resource>(*module->resources[0]);
      auto copy = std::make_unique<ir::Op>();
      copy->code = OpCode::kConstant;
      copy->attributes = {module->context().resource_attr(twin)};
      ir::Value* value = module->new_value(op->results[0]->type);
      value->op = copy.get();
      copy->results = {value};
      auto& ops = module->find_graph("main")->body().ops;
      ops.insert(ops.begin(), std::move(copy));
      break;
    }
    EXPECT_THROW(write_bytecode(*module), VerificationError);
  }
}

class SaveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("coreai_save_test_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path root_;
};

TEST_F(SaveTest, ThreeFilesAppearTogether) {
  const auto module = built_module();
  AIModelAssetMetadata metadata;
  metadata.author = "A \"quoted\" name";
  metadata.raw_json = R"({"assetVersion": "2.0", "kept": [1, 2]})";
  save_asset(*module, root_ / "m.aimodel", metadata);
  const AIModelAsset asset = AIModelAsset::open(root_ / "m.aimodel");
  EXPECT_EQ(asset.metadata().author, metadata.author);
  EXPECT_NE(asset.metadata().raw_json.find("kept"), std::string::npos);
  EXPECT_EQ(test::ProgramDump::of(*asset.load_module()), test::ProgramDump::of(*module));
  EXPECT_THROW(save_asset(*module, root_ / "m.aimodel", metadata), IoError);  // never overwritten
  EXPECT_THROW(save_asset(*module, root_ / "m.other", metadata), InvalidArgumentError);
  EXPECT_THROW(save_asset(*module, root_ / "none" / "m.aimodel", metadata), IoError);
  // Nothing half-written stays behind.
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
}

TEST_F(SaveTest, AFailureLeavesNothing) {
  const auto module = built_module();
  module->find_graph("main")->op().set_attribute("name", nullptr);
  EXPECT_THROW(save_asset(*module, root_ / "m.aimodel", {}), VerificationError);
  EXPECT_TRUE(fs::is_empty(root_));
}

}  // namespace
}  // namespace coreai
