// Bundles changed and made: nothing half-done stays on disk, nothing unknown is lost.
#include "coreai/bundle/edit.h"

#include <sys/stat.h>

#include "bundle/broken_bundle.h"
#include "coreai/base/error.h"
#include "coreai/bundle/language_bundle.h"

namespace coreai::test {
namespace {

constexpr const char* kAsset = "tiny-llama-random-f16.aimodel";

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Retarget, KeepsUnknownKeysAndTheirOrder) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "tiny_llm/f16");
  const char* text = R"({
  "zebra": {"z": 1.5, "a": ["ä", null]},
  "metadata_version": "0.2",
  "kind": "llm",
  "assets": {
    "vision": "v.aimodel",
    "main": "old.aimodel"
  },
  "name": "tiny",
  "language": {"tokenizer": "t", "vocab_size": 512, "max_context_length": 512},
  "compilation": {"date": "today", "targets": ["first"], "by": "us"},
  "antelope": 18446744073709551615
})";
  write_file(bundle / "metadata.json", text);
  const RetargetResult result = retarget_bundle(bundle, "main", std::string("./") + kAsset + "/");
  EXPECT_EQ(result.previous, "old.aimodel");
  EXPECT_EQ(result.current, kAsset);
  Json expected = Json::parse(text);
  expected["assets"]["main"] = kAsset;
  expected["compilation"]["targets"].push_back(kAsset);
  EXPECT_EQ(Json::parse(read_text_file(bundle / "metadata.json")).dump(), expected.dump());
  EXPECT_EQ(entries(bundle), (std::vector<std::string>{"metadata.json", kAsset, "tokenizer"}));
}

TEST(Retarget, AddsRolesAndMissingBlocks) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "tiny_llm/f16");
  EXPECT_EQ(retarget_bundle(bundle, "draft", kAsset).previous, "");
  const Json root = Json::parse(read_text_file(bundle / "metadata.json"));
  EXPECT_EQ(root["assets"]["draft"], kAsset);
  EXPECT_EQ(root["compilation"]["targets"], Json::array({kAsset}));
  EXPECT_EQ(ModelBundle::open(bundle).assets().size(), 2u);
}

TEST(Retarget, RefusalsChangeNothing) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "tiny_llm/f16");
  const std::string before = read_text_file(bundle / "metadata.json");
  write_file(bundle / "file.aimodel", "x");
  for (const char* asset : {"none.aimodel", "file.aimodel", "../x.aimodel", "/etc", ""})
    EXPECT_THROW(retarget_bundle(bundle, "main", asset), BundleError) << asset;
  EXPECT_THROW(retarget_bundle(bundle, "", kAsset), InvalidArgumentError);
  EXPECT_EQ(read_text_file(bundle / "metadata.json"), before);
  EXPECT_THROW(retarget_bundle(scratch.path(), "main", kAsset), BundleError);
}

NewBundle small_bundle() {
  NewBundle bundle;
  bundle.assets["main"] = fixture("tiny_llm/f16") / kAsset / "";
  bundle.tokenizer = fixture("tiny_llm/tokenizer");
  bundle.max_context_length = 512;
  return bundle;
}

TEST(Create, ABundleThatIsClean) {
  const Scratch scratch;
  const fs::path folder = scratch.path() / "tiny";
  create_bundle(small_bundle(), folder);
  const LanguageBundle opened = LanguageBundle::open(folder);
  EXPECT_EQ(opened.name(), "tiny");
  EXPECT_EQ(opened.vocab_size(), 512);  // read from the logits
  EXPECT_EQ(opened.max_context_length(), 512);
  EXPECT_EQ(opened.tokenizer_directory(), folder / "tokenizer");
  const AuditReport report = audit_bundle(folder);
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().sentence;
  struct stat info{};
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0755u);
}

TEST(Create, ReadsLengthsWhereTheDecoderTellsThem) {
  const Scratch scratch;
  for (const auto& [bundle, length] : {std::pair{"qwen3_4bit_staticcache_b2", 128}, {"qwen3_ios_mixed_b3", 512}}) {
    NewBundle made;
    made.assets["main"] = fixture("genuine") / bundle / (std::string(bundle) + ".aimodel");
    made.tokenizer = fixture("genuine") / bundle / "tokenizer";
    create_bundle(made, scratch.path() / bundle);
    EXPECT_EQ(LanguageBundle::open(scratch.path() / bundle).max_context_length(), length);
    EXPECT_EQ(LanguageBundle::open(scratch.path() / bundle).vocab_size(), 384);
    EXPECT_TRUE(audit_bundle(scratch.path() / bundle).clean());
  }
}

TEST(Create, OtherKindsTakeTheirBlocks) {
  const Scratch scratch;
  NewBundle bundle;
  bundle.kind = BundleKind::kDiffusion;
  bundle.assets["unet"] = fixture("genuine/sd15_f16_b3/Unet.aimodel");
  bundle.assets["text_encoder"] = fixture("genuine/sd15_f16_b3/TextEncoder.aimodel");
  bundle.assets["vae_decoder"] = fixture("genuine/sd15_f16_b3/VAEDecoder.aimodel");
  bundle.tokenizer = fixture("genuine/sd15_f16_b3/tokenizer");
  bundle.blocks["diffusion"] = R"({"type": "stable-diffusion", "prediction_type": "epsilon"})";
  create_bundle(bundle, scratch.path() / "sd");
  EXPECT_TRUE(audit_bundle(scratch.path() / "sd").clean());
}

TEST(Create, RefusalsLeaveNothingBehind) {
  const Scratch scratch;
  const fs::path folder = scratch.path() / "tiny";
  const auto refuse = [&](const char* what, const std::function<void(NewBundle&)>& change) {
    NewBundle bundle = small_bundle();
    change(bundle);
    EXPECT_THROW(create_bundle(bundle, folder), Error) << what;
    EXPECT_THAT(entries(scratch.path()), testing::IsEmpty()) << what;
  };
  refuse("no assets", [](NewBundle& b) { b.assets.clear(); });
  refuse("no such asset", [](NewBundle& b) { b.assets["main"] = "none.aimodel"; });
  refuse("a folder that is no asset", [](NewBundle& b) { b.assets["main"] = fixture("tiny_llm"); });
  refuse("no tokenizer.json", [](NewBundle& b) { b.tokenizer = fixture("tiny_llm"); });
  refuse("length unknown", [](NewBundle& b) { b.max_context_length.reset(); });
  refuse("block that is not JSON", [](NewBundle& b) { b.blocks["vision"] = "{"; });
  refuse("two assets of one name", [](NewBundle& b) {
    b.assets["a"] = fixture("tiny_llm/f32/tiny-llama-random-f32.aimodel");
    b.assets["b"] = fixture("tiny_llm/f32_composites/tiny-llama-random-f32.aimodel");
  });
  refuse("name in Latin-1", [](NewBundle& b) { b.name = "t\xf6n"; });
  create_bundle(small_bundle(), folder);
  EXPECT_THROW(create_bundle(small_bundle(), folder), IoError);  // exists
  fs::create_directory(scratch.path() / "empty");
  EXPECT_THROW(create_bundle(small_bundle(), scratch.path() / "empty"), IoError);
  EXPECT_EQ(entries(scratch.path()), (std::vector<std::string>{"empty", "tiny"}));
}

}  // namespace
}  // namespace coreai::test
