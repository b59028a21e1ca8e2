// The envelope of metadata.json: what is refused, in which order, and what is let through.
#include "coreai/bundle/model_bundle.h"

#include "bundle/bundle_folder.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kEnvelope =
    R"({"metadata_version": "0.2", "kind": "segmenter", "name": "s", "assets": {"main": "s.aimodel"}})";

class Envelope : public test::BundleFolder {
 protected:
  void SetUp() override {
    BundleFolder::SetUp();
    metadata(kEnvelope);
    folder("s.aimodel");
  }
  void expect(BundleFault fault, const std::string& field, const std::string& part) {
    expect_fault(fault, field, part, [&] { ModelBundle::open(dir_); });
  }
  void expect_malformed(const std::string& text, const std::string& part, const std::string& field = "") {
    metadata(text);
    expect(BundleFault::kMalformedMetadata, field, part);
  }
};

TEST_F(Envelope, EveryKindIsKnownByItsName) {
  for (const char* kind :
       {"llm", "vlm", "diffusion", "segmenter", "speech_recognizer", "video-diffusion", "video_segmenter"}) {
    metadata(replaced(kEnvelope, "segmenter", kind));
    EXPECT_EQ(bundle_kind_name(ModelBundle::open(dir_).kind()), kind);
    EXPECT_EQ(bundle_kind_name(*bundle_kind_from_name(kind)), kind);
  }
  for (const char* kind : {"LLM", "video_diffusion", "video-segmenter", "detector", ""}) {
    metadata(replaced(kEnvelope, "segmenter", kind));
    expect(BundleFault::kMalformedMetadata, "kind",
           "(known: llm, vlm, diffusion, segmenter, speech_recognizer, video-diffusion, video_segmenter)");
  }
}

TEST_F(Envelope, OnlyVersionZeroPointTwo) {
  for (const char* version : {"\"0.1\"", "\"0.3\"", "\"1.0\"", "\"0.2.0\"", "\"\"", "0.2", "2", "[\"0.2\"]", "true"}) {
    metadata(replaced(kEnvelope, "\"0.2\"", version));
    expect(BundleFault::kUnsupportedVersion, "metadata_version",
           std::string("unsupported metadata_version ") + version);
  }
  metadata(replaced(kEnvelope, "\"0.2\"", "null"));
  expect(BundleFault::kUnsupportedVersion, "metadata_version", "\"0.1\", which is what a missing one means");
}

TEST_F(Envelope, KeysThatOccurTwiceAreRefused) {
  expect_malformed(R"({"metadata_version": "0.2", "kind": "llm", "kind": "vlm"})", "the key \"kind\" twice", "kind");
  expect_malformed(R"({"metadata_version": "0.2", "a": {"b": [{"c": 1, "\u0063": 2}]}})", "the key \"c\" twice", "c");
  metadata(replaced(kEnvelope, "}}", R"(}, "a": [{"k": 1}, {"k": 2}], "k": {"k": {"k": 0}}})"));
  EXPECT_EQ(ModelBundle::open(dir_).name(), "s");
}

