// Bundles by name.
#include "coreai/bundle/model_paths.h"

#include <cstdlib>
#include <optional>

#include "bundle/bundle_folder.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class Paths : public test::BundleFolder {
 protected:
  void SetUp() override {
    BundleFolder::SetUp();
    for (const char* name : {"HOME", "COREAI_MODEL_PATH"}) kept_.emplace_back(name, value_of(name));
    ::unsetenv("COREAI_MODEL_PATH");
    ::setenv("HOME", root_.c_str(), 1);
    old_ = fs::current_path();
    fs::current_path(dir_);
  }
  void TearDown() override {
    fs::current_path(old_);
    for (const auto& [name, value] : kept_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
    BundleFolder::TearDown();
  }
  static std::optional<std::string> value_of(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  static void bundle(const fs::path& folder) { write(folder / "metadata.json", "{}"); }

  std::vector<std::pair<std::string, std::optional<std::string>>> kept_;
  fs::path old_;
};

TEST_F(Paths, TheOverrideComesBeforeTheEnvironmentAndTheDefaults) {
  EXPECT_THAT(ModelPaths::standard().folders(), ElementsAre(".", "./exports", root_ / ".coreai-models"));
  ::setenv("COREAI_MODEL_PATH", "/a::~/b:", 1);
  EXPECT_THAT(ModelPaths::standard().folders(), ElementsAre("/a", root_ / "b"));
  EXPECT_THAT(ModelPaths::standard("/c:d").folders(), ElementsAre("/c", "d"));
  ::setenv("COREAI_MODEL_PATH", "", 1);
  EXPECT_THAT(ModelPaths::standard(":").folders(), ElementsAre(".", "./exports", root_ / ".coreai-models"));
}

TEST_F(Paths, TheFirstFolderWithABundleOfThatNameWins) {
  bundle(root_ / ".coreai-models/small");
  EXPECT_EQ(ModelPaths::standard().find("small"), root_ / ".coreai-models/small");
  bundle(dir_ / "exports/small");
  EXPECT_EQ(ModelPaths::standard().find("small"), "./exports/small");
  fs::create_directories(dir_ / "exports/empty");
  bundle(root_ / ".coreai-models/empty");
  EXPECT_EQ(ModelPaths::standard().find("empty"), root_ / ".coreai-models/empty");
  bundle(dir_ / "exports/org/name");
  EXPECT_EQ(ModelPaths::standard().find("org/name"), "./exports/org/name");
}

TEST_F(Paths, APathWins) {
  bundle(dir_ / "exports/small");
  fs::create_directories(dir_ / "small");
  EXPECT_EQ(ModelPaths::standard().find("small"), "small");
  for (const char* path : {"/nowhere/small", "./nowhere", "../nowhere", "."})
    EXPECT_EQ(ModelPaths::standard().find(path), path);
  EXPECT_EQ(ModelPaths::standard().find("~/x"), root_ / "x");
}

TEST_F(Paths, AMissListsWhereItLooked) {
  fs::create_directories(dir_ / "exports/small");
  expect_fault(BundleFault::kUnknownModel, "",
               "model \"small\" not found; looked for: ./small, ./exports/small (no metadata.json), ",
               [&] { ModelPaths::standard().find("small"); });
  expect_fault(BundleFault::kUnknownModel, "", "not found; looked for: /a/x, /b/x",
               [&] { ModelPaths::standard("/a:/b").find("x"); });
  expect_fault(BundleFault::kUnknownModel, "", "no folder is set", [&] { ModelPaths({}).find("x"); });
  expect_fault(BundleFault::kUnknownModel, "", "is no model's name", [&] { ModelPaths::standard().find(""); });
  bundle(root_ / "outside");
  expect_fault(BundleFault::kUnknownModel, "", "not found",
               [&] { ModelPaths({dir_ / "exports"}).find("a/../../../outside"); });
}

}  // namespace
}  // namespace coreai
