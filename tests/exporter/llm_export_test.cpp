#include "coreai/exporter/llm_exporter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/exporter/tokenizer_export.h"
#include "exporter/gguf_bytes.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path fixture(const std::string& name) {
  return fs::path(COREAI_FIXTURE_DIR) / "gguf" / name;
}

class LlmExport : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("coreai_export_" + std::to_string(::getpid()) + "_" +
                                           testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::size_t entries() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {})); }
  fs::path folder_;
};

// Operations of all graphs, without those inside decompositions.
std::int64_t count(const ir::Module& module, ir::OpCode code) {
  std::int64_t found = 0;
  for (const ir::Graph& graph : module.graphs())
    for (const auto& op : graph.body().ops) found += op->code == code ? 1 : 0;
  return found;
}

const ValueDescriptor* find(const std::vector<ValueDescriptor>& values, const std::string& name) {
  for (const ValueDescriptor& value : values)
    if (value.name == name) return &value;
  return nullptr;
}

TEST_F(LlmExport, LlamaFollowsTheContract) {
  export_llm(fixture("tiny_llama.gguf"), folder_ / "out", {});
  EXPECT_EQ(entries(), 1u);
  const Json meta = Json::parse(read_text_file(folder_ / "out" / "metadata.json"));
  EXPECT_EQ(meta["metadata_version"], "0.2");
  EXPECT_EQ(meta["kind"], "llm");
  EXPECT_EQ(meta["name"], "tiny_llama");
  EXPECT_EQ(meta["assets"]["main"], "tiny_llama.aimodel");
  EXPECT_EQ(meta["language"]["vocab_size"], 512);
  EXPECT_EQ(meta["language"]["max_context_length"], 256);
  EXPECT_EQ(meta["language"]["function_map"]["main"], (Json::array({"main"})));
  EXPECT_TRUE(fs::exists(folder_ / "out" / "tokenizer" / "tokenizer.json"));
  EXPECT_TRUE(fs::exists(folder_ / "out" / "tokenizer" / "chat_template.jinja"));

  const auto asset = AIModelAsset::open(folder_ / "out" / "tiny_llama.aimodel");
  const AIModelAssetSummary summary = asset.summary();
  const auto module = asset.load_module();
  ASSERT_EQ(summary.functions.size(), 1u);
  const FunctionDescriptor& main = summary.functions[0];
  EXPECT_EQ(main.name, "main");
  ASSERT_EQ(main.inputs.size(), 2u);
  EXPECT_EQ(main.inputs[0].name, "input_ids");
  EXPECT_EQ(main.inputs[1].name, "position_ids");
  ASSERT_EQ(main.states.size(), 2u);
  EXPECT_EQ(main.states[0].name, "keyCache");
  EXPECT_EQ(main.states[0].shape, (Shape{2, 1, 2, kDynamic, 16}));
  EXPECT_EQ(main.states[0].dtype, DType::kF16);
  const ValueDescriptor* logits = find(main.outputs, "logits");
  ASSERT_NE(logits, nullptr);
  EXPECT_EQ(logits->dtype, DType::kF32);
  EXPECT_EQ(logits->shape, (Shape{1, kDynamic, 512}));
  EXPECT_EQ(module->graphs().size(), 1u + 4u);  // rms_norm, rope of q and of k, attention
  EXPECT_EQ(summary.composites, (std::vector<std::string>{"rms_norm", "rope", "scaled_dot_product_attention"}));
  EXPECT_EQ(count(*module, ir::OpCode::kInvoke), 5 + 2 * 3);
  EXPECT_EQ(count(*module, ir::OpCode::kWriteHandle), 4);
}

TEST_F(LlmExport, QuantisedBlocksStayQuantised) {
  const GgufFile file = GgufFile::open(fixture("tiny_llama.gguf"));
  const auto module = author_decoder(file, {});
  const AIModelAssetSummary summary = summarize(*module);
  // Layer 0: q Q4_1, k Q4_0, v Q5_0, o Q5_1, down Q8_0; layer 1: six of Q4_1; embedding Q8_0, head Q4_0.
  EXPECT_EQ(count(*module, ir::OpCode::kBlockwiseShiftScale), 5 + 6 + 2);
  EXPECT_EQ(summary.storage_bytes.at("ui4"), (64u * 64 + (64 + 32 + 32 + 64 + 96) * 64 + 64 * 96) / 2);
  EXPECT_EQ(summary.storage_bytes.at("si4"), (32u * 64 + 512 * 64) / 2);
  EXPECT_EQ(summary.storage_bytes.at("bf16"), 2u * 96 * 64);  // ffn_up of layer 0 as it is
}

