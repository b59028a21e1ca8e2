// The subcommands of coreai-bundle. Each adds its options to the app and returns what runs it; options live as long as
// the returned function.
#pragma once

#include <string>

#include "common/tool.h"
#include "coreai/bundle/audit.h"

namespace coreai::tools {

// The whole program.
int coreai_bundle(int argc, char** argv);

Command add_audit(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_retarget(CLI::App& app);
Command add_new(CLI::App& app);

// "1 error, 2 warnings".
std::string plural(std::size_t count, const std::string& noun);

}  // namespace coreai::tools
