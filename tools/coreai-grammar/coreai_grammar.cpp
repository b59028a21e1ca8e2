// coreai-grammar: does a grammar compile, what does it allow, what does it cost. No model is needed.
#include <nlohmann/json.hpp>

#include "coreai-grammar/commands.h"
#include "coreai/base/error.h"

namespace coreai::tools {

void print_json(const nlohmann::ordered_json& json) {
  print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

int looking(const std::function<int()>& look) {
  try {
    const int code = look();
    flush();
    return code;
  } catch (const Error& error) {
    print_error(error.what());
    return kCouldNotLook;
  }
}

int coreai_grammar(int argc, char** argv) {
  CLI::App app{
      "Compiles grammars, checks texts against them, shows what they allow and measures them. No model needed.",
      "coreai-grammar"};
  CommonOptions common;
  add_common_options(app, common);
  app.require_subcommand(1);
  const std::vector<Command> commands = {add_compile(app), add_check(app), add_mask(app), add_bench(app)};
  return run_tool(app, argc, argv, [&] {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return static_cast<int>(kWrongUsage);
  });
}

}  // namespace coreai::tools
