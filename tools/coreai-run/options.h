#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/tool.h"
#include "coreai/runtime/ai_model.h"

namespace coreai::tools {

struct CoreaiRunOptions {
  std::string asset;  // empty: --check files name their own
  std::string precision;
  std::string kernels;
  std::vector<std::string> disabled_passes;
  std::string function = "main";
  std::vector<std::string> inputs, states;  // name=file.npy; a state may be name=zeros:1x2x3
  std::string output_directory;
  std::vector<std::string> checks;
  std::string case_name;
  std::string record;
  double rtol = 0, atol = 0;  // written by --record
  bool profile = false;
  int repeat = 5;  // calls of a profile
  bool json = false;
  CommonOptions common;
};

// Calls a function again and again and prints the medians per step.
int profile_function(const CoreaiRunOptions& options, const InferenceFunction& function, const NamedArrays& inputs,
                     std::span<State*> states);
int run_asset(const CoreaiRunOptions& options);
int run_checks(const CoreaiRunOptions& options);

}  // namespace coreai::tools
