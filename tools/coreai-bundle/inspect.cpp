// coreai-bundle inspect: what a bundle of any kind holds.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

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

// One asset as far as it can be read; weights are not touched.
struct Part {
  std::string role, file, producer, problem;
  std::uint64_t bytes = 0;  // of the program
  std::vector<FunctionDescriptor> functions;
};

Part read_part(const std::string& role, const std::filesystem::path& path) {
  Part part{role, path.filename().string(), "", "", 0, {}};
  try {
    const AIModelAsset asset = AIModelAsset::open(path, HashCheck::kSkip);
    part.producer = asset.metadata().producer;
    part.bytes = asset.program_bytes().size();
    part.functions = summarize(*asset.load_module()).functions;
  } catch (const Error& error) {
    part.problem = error.what();
  }
  return part;
}

// What the bundle's reader refuses (a folder that is a link out of the bundle) is not read.
std::vector<Part> parts_of(const AnyBundle& bundle, const BundleDescription& description) {
  if (const auto* bare = std::get_if<BareAsset>(&bundle)) return {read_part("", bare->path)};
  std::map<std::string, std::string> refused;
  for (const BundleError& error : problems(bundle)) refused.emplace(error.field(), error.what());
  std::vector<Part> parts;
  for (const auto& [role, path] : description.assets) {
    const auto found = refused.find("assets." + role);
    parts.push_back(found == refused.end() ? read_part(role, path)
                                           : Part{role, path.filename().string(), "", found->second, 0, {}});
  }
  return parts;
}

Json report_json(const BundleDescription& description, const std::vector<Part>& parts) {
  Json json = {{"path", description.path.string()}, {"kind", description.kind}, {"name", description.name}};
  json["facts"] = Json::object();
  for (const auto& [label, value] : description.facts) json["facts"][label] = value;
  json["assets"] = Json::array();
  for (const Part& part : parts) {
    Json functions = Json::array();
    for (const FunctionDescriptor& function : part.functions) functions.push_back(signature_text(function));
    json["assets"].push_back({{"role", part.role},
                              {"file", part.file},
                              {"bytes", part.bytes},
                              {"producer", part.producer},
                              {"functions", std::move(functions)},
                              {"problem", part.problem.empty() ? Json(nullptr) : Json(part.problem)}});
  }
  json["warnings"] = description.warnings;
  json["symlinks"] = Json::array();
  for (const BundleLink& link : description.symlinks)
    json["symlinks"].push_back({{"path", link.path.string()}, {"target", link.target.string()}});
  return json;
}

std::string report_text(const BundleDescription& description, const std::vector<Part>& parts) {
  Table facts({{"bundle", Table::Align::kLeft}, {description.path.string(), Table::Align::kLeft}});
  facts.add_row({"kind", description.kind});
  facts.add_row({"name", description.name});
  for (const auto& [label, value] : description.facts) facts.add_row({label, value});
  for (const BundleLink& link : description.symlinks)
    facts.add_row({"link", fmt::format("{} -> {}", link.path.string(), link.target.string())});
  std::string out = facts.to_string();
  Table assets({{"role", Table::Align::kLeft},
                {"asset", Table::Align::kLeft},
                {"size", Table::Align::kRight},
                {"producer", Table::Align::kLeft}});
  for (const Part& part : parts)
    assets.add_row({part.role, part.file, part.problem.empty() ? format_bytes(part.bytes) : "-",
                    part.producer.empty() ? "-" : part.producer});
  if (!parts.empty()) out += "\n" + assets.to_string();
  for (const Part& part : parts) {
    if (part.functions.empty()) continue;
    out += fmt::format("\nfunctions of {}\n", printable(part.role.empty() ? part.file : part.role));
    for (const FunctionDescriptor& function : part.functions)
      out += fmt::format("  {}\n", printable(signature_text(function)));
  }
  return out;
}

int inspect(const Options& options) {
  const AnyBundle bundle = open_bundle(options.bundle);
  const BundleDescription description = describe(bundle);
  const std::vector<Part> parts = parts_of(bundle, description);
  if (options.json) {
    print_json(report_json(description, parts));
  } else {
    print(report_text(description, parts));
  }
  for (const std::string& warning : description.warnings) print_warning(warning);
  int code = kDone;
  for (const Part& part : parts) {
    if (part.problem.empty()) continue;
    print_error(part.problem);
    code = kFailed;
  }
  return code;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("inspect",
                         "Shows what a bundle or an asset holds: exit 0, 1 when a part cannot be read, 2 when "
                         "it could not be looked at");
  command->add_option("bundle", options->bundle, "The bundle's folder, or an .aimodel")
      ->required()
      ->type_name("BUNDLE");
  command->add_flag("--json", options->json, "Print one JSON document");
  return {command, [options] { return looking([&] { return inspect(*options); }); }};
}

}  // namespace coreai::tools
