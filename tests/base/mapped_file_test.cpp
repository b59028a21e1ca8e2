#include "coreai/base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "coreai/base/error.h"
#include "scratch_folder.h"

namespace coreai {
namespace {

TEST(MappedFile, OnlyRegularFilesAreOpenedAndNothingIsWaitedFor) {
  const test::ScratchFolder scratch;
  const auto pipe = scratch / "pipe", absent = scratch / "absent";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& path : {pipe, scratch.path()}) {
    EXPECT_THROW(MappedFile::open(path), IoError);
    EXPECT_THROW(read_text_file(path), IoError);
  }
  EXPECT_THROW(MappedFile::open(absent), NotFoundError);
  EXPECT_THROW(read_text_file(absent), NotFoundError);
}

TEST(MappedFile, ReadsWhatWasWritten) {
  const test::ScratchFolder scratch;
  const auto file = scratch / "file";
  write_file_atomically(file, "text");
  EXPECT_EQ(read_text_file(file), "text");
  EXPECT_EQ(MappedFile::open(file)->bytes().size(), 4u);
  EXPECT_THROW(read_text_file(file, 3), IoError);
  write_file_atomically(file, "");
  EXPECT_EQ(MappedFile::open(file)->bytes().size(), 0u);
}

TEST(MappedFile, AReplacedFileKeepsItsMode) {
  const test::ScratchFolder scratch;
  const auto file = scratch / "file";
  struct stat info{};
  write_file_atomically(file, "new");
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0644u);
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  write_file_atomically(file, "newer");
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0600u);
}

}  // namespace
}  // namespace coreai
