// coreai-build cache: the packed weights that earlier loads left on disk.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "coreai-build/commands.h"
#include "coreai/base/error.h"
#include "runtime/specialization_cache.h"

namespace coreai::tools {
namespace {

SpecializationCache open_cache() {
  std::filesystem::path directory = SpecializationCache::default_directory();
  if (directory.empty()) {
    throw NotFoundError("there is no cache folder: neither COREAI_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set", {},
                        "Set COREAI_CACHE_DIR");
  }
  return SpecializationCache(std::move(directory));
}

// Seconds since 1970 of a file's time.
std::time_t unix_time(std::filesystem::file_time_type time) {
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::seconds>(system));
}

int list(bool json) {
  const SpecializationCache cache = open_cache();
  const auto entries = cache.list();
  std::uint64_t total = 0;
  Table table(
      {{"key", Table::Align::kLeft}, {"bytes", Table::Align::kRight}, {"last used (UTC)", Table::Align::kLeft}});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SpecializationCache::Entry& entry : entries) {
    const std::string used = fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(unix_time(entry.used)));
    table.add_row({entry.key, format_bytes(entry.bytes), used});
    rows.push_back({{"key", entry.key}, {"bytes", entry.bytes}, {"last_used", used}});
    total += entry.bytes;
  }
  if (json) {
    const nlohmann::ordered_json out = {{"directory", cache.directory().string()}, {"bytes", total}, {"entries", rows}};
    print(out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    return kDone;
  }
  print(table.to_string());
  print(fmt::format("{} {} in {}, {}\n", entries.size(), entries.size() == 1 ? "entry" : "entries",
                    printable(cache.directory().string()), format_bytes(total)));
  return kDone;
}

int clear() {
  const SpecializationCache cache = open_cache();
  const std::size_t count = cache.list().size();
  const std::uint64_t freed = cache.clear();
  print(fmt::format("removed {} {} from {}, {}\n", count, count == 1 ? "entry" : "entries",
                    printable(cache.directory().string()), format_bytes(freed)));
  return kDone;
}

}  // namespace

Command add_cache(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "cache",
      "Lists or clears the packed weights that earlier loads kept (COREAI_CACHE_DIR, else the XDG cache folder)");
  CLI::App* list_command = command->add_subcommand("list", "Lists the entries, the one used last first");
  list_command->add_flag("--json", *json, "Print one JSON object");
  const CLI::App* clear_command = command->add_subcommand("clear", "Removes every entry");
  command->require_subcommand(1);
  return {command, [json, clear_command] { return clear_command->parsed() ? clear() : list(*json); }};
}

}  // namespace coreai::tools
