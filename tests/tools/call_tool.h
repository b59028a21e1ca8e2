// A tool's main function called as a user calls the tool.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace coreai::tools {

struct Outcome {
  int code;
  std::string out, err;
};

inline Outcome call_tool(int (*tool)(int, char**), const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), name);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = tool(static_cast<int>(argv.size()), argv.data());
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

inline std::string fixture(const std::string& relative) {
  return std::string(COREAI_FIXTURE_DIR) + "/" + relative;
}

}  // namespace coreai::tools
