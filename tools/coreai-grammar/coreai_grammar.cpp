// coreai-grammar: does a grammar compile, what does it allow, what does it cost. No model is needed.
#include "coreai-grammar/commands.h"

namespace coreai::tools {

int coreai_grammar(int argc, char** argv) {
  CLI::App app{
      "Compiles grammars, checks texts against them, shows what they allow and measures them. No model needed.",
      "coreai-grammar"};
  CommonOptions common;
  add_common_options(app, common);
  app.require_subcommand(1);
  const std::vector<Command> commands = {add_compile(app), add_check(app), add_explain(app), add_mask(app),
                                         add_bench(app)};
  return run_tool(app, argc, argv, [&] {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return static_cast<int>(kWrongUsage);
  });
}

}  // namespace coreai::tools
