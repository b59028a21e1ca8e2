// coreai-build: look into an .aimodel asset, write it again, keep the cache, print the dialect.
#include "coreai-build/commands.h"

namespace coreai::tools {

int coreai_build(int argc, char** argv) {
  CLI::App app{"Looks into Core AI .aimodel assets and rewrites them.", "coreai-build"};
  CommonOptions common;
  add_common_options(app, common);
  app.require_subcommand(1);
  const std::vector<Command> commands = {add_inspect(app, common), add_rewrite(app), add_cache(app), add_dialect(app)};
  return run_tool(app, argc, argv, [&] {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return static_cast<int>(kWrongUsage);
  });
}

}  // namespace coreai::tools