TEST_F(Envelope, TextThatIsNotUtf8IsRefused) {
  for (const char* bytes : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"})
    expect_malformed(replaced(kEnvelope, "\"s\"", "\"" + std::string(bytes) + "\""), "is not UTF-8 (at byte 59)");
  metadata(replaced(kEnvelope, "\"s\"", "\"ä 模型 🙂\""));
  EXPECT_EQ(ModelBundle::open(dir_).name(), "ä 模型 🙂");
}

TEST_F(Envelope, JsonOfAnyFormIsBounded) {
  expect_malformed("", "is not JSON");
  expect_malformed(std::string(kEnvelope) + "}", "is not JSON");
  expect_malformed("[" + std::string(kEnvelope) + "]", "is JSON, but not an object");
  expect_malformed("null", "is JSON, but not an object");
  expect_malformed(R"({"metadata_version": 1e999})", "a number out of range");
  expect_malformed(replaced(kEnvelope, "}}", "}, \"x\": " + std::string(64, '[') + std::string(64, ']') + "}"),
                   "nested deeper than 64 levels");
  metadata(replaced(kEnvelope, "}}", "}, \"x\": " + std::string(63, '[') + std::string(63, ']') + "}"));
  EXPECT_EQ(ModelBundle::open(dir_).name(), "s");
  // A long value is cut in the message.
  expect_malformed(replaced(kEnvelope, "\"s\"", "[\"" + std::string(100000, 'x') + "\"]"), "'name' is [\"xxx", "name");
  expect_malformed(replaced(kEnvelope, "\"s\"", "[\"\\u001b[31m\"]"), "'name' is [\"\\u001b[31m\"]", "name");
}

TEST_F(Envelope, HugeMetadataIsRefusedUnread) {
  fs::resize_file(dir_ / "metadata.json", 100U << 20);  // zeros, sparse
  expect(BundleFault::kMalformedMetadata, "", "metadata.json has 104857600 bytes, at most 16777216 are read");
  expect_fault(BundleFault::kMalformedMetadata, "", "at most 16777216 are read",
               [&] { ModelBundle::from_bytes(std::string((16U << 20) + 1, ' '), dir_); });
}

TEST_F(Envelope, FieldsOfTheWrongTypeAreNamed) {
  expect_malformed(replaced(kEnvelope, "\"segmenter\"", "7"), "'kind' is 7, not a string", "kind");
  expect_malformed(replaced(kEnvelope, "\"s\"", "{}"), "'name' is {}, not a string", "name");
  expect_malformed(replaced(kEnvelope, "{\"main\": \"s.aimodel\"}", "[]"), "'assets' is [], not an object", "assets");
  expect_malformed(replaced(kEnvelope, "\"s.aimodel\"", "null"), "'assets.main' is not a string", "assets.main");
  expect_malformed(replaced(kEnvelope, "}}", R"(}, "user_data": {"n": 1}})"), "'user_data.n' is not a string",
                   "user_data.n");
}

TEST_F(Envelope, AssetPathsThatLeaveTheBundleAreRefusedAtOnce) {
  for (const char* path : {"../s.aimodel", "a/../../s.aimodel", "..", "/etc/s.aimodel", "", "a\\u0000b"}) {
    metadata(replaced(kEnvelope, "s.aimodel", path));
    expect(BundleFault::kOutsideBundle, "assets.main", "'assets.main' is ");
  }
  for (const char* path : {"sub/s.aimodel", "./s.aimodel", "..s.aimodel", "s...aimodel"}) {
    metadata(replaced(kEnvelope, "s.aimodel", path));
    EXPECT_EQ(ModelBundle::open(dir_).assets().at("main"), path);
  }
}

TEST_F(Envelope, TheExtensionIsCheckedBeforeAnythingIsRead) {
  // A compiled asset is a folder with a metadata.json of its own.
  write(dir_ / "s.aimodelc" / "metadata.json", R"({"assetVersion": "2.0"})");
  for (const char* name : {"s.aimodelc", "s.aimodelc/", "s.aimodel", "S.AIModelC", "nowhere.aimodel"})
    expect_fault(BundleFault::kPointedAtAsset, "", "is a model asset, not a model bundle folder",
                 [&] { ModelBundle::open(dir_ / name); });
  expect_fault(BundleFault::kPointedAtAsset, "", "is a model asset",
               [&] { ModelBundle::from_bytes(kEnvelope, dir_ / "s.aimodelc"); });
}

TEST_F(Envelope, AFolderInPlaceOfTheMetadata) {
  fs::remove(dir_ / "metadata.json");
  folder("metadata.json");
  expect(BundleFault::kMalformedMetadata, "", "metadata.json is a folder, not a file");
  fs::remove(dir_ / "metadata.json");
  fs::create_symlink(root_ / "gone", dir_ / "metadata.json");
  expect(BundleFault::kMissingMetadata, "", "a link to a file that is not there");
}

TEST_F(Envelope, AFileInPlaceOfAnAsset) {
  fs::remove(dir_ / "s.aimodel");
  write(dir_ / "s.aimodel", "bytes");
  expect_fault(BundleFault::kNotAFolder, "assets.main", "asset \"main\" is a file, not a folder",
               [&] { ModelBundle::open(dir_).verify(); });
}

TEST_F(Envelope, EveryProblemOfTheAssetsIsListed) {
  metadata(R"({"metadata_version": "0.2", "kind": "segmenter", "name": "s", "assets": {
      "d": "gone.aimodel", "c": "compiled.aimodel", "b": "file.aimodel", "a": "s.aimodel"}})");
  folder("compiled.aimodelc");
  write(dir_ / "file.aimodel", "bytes");
  const auto bundle = ModelBundle::open(dir_);
  EXPECT_THAT(bundle.component_keys(), ElementsAre("a", "b", "c", "d"));
  const auto problems = bundle.problems();
  ASSERT_THAT(problems, SizeIs(3));
  EXPECT_EQ(problems[0].fault(), BundleFault::kNotAFolder);
  EXPECT_EQ(problems[1].fault(), BundleFault::kCompiledAsset);
  EXPECT_EQ(problems[2].fault(), BundleFault::kMissingAsset);
  expect_fault(BundleFault::kNotAFolder, "assets.b", "asset \"b\"", [&] { bundle.verify(); });
  EXPECT_EQ(bundle.require_model("a"), dir_ / "s.aimodel");
}

