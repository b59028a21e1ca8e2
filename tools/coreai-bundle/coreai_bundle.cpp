// coreai-bundle: look into a model bundle, find what is wrong with it, change it, make one.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coreai-bundle/commands.h"
#include "coreai/base/error.h"

namespace coreai::tools {

void print_json(const nlohmann::ordered_json& json) {
  print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string plural(std::size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
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
