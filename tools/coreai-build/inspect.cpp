// coreai-build inspect: what an asset holds.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "coreai-build/commands.h"
#include "coreai-build/plan.h"
#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/ir/printer.h"
#include "coreai/ir/verifier.h"
#include "coreai/runtime/ai_model.h"
#include "coreai/runtime/op_usage.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string asset;
  bool text = false, json = false, locations = false, disk = false, ops = false;
  std::int64_t elements = 64;
  std::optional<std::string> plan;  // extents of the dynamic dimensions
  std::string function = "main";
  std::vector<std::string> disabled_passes;
};

std::string program_text(const ir::Module& module, const InspectOptions& options) {
  ir::PrintOptions print_options;
  print_options.element_limit = options.elements;
  print_options.locations = options.locations;
  print_options.form = options.disk ? ir::TextForm::kDisk : ir::TextForm::kProgram;
  return ir::to_text(module, print_options);
}

// Largest first, then by name.
template <typename Count>
std::vector<std::pair<std::string, Count>> by_size(const std::map<std::string, Count>& counts) {
  std::vector<std::pair<std::string, Count>> sorted(counts.begin(), counts.end());
  std::ranges::sort(sorted, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return sorted;
}

std::map<std::string, std::int64_t> count_names(const std::vector<std::string>& names) {
  std::map<std::string, std::int64_t> counts;
  for (const std::string& name : names) ++counts[name];
  return counts;
}

Json values_json(const std::vector<ValueDescriptor>& values) {
  Json list = Json::array();
  for (const ValueDescriptor& value : values) {
    Json shape = Json::array();
    for (const std::int64_t extent : value.shape) shape.push_back(extent == kDynamic ? -1 : extent);
    list.push_back(
        {{"name", value.name}, {"type", value.type_name}, {"dtype", dtype_name(value.dtype)}, {"shape", shape}});
  }
  return list;
}

Json summary_json(const AIModelAsset& asset, const AIModelAssetSummary& summary) {
  const AIModelAssetMetadata& metadata = asset.metadata();
  Json json;
  json["path"] = asset.path().string();
  json["asset_version"] = metadata.asset_version;
  const auto optional = [&](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  optional("producer", metadata.producer);
  optional("creation_date", metadata.creation_date);
  optional("author", metadata.author);
  optional("license", metadata.license);
  optional("description", metadata.description);
  json["hash"] = asset.hash_hex().empty() ? Json(nullptr) : Json(asset.hash_hex());
  json["program_bytes"] = summary.program_bytes;
  json["functions"] = Json::array();
  for (const FunctionDescriptor& function : summary.functions) {
    json["functions"].push_back({{"name", function.name},
                                 {"inputs", values_json(function.inputs)},
                                 {"states", values_json(function.states)},
                                 {"outputs", values_json(function.outputs)}});
  }
  json["composites"] = count_names(summary.composites);
  json["operations"] = summary.top_level_operations;
  json["operations_with_decompositions"] = summary.operation_distribution;
  json["storage_bytes"] = summary.storage_bytes;
  return json;
}

void add_line(std::string& out, std::string_view key, const std::string& value) {
  if (!value.empty()) out += fmt::format("{:<13} {}\n", key, printable(value));
}

std::string functions_text(const AIModelAssetSummary& summary) {
  std::string out;
  for (const FunctionDescriptor& function : summary.functions) {
    out += fmt::format("\nfunction {}\n", printable(function.name));
    Table table({{"", Table::Align::kLeft}, {"name", Table::Align::kLeft}, {"type", Table::Align::kLeft}});
    for (const auto& [kind, values] :
         {std::pair{"input", &function.inputs}, {"state", &function.states}, {"output", &function.outputs}}) {
      for (const ValueDescriptor& value : *values) table.add_row({kind, value.name, value.type_name});
    }
    out += table.to_string(2);
  }
  if (summary.functions.empty()) out += "\nno functions\n";
  return out;
}

std::string summary_text(const AIModelAsset& asset, const AIModelAssetSummary& summary) {
  const AIModelAssetMetadata& metadata = asset.metadata();
  std::string out;
  add_line(out, "asset", asset.path().string());
  add_line(out, "asset version", metadata.asset_version.empty() ? "none (no metadata.json)" : metadata.asset_version);
  add_line(out, "producer", metadata.producer);
  add_line(out, "created", metadata.creation_date);
  add_line(out, "author", metadata.author);
  add_line(out, "license", metadata.license);
  add_line(out, "description", metadata.description);
  add_line(out, "hash", asset.hash_hex().empty() ? "none (no main.hash)" : asset.hash_hex() + " (checked)");
  add_line(out, "program", format_bytes(summary.program_bytes));
  out += functions_text(summary);
  using Align = Table::Align;
  if (!summary.composites.empty()) {
    Table composites({{"composite", Align::kLeft}, {"graphs", Align::kRight}});
    for (const auto& [name, count] : by_size(count_names(summary.composites))) {
      composites.add_row({name, format_count(static_cast<std::uint64_t>(count))});
    }
    out += "\n" + composites.to_string();
  }
  Table operations({{"operation", Align::kLeft}, {"count", Align::kRight}, {"with decompositions", Align::kRight}});
  for (const auto& [name, count] : by_size(summary.operation_distribution)) {
    const auto top = summary.top_level_operations.find(name);
    const std::int64_t top_count = top == summary.top_level_operations.end() ? 0 : top->second;
    operations.add_row(
        {name, format_count(static_cast<std::uint64_t>(top_count)), format_count(static_cast<std::uint64_t>(count))});
  }
  out += "\n" + operations.to_string();
  Table storage({{"constants", Align::kLeft}, {"bytes", Align::kRight}, {"", Align::kRight}});
  std::uint64_t total = 0;
  for (const auto& [name, bytes] : by_size(summary.storage_bytes)) {
    storage.add_row({name, format_count(bytes), format_bytes(bytes)});
    total += bytes;
  }
  storage.add_row({"total", format_count(total), format_bytes(total)});
  return out + "\n" + storage.to_string();
}

std::string plan_text(const InspectOptions& options, const ir::Module& module, const CommonOptions& common) {
  SpecializationOptions specialization;
  specialization.threads = thread_count(common);
  specialization.disabled_passes = options.disabled_passes;
  const InferenceFunction function = AIModel::load(options.asset, specialization).load_function(options.function);
  const std::vector<std::int64_t> extents = plan_extents(module.find_graph(options.function).value(), *options.plan);
  if (options.json) return function.plan_text(extents, true);
  return fmt::format("function {} ({})\n{}", printable(options.function), function.execution_kind(),
                     function.plan_text(extents));
}

std::vector<FunctionOps> ops_of(const ir::Module& module, const InspectOptions& options) {
  std::vector<FunctionOps> all;
  for (const ir::Graph& function : module.functions())
    all.push_back(op_usage(module, function, options.disabled_passes));
  return all;
}

Json ops_json(const std::vector<FunctionOps>& all) {
  Json functions = Json::array();
  for (const FunctionOps& ops : all) {
    Json paths, usages = Json::array();
    for (int i = 0; i < kOpPathCount; ++i) {
      const auto path = static_cast<OpPath>(i);
      paths[std::string(op_path_name(path))] = ops.count(path);
    }
    for (const OpUsage& usage : ops.usages) {
      Json entry = {
          {"operation", ir::op_info(usage.code).disk_name}, {"path", op_path_name(usage.path)}, {"count", usage.count}};
      if (!usage.composite.empty()) entry["composite"] = usage.composite;
      if (!usage.reason.empty()) entry["reason"] = usage.reason;
      usages.push_back(std::move(entry));
    }
    functions.push_back({{"function", ops.function},
                         {"execution", ops.execution},
                         {"paths", std::move(paths)},
                         {"operations", std::move(usages)}});
  }
  return functions;
}

std::string ops_text(const std::vector<FunctionOps>& all) {
  std::string out;
  for (const FunctionOps& ops : all) {
    out +=
        fmt::format("{}function {} ({})\n", out.empty() ? "" : "\n", printable(ops.function), printable(ops.execution));
    Table table({{"path", Table::Align::kLeft}, {"operation", Table::Align::kLeft}, {"count", Table::Align::kRight}});
    for (int i = 0; i < kOpPathCount; ++i) {
      const auto path = static_cast<OpPath>(i);
      std::map<std::string, std::int64_t> counts;
      for (const OpUsage& usage : ops.usages) {
        const std::string name(ir::op_info(usage.code).disk_name);
        if (usage.path == path) counts[usage.composite.empty() ? name : usage.composite] += usage.count;
      }
      for (const auto& [name, count] : by_size(counts)) {
        table.add_row({std::string(op_path_name(path)), name, format_count(static_cast<std::uint64_t>(count))});
      }
    }
    out += table.to_string(2);
    for (const OpUsage& usage : ops.usages) {
      if (!usage.reason.empty()) out += "  refused: " + printable(usage.reason) + "\n";
    }
  }
  return out.empty() ? "no functions\n" : out;
}

// The program as it is read, not verified: a broken one is what somebody wants to look into.
std::unique_ptr<ir::Module> read_program(const AIModelAsset& asset) {
  const auto keep_alive = std::make_shared<AIModelAsset>(asset);
  const auto bytes = keep_alive->program_bytes();
  auto* data = const_cast<std::byte*>(bytes.data());  // the storage hands it out as read-only
  return read_bytecode(Storage::borrow(data, bytes.size(), /*writable=*/false, keep_alive),
                       (asset.path() / "main.mlirb").string());
}

int inspect(const InspectOptions& options, const CommonOptions& common) {
  if (!options.disabled_passes.empty() && !options.plan && !options.ops)
    throw CLI::ValidationError("--disable-pass", "needs --plan or --ops");
  const AIModelAsset asset = AIModelAsset::open(options.asset);
  const auto module = read_program(asset);
  std::string broken_rule;
  try {
    ir::verify(*module);
  } catch (const Error& error) {
    broken_rule = error.what();
  }
  if (options.json || (!options.text && !options.plan && !options.ops)) {
    AIModelAssetSummary summary = summarize(*module);
    summary.program_bytes = asset.program_bytes().size();
    if (options.json) {
      Json json = summary_json(asset, summary);
      if (options.text) json["text"] = program_text(*module, options);
      if (options.plan) json["plan"] = Json::parse(plan_text(options, *module, common));
      if (options.ops && broken_rule.empty()) json["ops"] = ops_json(ops_of(*module, options));
      print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    } else {
      print(summary_text(asset, summary));
    }
  } else {
    if (options.text) print(program_text(*module, options));
    if (options.ops && broken_rule.empty()) print(ops_text(ops_of(*module, options)));
    if (options.plan && broken_rule.empty()) print(plan_text(options, *module, common));
  }
  if (broken_rule.empty()) return kDone;
  print_error(fmt::format("the program breaks a rule of the dialect and will not run: {}", broken_rule));
  return kFailed;
}

}  // namespace

Command add_inspect(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Shows what an asset holds: functions, operations, bytes, origin");
  command->add_option("asset", options->asset, "The .aimodel folder")->required()->type_name("ASSET");
  command->add_flag("--text", options->text, "Print the program as text");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag("--ops", options->ops,
                    "Print how each operation of each function runs: fused, by a kernel, by its body");
  command->add_flag("--disk", options->disk, "With --text: as the file spells it, decompositions included");
  command->add_flag("--locations", options->locations, "With --text: file and line of each operation");
  command
      ->add_option("--elements", options->elements,
                   "With --text: elide constants of more elements; -1 prints all, the blobs too")
      ->check(CLI::Range(std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  CLI::Option* plan = command->add_option("--plan", options->plan,
                                          "Print the steps of a function for these extents of its dynamic dimensions: "
                                          "q=1,s=128 in order, or by name (input_ids.1=1); \"\" when all are static");
  plan->type_name("EXTENTS")->check([](const std::string& text) {
    parse_extents(text);
    return std::string();
  });
  command->add_option("--function", options->function, "With --plan: the function")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--disable-pass", options->disabled_passes,
                   "With --plan or --ops: compile without this pass; may be given again")
      ->type_name("NAME")
      ->take_all();
  return {command, [options, &common] { return inspect(*options, common); }};
}

}  // namespace coreai::tools
