#include "coreai/base/staging_folder.h"

#include <gtest/gtest.h>

#include "coreai/base/error.h"
#include "scratch_folder.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(StagingFolder, IsThereWholeOrNotAtAll) {
  const test::ScratchFolder scratch;
  {
    const StagingFolder dropped(scratch / "a");
  }
  EXPECT_EQ(entries(scratch.path()), 0u);
  {
    StagingFolder staging(scratch / "a");
    std::ofstream(staging.path() / "file") << "new";
    EXPECT_FALSE(fs::exists(scratch / "a"));
    staging.publish();
  }
  EXPECT_TRUE(fs::exists(scratch / "a" / "file"));
  EXPECT_EQ(entries(scratch.path()), 1u);
}

TEST(StagingFolder, KeepsWhatIsThereUnlessToldOtherwise) {
  const test::ScratchFolder scratch;
  fs::create_directories(scratch / "a");  // empty: a plain rename would replace it
  {
    StagingFolder staging(scratch / "a");
    EXPECT_THROW(staging.publish(), IoError);
  }
  std::ofstream(scratch / "a" / "old") << "old";
  {
    StagingFolder staging(scratch / "a");
    std::ofstream(staging.path() / "new") << "new";
    staging.publish(StagingFolder::Existing::kReplace);
  }
  EXPECT_TRUE(fs::exists(scratch / "a" / "new"));
  EXPECT_FALSE(fs::exists(scratch / "a" / "old"));
  EXPECT_EQ(entries(scratch.path()), 1u);
  {
    StagingFolder staging(scratch / "b");
    EXPECT_THROW(staging.publish(StagingFolder::Existing::kReplace), IoError);
  }
  EXPECT_THROW(StagingFolder(scratch / "absent" / "b"), IoError);
}

}  // namespace
}  // namespace coreai
