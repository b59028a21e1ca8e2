// The subcommands of coreai-bundle. Each adds its options to the app and returns what runs it; options live as long as
// the returned function.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/tool.h"
#include "coreai/bundle/audit.h"

namespace coreai::tools {

struct Command {
  CLI::App* app;
  std::function<int()> run;
};

// The whole program.
int coreai_bundle(int argc, char** argv);

Command add_audit(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_retarget(CLI::App& app);
Command add_new(CLI::App& app);

// One JSON document on stdout; bytes that are no UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& json);
// "1 error, 2 warnings".
std::string plural(std::size_t count, const std::string& noun);
// Runs `look`; a bundle that could not be looked at, and an answer that could not be written, is told and gives
// kCouldNotLook.
int looking(const std::function<int()>& look);

}  // namespace coreai::tools
