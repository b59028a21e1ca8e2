// The subcommands of coreai-grammar. Each adds its options to the app and returns what runs it; options live as long as
// the returned function.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "common/tool.h"

namespace coreai::tools {

struct Command {
  CLI::App* app;
  std::function<int()> run;
};

// The whole program.
int coreai_grammar(int argc, char** argv);

Command add_bench(CLI::App& app);
Command add_check(CLI::App& app);
Command add_compile(CLI::App& app);
Command add_mask(CLI::App& app);

// One JSON document on stdout; bytes that are no UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& json);
// Runs `look`; a grammar or file that could not be looked at is told and gives kCouldNotLook.
int looking(const std::function<int()>& look);

}  // namespace coreai::tools
