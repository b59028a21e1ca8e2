#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "coreai/base/error.h"
#include "fixtures.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using test::fixture;
using ::testing::HasSubstr;

// A copy of one fixture that a test may damage.
class OpenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("coreai_open_test_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    asset_ = root_ / "sin.aimodel";
    fs::copy(fixture("op_assets/sin.aimodel"), asset_);
    fs::permissions(asset_, fs::perms::owner_all);
    for (const auto& entry : fs::directory_iterator(asset_)) fs::permissions(entry.path(), fs::perms::owner_all);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const char* file, const std::string& text) {
    std::ofstream(asset_ / file, std::ios::binary | std::ios::trunc) << text;
  }

  fs::path root_, asset_;
};

template <typename E>
std::string message_of(const fs::path& path) {
  try {
    AIModelAsset::open(path);
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error of the wanted type for " << path;
  return {};
}

TEST_F(OpenTest, ReadsMetadataAndHash) {
  const AIModelAsset asset = AIModelAsset::open(asset_);
  EXPECT_EQ(asset.metadata().asset_version, "2.0");
  EXPECT_EQ(asset.hash_hex(), to_hex(sha256(asset.program_bytes())));
  EXPECT_TRUE(AIModelAsset::is_valid(asset_));
  const FunctionDescriptor function = asset.summary().functions.at(0);
  EXPECT_EQ(function.name, "main");
  ASSERT_EQ(function.inputs.size(), 1u);
  EXPECT_EQ(function.inputs[0].name, "x");
}

TEST_F(OpenTest, LenientMetadata) {
  for (const char* text : {R"({"assetVersion": "2"})", R"({"assetVersion": "2.9", "author": 3, "new": [1,]})",
                           "\xEF\xBB\xBF{\"assetVersion\": \"2.0\",}"}) {
    write("metadata.json", text);
    EXPECT_NO_THROW(AIModelAsset::open(asset_)) << text;
  }
  fs::remove(asset_ / "metadata.json");
  EXPECT_NO_THROW(AIModelAsset::open(asset_));
}

TEST_F(OpenTest, RefusesBadMetadata) {
  for (const char* text : {"", "[]", "{}", "{\"assetVersion\": 2}", "{\"assetVersion\": null}", "no json"}) {
    write("metadata.json", text);
    EXPECT_THROW(AIModelAsset::open(asset_), MalformedError) << text;
  }
  for (const char* version : {"1.0", "3.0", "abc", "", "20"}) {
    write("metadata.json", std::string("{\"assetVersion\": \"") + version + "\"}");
    EXPECT_THROW(AIModelAsset::open(asset_), UnsupportedError) << version;
  }
  EXPECT_FALSE(AIModelAsset::is_valid(asset_));
}

TEST_F(OpenTest, HashIsChecked) {
  write("main.hash", std::string(32, 'x'));
  EXPECT_THAT(message_of<HashMismatchError>(asset_), HasSubstr("main.hash says 7878"));
  EXPECT_NO_THROW(AIModelAsset::open(asset_, HashCheck::kSkip));
  write("main.hash", "short");
  EXPECT_THAT(message_of<HashMismatchError>(asset_), HasSubstr("5 bytes"));
  fs::remove(asset_ / "main.hash");
  EXPECT_NO_THROW(AIModelAsset::open(asset_));
}

TEST_F(OpenTest, NamesTheCommonMistakes) {
  EXPECT_THAT(message_of<NotFoundError>(root_ / "none.aimodel"), HasSubstr("none.aimodel"));
  EXPECT_THAT(message_of<UnsupportedError>(root_), HasSubstr("sin.aimodel"));
  EXPECT_THAT(message_of<UnsupportedError>(asset_ / "main.mlirb"), HasSubstr("folder that holds main.mlirb"));
  fs::create_directories(root_ / "x.aimodelc");
  EXPECT_THAT(message_of<UnsupportedError>(root_ / "x.aimodelc"), HasSubstr(".aimodelc"));
  fs::remove(asset_ / "main.mlirb");
  EXPECT_THAT(message_of<NotFoundError>(asset_), HasSubstr("main.mlirb"));
}

}  // namespace
}  // namespace coreai