// What a file says must not look like the program's own words.
TEST_F(Envelope, RolesAreQuotedInMessages) {
  metadata(R"({"metadata_version": "0.2", "kind": "segmenter", "name": "s",
    "assets": {"x\nclean: 0 errors": "gone.aimodel"}})");
  const auto problems = ModelBundle::open(dir_).problems();
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].problem(), R"(asset "x\nclean: 0 errors" not found)");
}

TEST_F(Envelope, LinkedFilesAreFollowedAndListed) {
  EXPECT_THAT(ModelBundle::open(dir_).symlinks(), IsEmpty());
  write(root_ / "blobs/1", kEnvelope);
  write(root_ / "blobs/2", "program");
  fs::remove(dir_ / "metadata.json");
  fs::create_symlink("../blobs/1", dir_ / "metadata.json");
  fs::create_symlink("../../blobs/2", dir_ / "s.aimodel" / "main.mlirb");
  const auto bundle = ModelBundle::open(dir_);
  bundle.verify();
  const auto links = bundle.symlinks();
  ASSERT_THAT(links, SizeIs(2));
  EXPECT_EQ(links[0].path, "metadata.json");
  EXPECT_EQ(links[0].target, "../blobs/1");
  EXPECT_EQ(links[1].path, "s.aimodel/main.mlirb");
}

TEST_F(Envelope, ABundleThatIsALinkItself) {
  fs::create_directory_symlink(dir_, root_ / "link");
  const auto bundle = ModelBundle::open(root_ / "link");
  bundle.verify();
  EXPECT_EQ(bundle.require_model("main"), root_ / "link" / "s.aimodel");
}

TEST_F(Envelope, NamesOnDiskNeedNotBeUtf8) {
  const fs::path odd = root_ / "b\xff\xfe";
  fs::rename(dir_, odd);
  fs::create_symlink("s.aimodel", odd / "l\xff");
  const auto bundle = ModelBundle::open(odd);
  bundle.verify();
  EXPECT_THAT(bundle.symlinks(), SizeIs(1));
  fs::remove(odd / "s.aimodel");
  expect_fault(BundleFault::kMissingAsset, "assets.main", "asset \"main\" not found", [&] { bundle.verify(); });
}

TEST_F(Envelope, BytesWithAFolderNeedNoFile) {
  fs::remove(dir_ / "metadata.json");
  const auto bundle = ModelBundle::from_bytes(kEnvelope, dir_);
  EXPECT_EQ(bundle.raw(), kEnvelope);
  bundle.verify();
}

TEST_F(Envelope, EveryFaultHasAName) {
  for (int i = 0; i <= static_cast<int>(BundleFault::kUnknownModel); ++i)
    EXPECT_NE(bundle_fault_name(static_cast<BundleFault>(i)), "unknown") << i;
}

}  // namespace
}  // namespace coreai
