// Programs as a user runs them: through the shell, their streams kept in files of a folder of the test's own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace coreai::testing_support {

inline std::string slurp(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct ProcessResult {
  int code = -1;  // exit status, or 128 + the signal that ended it
  std::string out, err;
};

// Runs commands in a fresh folder that goes with the test; packed weights are cached in it too.
class ProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) /
           (std::string("coreai_") + testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + "_" +
            std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
    ::setenv("COREAI_CACHE_DIR", (dir_ / "cache").c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  ProcessResult shell(const std::string& command) const {
    const std::string line = "cd '" + dir_.string() + "' && { " + command + "; } > out 2> err";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(dir_ / "out"), slurp(dir_ / "err")};
  }

  std::filesystem::path dir_;
};

}  // namespace coreai::testing_support
