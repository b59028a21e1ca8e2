#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "coreai/bundle/language_bundle.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kMetadata = R"({
  "metadata_version": "0.2", "kind": "llm", "name": "small",
  "assets": {"main": "small.aimodel"},
  "language": {"tokenizer": "org/small", "vocab_size": 512, "max_context_length": 64,
               "function_map": {"main": ["decode"]}},
  "myapp": {"kept": [1, 2]}, "user_data": {"team": "a"}
})";

class Bundle : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "bundle_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    dir_ = root_ / "ä bundle";
    fs::create_directories(dir_ / "small.aimodel");
    fs::create_directories(dir_ / "tokenizer");
    write(dir_ / "tokenizer" / "tokenizer.json", "{}");
    metadata(kMetadata);
  }
  void TearDown() override { fs::remove_all(root_); }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  void metadata(const std::string& text) { write(dir_ / "metadata.json", text); }
  // The metadata with one piece of text replaced.
  void replace(const std::string& from, const std::string& to) {
    std::string text = kMetadata;
    text.replace(text.find(from), from.size(), to);
    metadata(text);
  }
  static void expect_fault(BundleFault fault, const std::string& part, const std::function<void()>& action) {
    try {
      action();
      ADD_FAILURE() << "accepted, expected: " << part;
    } catch (const BundleError& e) {
      EXPECT_EQ(e.fault(), fault) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(part));
      EXPECT_FALSE(e.next_step().empty());
      EXPECT_FALSE(e.where().empty());
    }
  }
  void expect_open_fault(BundleFault fault, const std::string& part) {
    expect_fault(fault, part, [&] { LanguageBundle::open(dir_); });
  }

  fs::path root_, dir_;
};

TEST_F(Bundle, ReadsTheEnvelopeAndTheLanguageBlock) {
  const auto bundle = LanguageBundle::open(dir_);
  EXPECT_EQ(bundle.name(), "small");
  EXPECT_EQ(bundle.bundle().metadata_version(), "0.2");
  EXPECT_EQ(bundle.bundle().kind(), BundleKind::kLlm);
  EXPECT_EQ(bundle.vocab_size(), 512);
  EXPECT_EQ(bundle.max_context_length(), 64);
  EXPECT_EQ(bundle.model_path(), dir_ / "small.aimodel");
  EXPECT_EQ(bundle.tokenizer_directory(), dir_ / "tokenizer");
  EXPECT_EQ(bundle.function("main"), "decode");
  EXPECT_EQ(bundle.function("extend"), "extend");
  EXPECT_EQ(bundle.bundle().user_data().at("team"), "a");
  EXPECT_THAT(bundle.bundle().component_keys(), ElementsAre("main"));
  EXPECT_EQ(bundle.bundle().raw(), kMetadata);
  bundle.bundle().verify();
}

TEST_F(Bundle, HomeAndTrailingSlash) {
  ::setenv("HOME", root_.c_str(), 1);
  EXPECT_EQ(ModelBundle::open("~/ä bundle").name(), "small");
  EXPECT_EQ(ModelBundle::open(dir_ / "").name(), "small");
}

TEST_F(Bundle, AnAssetInPlaceOfABundleSaysSo) {
  for (const char* name : {"small.aimodel", "small.aimodel/", "other.aimodelc"})
    expect_fault(BundleFault::kPointedAtAsset, "is a model asset, not a model bundle folder",
                 [&] { ModelBundle::open(dir_ / name); });
}

TEST_F(Bundle, MissingFolderFileAndMetadata) {
  expect_fault(BundleFault::kMissingMetadata, "the folder does not exist", [&] { ModelBundle::open(root_ / "no"); });
  expect_fault(BundleFault::kMissingMetadata, "not a model bundle folder",
               [&] { ModelBundle::open(dir_ / "metadata.json"); });
  fs::remove(dir_ / "metadata.json");
  expect_open_fault(BundleFault::kMissingMetadata, "metadata.json not found");
}

TEST_F(Bundle, TheVersionIsCheckedFirst) {
  metadata(R"({"kind": 5})");
  expect_open_fault(BundleFault::kUnsupportedVersion, "unsupported metadata_version \"0.1\", which is what a missing");
  metadata(R"({"metadata_version": "0.3"})");
  expect_open_fault(BundleFault::kUnsupportedVersion, "unsupported metadata_version \"0.3\" (known: \"0.2\")");
  replace("\"0.2\"", "0.2");
  expect_open_fault(BundleFault::kUnsupportedVersion, "unsupported metadata_version 0.2, a number (known");
}

