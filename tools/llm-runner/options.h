// The command line of llm-runner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/tool.h"
#include "coreai/language/generation.h"

namespace coreai::tools {

struct LlmRunnerOptions {
  CommonOptions common;
  std::string model;
  std::string model_path;  // folders to look for a name in, separated by ":"
  std::string precision = "faithful";
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> prompt_ids;
  std::string system;
  bool raw = false;
  bool json = false;
  std::int64_t max_tokens = 512;
  SamplingConfiguration sampling;
  std::optional<std::uint64_t> seed;
  std::string logits_file;
};

void add_options(CLI::App& app, LlmRunnerOptions& options);
// Throws CLI::ValidationError for what one option's own check cannot see.
void check_options(const LlmRunnerOptions& options);
// "1,2,3" or "[1, 2, 3]" as ids. Throws InvalidArgumentError.
std::vector<TokenId> parse_ids(const std::string& text);

}  // namespace coreai::tools
