// coreai-bundle verify: is everything there that metadata.json declares, and undamaged. Quicker than an audit.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "coreai-bundle/commands.h"
#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/bundle/open_bundle.h"
#include "coreai/text/tokenizer.h"

namespace coreai::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::string bundle;
  bool json = false;
};

struct Check {
  std::string what, path;
  std::string problem, fix, fault;  // empty: as it should be
};

Check failed(std::string what, std::string path, const Error& error) {
  const auto* of_bundle = dynamic_cast<const BundleError*>(&error);
  return {std::move(what), std::move(path), error.problem(), error.next_step(),
          std::string(of_bundle != nullptr ? bundle_fault_name(of_bundle->fault()) : error_code_name(error.code()))};
}

template <typename Look>
Check check(const std::string& what, const std::string& path, const Look& look) {
  try {
    look();
  } catch (const Error& error) {
    return failed(what, path, error);
  }
  return {what, path, "", "", ""};
}

// Its hash is compared, and its program read: a file without a hash may hold anything.
Check check_asset(const std::string& role, const fs::path& path) {
  return check("assets." + role, path.filename().string(), [&] { AIModelAsset::open(path).load_module(); });
}

void read_tokenizer(const fs::path& folder) {
  if (Tokenizer::from_directory(folder).vocab_size() == 0)
    throw NotFoundError("the tokenizer's vocabulary is empty", (folder / "tokenizer.json").string(),
                        "Copy tokenizer.json again");
}

std::vector<Check> check_tokenizers(const AnyBundle& bundle, const fs::path& root) {
  try {
    std::vector<Check> checks;
    for (const fs::path& folder : tokenizer_folders(bundle))
      checks.push_back(check("tokenizer", folder.lexically_relative(root).string(), [&] { read_tokenizer(folder); }));
    return checks;
  } catch (const BundleError& error) {
    return {failed("tokenizer", "", error)};
  }
}

// generation_config.json as the kinds read it that have one.
void read_generation(const AnyBundle& bundle) {
  if (const auto* language = std::get_if<LanguageBundle>(&bundle)) language->declared_end_tokens();
  if (const auto* speech = std::get_if<SpeechBundle>(&bundle)) speech->whisper_generation();
}

std::vector<Check> checks_of(const AnyBundle& bundle, const BundleDescription& description) {
  if (std::holds_alternative<BareAsset>(bundle))  // opening one reads all of it
    return {{"asset", description.path.filename().string(), "", "", ""}};
  std::vector<Check> checks;
  std::set<std::string> reported;
  for (const BundleError& error : problems(bundle)) {
    checks.push_back(failed(error.field(), "", error));
    reported.insert(error.field());
  }
  for (const auto& [role, path] : description.assets)
    if (!reported.contains("assets." + role)) checks.push_back(check_asset(role, path));
  if (description.assets.empty())
    checks.push_back({"assets", "", "no assets are declared", "Name each .aimodel by its role in \"assets\"",
                      std::string(bundle_fault_name(BundleFault::kMissingField))});
  const std::vector<Check> tokenizers = check_tokenizers(bundle, description.path);
  checks.insert(checks.end(), tokenizers.begin(), tokenizers.end());
  if (std::ranges::all_of(tokenizers, [](const Check& one) { return one.problem.empty(); })) {
    Check generation = check("generation_config.json", "", [&] { read_generation(bundle); });
    if (!generation.problem.empty()) checks.push_back(std::move(generation));
  }
  return checks;
}

// Whether there is no bundle or asset at the path; anything else is a bundle with something wrong in it.
bool nothing_there(const Error& error) {
  const auto* of_bundle = dynamic_cast<const BundleError*>(&error);
  if (of_bundle == nullptr) return false;
  switch (of_bundle->fault()) {
    case BundleFault::kPointedAtAsset:
    case BundleFault::kMissingMetadata:
    case BundleFault::kMissingAsset:
    case BundleFault::kCompiledAsset:
    case BundleFault::kNotAFolder:
    case BundleFault::kLegacyFormat:
      return true;
    default:
      return false;
  }
}

struct Report {
  fs::path path;
  std::string kind;  // empty when the metadata does not tell
  std::vector<Check> checks;
  bool good() const {
    return std::ranges::all_of(checks, [](const Check& one) { return one.problem.empty(); });
  }
};

Report look_at(const fs::path& path) {
  const bool is_asset = (path / "").parent_path().extension() == ".aimodel";
  std::optional<AnyBundle> bundle;
  try {
    bundle = open_bundle(path);
  } catch (const Error& error) {
    if (nothing_there(error)) throw;
    return {path, "", {failed(is_asset ? "asset" : "metadata.json", "", error)}};
  }
  const BundleDescription description = describe(*bundle);
  return {description.path, description.kind, checks_of(*bundle, description)};
}

int verify(const Options& options) {
  return looking([&] {
    const Report report = look_at(options.bundle);
    Json list = Json::array();
    Table table({{"what", Table::Align::kLeft}, {"path", Table::Align::kLeft}, {"", Table::Align::kLeft}});
    for (const Check& one : report.checks) {
      const bool good = one.problem.empty();
      table.add_row({one.what, one.path, good ? "good" : fmt::format("{}. {}", one.problem, one.fix)});
      list.push_back({{"what", one.what}, {"path", one.path}, {"good", good}});
      if (!good) list.back().update({{"fault", one.fault}, {"problem", one.problem}, {"fix", one.fix}});
    }
    if (options.json) {
      print_json({{"path", report.path.string()},
                  {"kind", report.kind},
                  {"good", report.good()},
                  {"checks", std::move(list)}});
    } else {
      print(table.to_string());
    }
    return static_cast<int>(report.good() ? kDone : kFailed);
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