TEST_F(LlmExport, GemmaHasItsNormsAndTwoKindsOfLayers) {
  const GgufFile file = GgufFile::open(fixture("tiny_gemma3.gguf"));
  const auto module = author_decoder(file, {});
  // Norms of three shapes, rope of q and k with two bases, two kinds of attention.
  EXPECT_EQ(module->graphs().size(), 1u + 3u + 4u + 2u);
  EXPECT_EQ(count(*module, ir::OpCode::kInvoke), 1 + 7 * (6 + 2 + 1));
  EXPECT_EQ(count(*module, ir::OpCode::kGelu), 7);
  // One dequantised embedding feeds the gather and, transposed, the head.
  EXPECT_EQ(count(*module, ir::OpCode::kBlockwiseShiftScale), 1 + 7 * 7);
}

TEST_F(LlmExport, WritesCompositesOutOnRequest) {
  LlmExportOptions options;
  options.composites = false;
  const GgufFile file = GgufFile::open(fixture("tiny_llama.gguf"));
  const auto module = author_decoder(file, options);
  EXPECT_EQ(module->graphs().size(), 1u);
  EXPECT_EQ(count(*module, ir::OpCode::kInvoke), 0);
  EXPECT_EQ(count(*module, ir::OpCode::kSoftmax), 2);
}

TEST_F(LlmExport, PrecisionsOfActivationsAndStates) {
  const auto types = [](DType compute, std::optional<DType> kv) {
    LlmExportOptions options;
    options.compute_precision = compute;
    options.kv_precision = kv;
    const GgufFile file = GgufFile::open(fixture("tiny_llama.gguf"));
    const FunctionDescriptor main = summarize(*author_decoder(file, options)).functions.at(0);
    return std::pair(find(main.outputs, "logits")->dtype, main.states.at(0).dtype);
  };
  EXPECT_EQ(types(DType::kF32, DType::kF32), std::pair(DType::kF32, DType::kF32));
  EXPECT_EQ(types(DType::kF16, std::nullopt), std::pair(DType::kF16, DType::kF16));
  EXPECT_EQ(types(DType::kBF16, std::nullopt), std::pair(DType::kF16, DType::kBF16));
}

TEST_F(LlmExport, EqualExportsAreEqual) {
  const GgufFile file = GgufFile::open(fixture("tiny_gemma3.gguf"));
  EXPECT_EQ(write_bytecode(*author_decoder(file, {})), write_bytecode(*author_decoder(file, {})));
}

TEST_F(LlmExport, RefusesAnExistingOutputUnlessAskedAndReplacesOnlyBundles) {
  const fs::path out = folder_ / "out";
  export_llm(fixture("tiny_llama.gguf"), out, {});
  EXPECT_THROW(export_llm(fixture("tiny_llama.gguf"), out, {}), InvalidArgumentError);
  LlmExportOptions options;
  options.overwrite = true;
  options.name = "other";
  options.max_context = 100;
  export_llm(fixture("tiny_llama.gguf"), out, options);
  EXPECT_TRUE(fs::exists(out / "other.aimodel"));
  EXPECT_FALSE(fs::exists(out / "tiny_llama.aimodel"));
  EXPECT_EQ(Json::parse(read_text_file(out / "metadata.json"))["language"]["max_context_length"], 100);
  EXPECT_EQ(entries(), 1u);
  fs::create_directories(folder_ / "precious");
  std::ofstream(folder_ / "precious" / "thesis.txt") << "text";
  EXPECT_THROW(export_llm(fixture("tiny_llama.gguf"), folder_ / "precious", options), InvalidArgumentError);
  EXPECT_TRUE(fs::exists(folder_ / "precious" / "thesis.txt"));
}

