// coreai-bundle audit: everything that is wrong with a bundle.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "coreai-bundle/commands.h"
#include "coreai/bundle/audit.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string bundle;
  std::optional<std::uint64_t> max_bytes;
  bool json = false, rules = false;
};

Json weights_json(const WeightMeasure& weights) {
  Json dtypes = Json::object();
  for (const auto& [name, share] : weights.by_dtype)
    dtypes[name] = {{"elements", share.elements}, {"bytes", share.bytes}};
  return {{"elements", weights.elements},
          {"bytes", weights.bytes},
          {"bits_per_weight", weights.bits_per_weight()},
          {"constants", std::move(dtypes)}};
}

Json report_json(const AuditReport& report) {
  Json json = {{"path", report.path.string()},
               {"kind", report.kind},
               {"name", report.name},
               {"bytes", report.bytes},
               {"clean", report.clean()},
               {"errors", report.count(Severity::kError)},
               {"warnings", report.count(Severity::kWarning)},
               {"notes", report.count(Severity::kNote)}};
  json["findings"] = Json::array();
  for (const Finding& finding : report.findings)
    json["findings"].push_back({{"id", finding.id()},
                                {"severity", severity_name(finding.severity())},
                                {"path", finding.path},
                                {"sentence", finding.sentence},
                                {"fix", finding.fix}});
  json["assets"] = Json::array();
  for (const AuditedAsset& asset : report.assets)
    json["assets"].push_back({{"role", asset.role},
                              {"file", asset.file},
                              {"loaded", asset.loaded},
                              {"bytes", asset.bytes},
                              {"asset_version", asset.asset_version},
                              {"producer", asset.producer},
                              {"hash", asset.hash},
                              {"functions", asset.functions},
                              {"weights", weights_json(asset.weights)}});
  return json;
}

std::string assets_text(const AuditReport& report) {
  Table table({{"role", Table::Align::kLeft},
               {"asset", Table::Align::kLeft},
               {"size", Table::Align::kRight},
               {"weights", Table::Align::kRight},
               {"bits each", Table::Align::kRight},
               {"producer", Table::Align::kLeft}});
  for (const AuditedAsset& asset : report.assets)
    table.add_row({asset.role, asset.file, format_bytes(asset.bytes), format_count(asset.weights.elements),
                   asset.weights.elements == 0 ? "-" : fmt::format("{:.2f}", asset.weights.bits_per_weight()),
                   asset.producer.empty() ? "-" : asset.producer});
  return table.to_string();
}

std::string report_text(const AuditReport& report) {
  std::string out =
      fmt::format("{} ({}, {})\n", printable(report.path.string()),
                  report.kind.empty() ? "unknown kind" : printable(report.kind), format_bytes(report.bytes));
  if (!report.assets.empty()) out += assets_text(report);
  for (const Finding& finding : report.findings)
    out += fmt::format("\n{}: {} [{}]\n  {}\n  fix: {}\n", severity_name(finding.severity()), printable(finding.path),
                       finding.id(), printable(finding.sentence), printable(finding.fix));
  const std::size_t errors = report.count(Severity::kError), warnings = report.count(Severity::kWarning);
  return out + fmt::format("\n{}: {}, {}, {}\n", report.clean() ? "clean" : "not clean", plural(errors, "error"),
                           plural(warnings, "warning"), plural(report.count(Severity::kNote), "note"));
}

int print_rules(bool json) {
  Json list = Json::array();
  Table table({{"finding", Table::Align::kLeft}, {"severity", Table::Align::kLeft}, {"meaning", Table::Align::kLeft}});
  for (const AuditRuleInfo& rule : audit_rules()) {
    table.add_row({std::string(rule.id), std::string(severity_name(rule.severity)), std::string(rule.meaning)});
    list.push_back(
        {{"id", rule.id}, {"severity", severity_name(rule.severity)}, {"meaning", rule.meaning}, {"fix", rule.fix}});
  }
  if (json) {
    print_json(list);
  } else {
    print(table.to_string());
  }
  return kDone;
}

int audit(const Options& options) {
  if (options.bundle.empty() && !options.rules) throw CLI::RequiredError("bundle");
  return looking([&] {
    if (options.rules) return print_rules(options.json);
    const AuditReport report = audit_bundle(options.bundle, {.max_bytes = options.max_bytes});
    if (options.json) {
      print_json(report_json(report));
    } else {
      print(report_text(report));
    }
    return static_cast<int>(report.clean() ? kDone : kFailed);
  });
}

}  // namespace

Command add_audit(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("audit",
                                         "Finds what is wrong with a bundle or an asset: exit 0 clean, 1 findings "
                                         "(notes do not count), 2 it could not be looked at");
  CLI::Option* bundle =
      command->add_option("bundle", options->bundle, "The bundle's folder, or an .aimodel")->type_name("BUNDLE");
  command->add_option("--max-bytes", options->max_bytes, "A finding when all files together have more bytes")
      ->type_name("N")
      ->check(at_least(0));
  command->add_flag("--json", options->json, "Print one JSON document");
  command->add_flag("--rules", options->rules, "Print every finding there is, with its meaning, and look at no bundle")
      ->excludes(bundle);
  return {command, [options] { return audit(*options); }};
}

}  // namespace coreai::tools