TEST_F(Bundle, MalformedMetadata) {
  for (const char* text : {"", "{", "[1]", "{\"metadata_version\": \"0.2\"", "\xff\xfe{}"}) {
    metadata(text);
    expect_open_fault(BundleFault::kMalformedMetadata, "metadata.json is");
  }
  metadata(std::string(200000, '['));
  expect_open_fault(BundleFault::kMalformedMetadata, "nested deeper than 64 levels");
  replace("\"llm\"", "\"chat\"");
  expect_open_fault(BundleFault::kMalformedMetadata, "unknown bundle kind \"chat\" (known: llm, vlm, diffusion");
  replace("\"small.aimodel\"", "7");
  expect_open_fault(BundleFault::kMalformedMetadata, "'assets.main' is not a string");
  replace("512", "\"many\"");
  expect_open_fault(BundleFault::kMalformedMetadata, "'language.vocab_size' is \"many\"");
  replace("64", "-1");
  expect_open_fault(BundleFault::kMalformedMetadata, "'language.max_context_length' is -1");
  replace("512", "18446744073709551615");
  expect_open_fault(BundleFault::kMalformedMetadata, "'language.vocab_size' is 18446744073709551615");
  replace("[\"decode\"]", "\"decode\"");
  expect_open_fault(BundleFault::kMalformedMetadata, "function_map");
}

TEST_F(Bundle, MissingFieldsAreNamed) {
  replace("\"kind\": \"llm\", ", "");
  expect_open_fault(BundleFault::kMissingField, "required field 'kind' is missing");
  replace("\"name\": \"small\",", "");
  expect_open_fault(BundleFault::kMissingField, "required field 'name' is missing");
  replace("\"main\": \"small.aimodel\"", "");
  expect_open_fault(BundleFault::kMissingField, "required field 'assets.main' is missing");
  replace("\"language\":", "\"lingua\":");
  expect_open_fault(BundleFault::kMissingField, "required field 'language' is missing");
  replace("512", "null");
  expect_open_fault(BundleFault::kMissingField, "required field 'language.vocab_size' is missing");
  replace("\"llm\"", "\"diffusion\"");
  expect_open_fault(BundleFault::kKindMismatch, "expected bundle kind llm or vlm, got diffusion");
}

TEST_F(Bundle, PathsStayInsideTheBundle) {
  const auto model = [&] { LanguageBundle::open(dir_).model_path(); };
  for (const char* path : {"\"../small.aimodel\"", "\"a/../../x\"", "\"/etc\"", "\"\""}) {
    replace("\"small.aimodel\"", path);
    expect_fault(BundleFault::kOutsideBundle, "assets.main", model);
  }
  fs::create_directories(root_ / "elsewhere");
  fs::create_directory_symlink(root_ / "elsewhere", dir_ / "linked.aimodel");
  replace("small.aimodel", "linked.aimodel");
  expect_fault(BundleFault::kOutsideBundle, "outside the bundle", model);
  fs::remove_all(dir_ / "tokenizer");
  replace("org/small", "../elsewhere");
  expect_fault(BundleFault::kOutsideBundle, "language.tokenizer",
               [&] { LanguageBundle::open(dir_).tokenizer_directory(); });
}

TEST_F(Bundle, ASingleLinkedFileIsFollowed) {
  fs::rename(dir_ / "tokenizer" / "tokenizer.json", root_ / "blob");
  fs::create_symlink(root_ / "blob", dir_ / "tokenizer" / "tokenizer.json");
  EXPECT_EQ(LanguageBundle::open(dir_).tokenizer_directory(), dir_ / "tokenizer");
}

TEST_F(Bundle, MissingAndCompiledAssets) {
  const auto model = [&] { LanguageBundle::open(dir_).model_path(); };
  fs::remove(dir_ / "small.aimodel");
  expect_fault(BundleFault::kMissingAsset, "asset \"main\" not found", model);
  fs::create_directories(dir_ / "small.aimodelc");
  expect_fault(BundleFault::kCompiledAsset, "'small.aimodelc' is compiled for an Apple device", model);
  replace("small.aimodel", "small.h18p.aimodelc");
  expect_fault(BundleFault::kCompiledAsset, "'small.h18p.aimodelc' is compiled", model);
}

TEST_F(Bundle, AMissingTokenizerNamesThePath) {
  const auto tokenizer = [&] { LanguageBundle::open(dir_).tokenizer_directory(); };
  fs::remove(dir_ / "tokenizer" / "tokenizer.json");
  expect_fault(BundleFault::kMissingTokenizer, (dir_ / "tokenizer" / "tokenizer.json").string(), tokenizer);
  fs::create_directories(dir_ / "org" / "small");
  write(dir_ / "org" / "small" / "tokenizer.json", "{}");
  EXPECT_EQ(LanguageBundle::open(dir_).tokenizer_directory(), dir_ / "org/small");
}

TEST_F(Bundle, EndTokensOfTheGenerationConfig) {
  EXPECT_THAT(LanguageBundle::open(dir_).declared_end_tokens(), ElementsAre());
  write(dir_ / "tokenizer" / "generation_config.json", R"({"eos_token_id": [2, 0]})");
  write(dir_ / "generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_THAT(LanguageBundle::open(dir_).declared_end_tokens(), ElementsAre(2, 0, 7));
  write(dir_ / "generation_config.json", R"({"eos_token_id": "x"})");
  expect_fault(BundleFault::kMalformedMetadata, "eos_token_id",
               [&] { LanguageBundle::open(dir_).declared_end_tokens(); });
}

}  // namespace
}  // namespace coreai
