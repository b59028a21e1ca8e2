// Bundles changed and made: nothing half-done stays on disk, nothing unknown is lost.
#include "coreai/bundle/edit.h"

#include <sys/stat.h>

#include <cstdlib>

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

TEST(Retarget, KeepsEveryOtherByte) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "tiny_llm/f16");
  const std::string text = R"({
  "zebra": {"z": 1.10, "a": ["ä", null, "\u0041"], "q": "}]\\\""},
  "metadata_version" : "0.2",
  "kind": "llm",
  "\u0061ssets": {
    "vision": "v.aimodel",
    "main": "old.aimodel"
  },
  "name": "tiny",
  "language": {"tokenizer": "t", "vocab_size": 512, "max_context_length": 512},
  "compilation": {"date": "today", "targets": [
    "first",
    "second"
  ], "by": "us"},
  "antelope": 123456789012345678901234567890
}  )";
  write_file(bundle / "metadata.json", text);
  const RetargetResult result = retarget_bundle(bundle, "main", std::string("./") + kAsset + "/");
  EXPECT_EQ(result.previous, "old.aimodel");
  EXPECT_EQ(result.current, kAsset);
  EXPECT_FALSE(result.compiled);
  std::string expected = text;
  expected.replace(expected.find("old.aimodel"), 11, kAsset);
  expected.insert(expected.find("\n  ], \"by\""), std::string(",\n    \"") + kAsset + "\"");
  EXPECT_EQ(read_text_file(bundle / "metadata.json"), expected);
  EXPECT_EQ(entries(bundle), (std::vector<std::string>{"metadata.json", kAsset, "tokenizer"}));
}

// Blocks that are not there, or are something else.
TEST(Retarget, MakesTheBlocksThatItNeeds) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "tiny_llm/f16");
  const std::string head = "\xEF\xBB\xBF{\"metadata_version\": \"0.2\", \"kind\": \"segmenter\", \"name\": \"s\"";
  const std::string name = std::string("\"") + kAsset + "\"", assets = "{\"main\": " + name + "}";
  struct Case {
    std::string before, after;
  };
  for (const Case& one :
       {Case{"}", ", \"assets\": " + assets + ", \"compilation\": {\"targets\": [" + name + "]}}"},
        {", \"assets\": {}, \"compilation\": {}}",
         ", \"assets\": " + assets + ", \"compilation\": {\"targets\": [" + name + "]}}"},
        {", \"assets\": null, \"compilation\": null}",
         ", \"assets\": " + assets + ", \"compilation\": {\"targets\": [" + name + "]}}"},
        {", \"assets\": {\"a\":\"b.aimodel\"}, \"compilation\": {\"targets\": \"x\"}}",
         ", \"assets\": {\"a\":\"b.aimodel\", \"main\": " + name + "}, \"compilation\": {\"targets\": [" + name +
             "]}}"},
        {", \"compilation\": {\"targets\": [[1], {}]}, \"n\": -1e5}",
         ", \"compilation\": {\"targets\": [[1], {}, " + name + "]}, \"n\": -1e5, \"assets\": " + assets + "}"}}) {
    write_file(bundle / "metadata.json", head + one.before);
    retarget_bundle(bundle, "main", kAsset);
    EXPECT_EQ(read_text_file(bundle / "metadata.json"), head + one.after);
  }
}

