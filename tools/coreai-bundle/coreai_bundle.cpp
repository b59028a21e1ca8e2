// coreai-bundle: look into a model bundle, find what is wrong with it, change it, make one.
#include <fmt/format.h>

#include "coreai-bundle/commands.h"

namespace coreai::tools {

std::string plural(std::size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

int coreai_bundle(int argc, char** argv) {
  CLI::App app{"Looks into model bundles, audits them, changes and makes them.", "coreai-bundle"};
  CommonOptions common;
  add_common_options(app, common);
  app.require_subcommand(1);
  const std::vector<Command> commands = {add_audit(app), add_inspect(app), add_verify(app), add_retarget(app),
                                         add_new(app)};
  return run_tool(app, argc, argv, [&] {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return static_cast<int>(kWrongUsage);
  });
}

}  // namespace coreai::tools
