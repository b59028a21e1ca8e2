// coreai-bundle verify: is everything there that metadata.json declares, and undamaged. Quicker than an audit.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "coreai-bundle/commands.h"
#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/bundle/open_bundle.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string bundle;
  bool json = false;
};

struct Check {
  std::string what, path;
  std::string problem, fix;  // empty: as it should be
};

// An asset that is there is opened, which compares its hash.
Check check_asset(const std::string& role, const std::filesystem::path& path) {
  Check check{role.empty() ? "asset" : fmt::format("assets.{}", role), path.filename().string(), "", ""};
  try {
    AIModelAsset::open(path);
  } catch (const Error& error) {
    check.problem = error.problem();
    check.fix = error.next_step();
  }
  return check;
}

// The folder with tokenizer.json, of the kinds that say where it is.
std::optional<Check> check_tokenizer(const AnyBundle& bundle) {
  Check check{"tokenizer", "", "", ""};
  try {
    if (const auto* language = std::get_if<LanguageBundle>(&bundle)) {
      check.path = language->tokenizer_directory().lexically_relative(language->path()).string();
    } else if (const auto* speech = std::get_if<SpeechBundle>(&bundle)) {
      check.path = speech->tokenizer_directory().lexically_relative(speech->path()).string();
    } else {
      return std::nullopt;
    }
  } catch (const Error& error) {
    check.problem = error.problem();
    check.fix = error.next_step();
  }
  return check;
}

std::vector<Check> checks_of(const AnyBundle& bundle, const BundleDescription& description) {
  std::vector<Check> checks;
  std::set<std::string> reported;
  for (const BundleError& error : problems(bundle)) {
    checks.push_back({error.field(), "", error.problem(), error.next_step()});
    reported.insert(error.field());
  }
  if (std::holds_alternative<BareAsset>(bundle)) {
    checks.push_back(check_asset("", description.path));
  } else {
    for (const auto& [role, path] : description.assets)
      if (!reported.contains("assets." + role)) checks.push_back(check_asset(role, path));
  }
  if (auto tokenizer = check_tokenizer(bundle)) checks.push_back(std::move(*tokenizer));
  return checks;
}

int verify(const Options& options) {
  return looking([&] {
    const AnyBundle bundle = open_bundle(options.bundle);
    const BundleDescription description = describe(bundle);
    const bool nothing = description.assets.empty() && !std::holds_alternative<BareAsset>(bundle);
    std::size_t problem_count = nothing ? 1 : 0;
    Json list = Json::array();
    Table table({{"what", Table::Align::kLeft}, {"path", Table::Align::kLeft}, {"", Table::Align::kLeft}});
    for (const Check& check : checks_of(bundle, description)) {
      const bool good = check.problem.empty();
      problem_count += good ? 0 : 1;
      table.add_row({check.what, check.path, good ? "good" : fmt::format("{}. {}", check.problem, check.fix)});
      list.push_back({{"what", check.what}, {"path", check.path}, {"good", good}});
      if (!good) list.back().update({{"problem", check.problem}, {"fix", check.fix}});
    }
    if (options.json) {
      print_json({{"path", description.path.string()},
                  {"kind", description.kind},
                  {"good", problem_count == 0},
                  {"checks", list}});
    } else {
      print(table.to_string());
      if (nothing) print("no assets are declared\n");
    }
    return static_cast<int>(problem_count == 0 ? kDone : kFailed);
  });
}

}  // namespace

Command add_verify(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("verify",
                                         "Checks that everything a bundle declares is there and undamaged: exit 0, 1 "
                                         "when not, 2 when it could not be looked at");
  command->add_option("bundle", options->bundle, "The bundle's folder, or an .aimodel")
      ->required()
      ->type_name("BUNDLE");
  command->add_flag("--json", options->json, "Print one JSON document");
  return {command, [options] { return verify(*options); }};
}

}  // namespace coreai::tools