TEST(Retarget, KeepsTheModeAndFollowsALink) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "tiny_llm/f16");
  const fs::path blob = scratch / "blob";
  fs::rename(bundle / "metadata.json", blob);
  fs::permissions(blob, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("../blob", bundle / "metadata.json");
  retarget_bundle(bundle, "draft", kAsset);
  EXPECT_TRUE(fs::is_symlink(bundle / "metadata.json"));
  EXPECT_EQ(fs::status(blob).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(Json::parse(read_text_file(blob))["assets"]["draft"], kAsset);
  EXPECT_EQ(entries(scratch.path()), (std::vector<std::string>{"a bundle", "blob"}));
}

TEST(Retarget, ACompiledAssetIsToldOf) {
  const Scratch scratch;
  const fs::path bundle = copy_bundle(scratch, "tiny_llm/f16");
  fs::create_directory(bundle / "tiny.h18p.aimodelc");
  EXPECT_TRUE(retarget_bundle(bundle, "main", "tiny.h18p.aimodelc").compiled);
  EXPECT_THAT(ids(audit_bundle(bundle), Severity::kError), testing::ElementsAre("asset-compiled"));
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
  fs::create_directory(bundle / "empty.aimodel");
  fs::create_directory(bundle / "t\xf6n.aimodel");
  fs::copy(bundle / kAsset, bundle / "t\xf6n.aimodel", fs::copy_options::recursive);
  for (const char* asset : {"tokenizer", ".", "./", "tokenizer/tokenizer.json", "t\xf6n.aimodel"})
    EXPECT_THROW(retarget_bundle(bundle, "main", asset), InvalidArgumentError) << asset;
  EXPECT_THROW(retarget_bundle(bundle, "main", "empty.aimodel"), NotFoundError);  // no main.mlirb
  EXPECT_THROW(retarget_bundle(bundle, "t\xf6n", kAsset), InvalidArgumentError);
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
  bundle.blocks["diffusion"] = R"( {"type": "stable-diffusion", "prediction_type": "epsilon"}
)";
  bundle.blocks["ours"] = R"({"exact": 1.10})";
  create_bundle(bundle, scratch.path() / "sd");
  EXPECT_TRUE(audit_bundle(scratch.path() / "sd").clean());
  EXPECT_THAT(read_text_file(scratch.path() / "sd/metadata.json"), testing::HasSubstr(R"("ours": {"exact": 1.10})"));
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
  refuse("no tokenizer", [](NewBundle& b) { b.tokenizer.reset(); });
  refuse("another role than main", [](NewBundle& b) {
    b.assets["decoder"] = b.assets["main"];
    b.assets.erase("main");
  });
  refuse("vlm without vision", [](NewBundle& b) { b.kind = BundleKind::kVlm; });
  refuse("vlm without the assets of its parts", [](NewBundle& b) {
    b.kind = BundleKind::kVlm;
    b.blocks["vision"] = R"({"image_size": 8, "patch_size": 2, "image_token_count": 4, "image_token_id": 1})";
  });
  refuse("diffusion without its block", [](NewBundle& b) { b.kind = BundleKind::kDiffusion; });
  refuse("diffusion without a denoiser", [](NewBundle& b) {
    b.kind = BundleKind::kDiffusion;
    b.blocks["diffusion"] = "{}";
  });
  refuse("block that is a list", [](NewBundle& b) { b.blocks["vision"] = "[1]"; });
  refuse("block with a key twice", [](NewBundle& b) { b.blocks["ours"] = R"({"a": 1, "a": 2})"; });
  for (const char* key : {"metadata_version", "kind", "name", "assets", "language", "compression", "compilation"})
    refuse(key, [key](NewBundle& b) { b.blocks[key] = "{}"; });
  create_bundle(small_bundle(), folder);
  EXPECT_THROW(create_bundle(small_bundle(), folder), IoError);  // exists
  fs::create_directory(scratch.path() / "empty");
  EXPECT_THROW(create_bundle(small_bundle(), scratch.path() / "empty"), IoError);
  EXPECT_EQ(entries(scratch.path()), (std::vector<std::string>{"empty", "tiny"}));
  EXPECT_THROW(create_bundle(small_bundle(), scratch.path() / "tiny.aimodel"), BundleError);  // an asset's name
}

// What a folder holds is copied once and whole, or not at all.
TEST(Create, CopiesFilesAndWhatLinksToThem) {
  const Scratch scratch;
  NewBundle bundle = small_bundle();
  fs::copy(fixture("tiny_llm/tokenizer"), scratch / "tokenizer");
  bundle.tokenizer = scratch / "tokenizer";
  fs::rename(scratch / "tokenizer/tokenizer.json", scratch / "blob");
  fs::create_symlink("../blob", scratch / "tokenizer/tokenizer.json");
  fs::create_directory(scratch / "tokenizer/more");
  write_file(scratch / "tokenizer/more/notes.txt", "x");
  create_bundle(bundle, scratch / "made");
  EXPECT_FALSE(fs::is_symlink(scratch / "made/tokenizer/tokenizer.json"));
  EXPECT_EQ(read_text_file(scratch / "made/tokenizer/tokenizer.json"), read_text_file(scratch / "blob"));
  EXPECT_EQ(read_text_file(scratch / "made/tokenizer/more/notes.txt"), "x");
  const auto refuse = [&](const fs::path& folder, const char* part) {
    try {
      create_bundle(bundle, folder);
      ADD_FAILURE() << folder;
    } catch (const InvalidArgumentError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  };
  refuse(scratch / "tokenizer/made", "would lie in a folder that is copied into it");
  refuse(scratch / "tokenizer/more/made", "would lie in a folder that is copied into it");
  fs::create_directory_symlink(".", scratch / "tokenizer/more/again");
  refuse(scratch / "second", "neither a file nor a folder");
  fs::remove(scratch / "tokenizer/more/again");
  ASSERT_EQ(::mkfifo((scratch / "tokenizer/pipe").c_str(), 0600), 0);
  refuse(scratch / "second", "neither a file nor a folder");
  EXPECT_EQ(entries(scratch.path()), (std::vector<std::string>{"blob", "made", "tokenizer"}));
}

TEST(Create, PathsMayBeginWithTheHomeFolder) {
  const Scratch scratch;
  const char* home = std::getenv("HOME");
  const std::string kept = home == nullptr ? "" : home;
  ::setenv("HOME", scratch.path().c_str(), 1);
  fs::copy(fixture("tiny_llm/f16"), scratch / "from", fs::copy_options::recursive);
  NewBundle bundle = small_bundle();
  bundle.assets["main"] = fs::path("~/from") / kAsset;
  bundle.tokenizer = "~/from/tokenizer";
  create_bundle(bundle, "~/made/");
  ::setenv("HOME", kept.c_str(), 1);
  EXPECT_TRUE(audit_bundle(scratch / "made").clean());
}

}  // namespace
}  // namespace coreai::test