TEST_F(LlmExport, LeavesNothingBehindWhenStoppedOrFailing) {
  std::stop_source stop;
  const auto progress = [&](std::string_view phase, std::uint64_t done, std::uint64_t total) {
    if (phase == "converting" && done > total / 2) stop.request_stop();
  };
  EXPECT_THROW(export_llm(fixture("tiny_gemma3.gguf"), folder_ / "out", {}, progress, stop.get_token()),
               CancelledError);
  EXPECT_EQ(entries(), 0u);
  EXPECT_THROW(export_llm(fixture("quant_types.gguf"), folder_ / "out", {}), UnsupportedError);
  EXPECT_THROW(export_llm(fixture("absent.gguf"), folder_ / "out", {}), NotFoundError);
  EXPECT_EQ(entries(), 0u);
  EXPECT_THROW(export_llm(fixture("tiny_llama.gguf"), folder_ / "no" / "out", {}), IoError);
}

TEST_F(LlmExport, RefusesOptionsThatMakeNoSense) {
  LlmExportOptions options;
  options.compute_precision = DType::kSI8;
  EXPECT_THROW(export_llm(fixture("tiny_llama.gguf"), folder_ / "out", options), InvalidArgumentError);
  options = {};
  options.max_context = 257;
  EXPECT_THROW(export_llm(fixture("tiny_llama.gguf"), folder_ / "out", options), InvalidArgumentError);
  options = {};
  options.name = "a/b";
  EXPECT_THROW(export_llm(fixture("tiny_llama.gguf"), folder_ / "out", options), InvalidArgumentError);
}

// A llama checkpoint without tensors but an embedding, with one more metadata pair.
template <typename Value>
void expect_refused(std::string_view key, Value value, const std::string& part) {
  GgufBytes bytes;
  bytes.header(2, 8).pair("general.architecture", std::string_view("llama")).pair("llama.block_count", 1u);
  bytes.pair("llama.embedding_length", 8u).pair("llama.feed_forward_length", 8u).pair("llama.context_length", 8u);
  bytes.pair("llama.attention.head_count", 2u);
  bytes.text("llama.attention.layer_norm_rms_epsilon").put<std::uint32_t>(6).put(1e-5f);
  bytes.pair(key, value).tensor("token_embd.weight", {8, 4}, 0, 0);
  bytes.tensor("blk.0.attn_q.weight", {8, 8}, 0, 128).zeros(128 + 256 + 64);
  try {
    author_decoder(bytes.parse(), {});
    FAIL() << key;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(LlmVariants, AreRefusedByName) {
  expect_refused("llama.expert_count", 8u, "mixture of experts");
  expect_refused("llama.rope.scaling.type", std::string_view("yarn"), "yarn");
  expect_refused("llama.rope.dimension_count", 2u, "rotation of 2 of 4");
  expect_refused("llama.vocab_size", 5u, "the embedding has 4 rows");
  expect_refused("general.type", std::string_view("adapter"), "adapter");
  expect_refused("split.count", 2u, "split");
  expect_refused("llama.attention.head_count_kv", 0u, "head_count_kv");
  expect_refused("llama.attention.key_length", 1u << 30, "value heads of 4 beside");
  expect_refused("llama.expert_count", 0u, "blk.0.attn_norm.weight");  // accepted; then a tensor is missing
}

// Damaged metadata and tensor lists: an export succeeds or throws a typed error, whatever the bytes are.
TEST(LlmVariants, DamagedFilesGiveTypedErrors) {
  for (const char* name : {"tiny_llama.gguf", "tiny_gemma3.gguf"}) {
    const auto mapping = MappedFile::open(fixture(name));
    const std::vector<std::byte> whole(mapping->bytes().begin(), mapping->bytes().end());
    const std::size_t head = GgufFile::parse(whole, name).tensors().front().offset;
    std::mt19937 random(5);
    int refused = 0;
    for (int round = 0; round < 60; ++round) {
      std::vector<std::byte> bytes = whole;
      for (int change = 0; change < 4; ++change) bytes[random() % head] = static_cast<std::byte>(random());
      try {
        const GgufFile file = GgufFile::parse(bytes, "damaged.gguf");
        rebuild_tokenizer(file);
        author_decoder(file, {});
      } catch (const InternalError& e) {
        ADD_FAILURE() << name << " round " << round << ": " << e.what();
      } catch (const Error&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 10);
  }
}

}  // namespace
}  // namespace coreai
