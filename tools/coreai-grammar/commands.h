// The subcommands of coreai-grammar. Each adds its options to the app and returns what runs it; options live as long as
// the returned function.
#pragma once

#include "common/tool.h"

namespace coreai::tools {

// The whole program.
int coreai_grammar(int argc, char** argv);

Command add_bench(CLI::App& app);
Command add_check(CLI::App& app);
Command add_compile(CLI::App& app);
Command add_explain(CLI::App& app);
Command add_mask(CLI::App& app);

}  // namespace coreai::tools
