#include "coreai/base/staging_folder.h"

#include <fcntl.h>
#include <stdio.h>   // renameat2
#include <stdlib.h>  // mkdtemp
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "coreai/base/error.h"

namespace coreai {

StagingFolder::StagingFolder(std::filesystem::path target) : target_(std::move(target)) {
  std::string name = target_.string() + ".tmp.XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    throw IoError("no folder can be created here", target_.string(), errno,
                  "Choose a folder that exists and is writable");
  path_ = name;
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

// After kKeep nothing is left under the temporary name, after kReplace the old folder is.
void StagingFolder::publish(Existing existing) {
  const unsigned flags = existing == Existing::kReplace ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (::chmod(path_.c_str(), 0755) == 0 && ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), flags) == 0)
    return;
  throw IoError("the new folder cannot be moved into place", target_.string(), errno);
}

}  // namespace coreai
