#include "common/tool.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "coreai/base/error.h"
#include "coreai/base/utf8.h"

namespace coreai::tools {
namespace {

// Prints what CLI11 says of the command line; CLI11's own codes are not ours.
int report_parse_result(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    app.exit(error);  // help or version, on stdout
    return kDone;
  }
  const CLI::App* deepest = &app;
  std::string command = app.get_name();
  for (auto parsed = deepest->get_subcommands(); !parsed.empty(); parsed = deepest->get_subcommands()) {
    deepest = parsed.back();
    command += " " + deepest->get_name();
  }
  const std::vector<std::string> unknown = app.remaining(true);
  const bool commands = deepest == &app && !app.get_subcommands([](const CLI::App* sub) {
                                                 return !sub->get_name().empty();  // option groups have none
                                               })
                                                .empty();
  if (unknown.empty()) {
    print_error(error.what());
  } else {
    print_error(fmt::format("there is no {} '{}'",
                            unknown.front().starts_with('-') ? "option" : (commands ? "subcommand" : "argument"),
                            unknown.front()));
  }
  fmt::print(stderr, "Run `{} --help` for the usage.\n", command);
  return kWrongUsage;
}

int flush_output(int code) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    if (code != kDone) return code;  // what went wrong has been said
    print_error(fmt::format("the answer could not be written to standard output ({})", std::strerror(errno)));
    return kFailed;
  }
  return code;
}

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

void append_padded(std::string& line, std::string_view cell, std::size_t columns, bool right) {
  const std::string padding(columns - width(cell), ' ');
  if (right) line += padding;
  line += cell;
  if (!right) line += padding;
}

}  // namespace

int thread_count(const CommonOptions& options) {
  if (options.threads > 0) return options.threads;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.set_version_flag("--version", fmt::format("{} {} (coreai.cpp)", app.get_name(), COREAI_VERSION),
                       "Print the version and exit");
  app.add_option("--threads", options.threads, "Worker threads; 0 = one per available core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.fallthrough();
}

int run_tool(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  std::signal(SIGPIPE, SIG_DFL);  // a parent may have left it ignored; `tool | head` must end quietly
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return flush_output(report_parse_result(app, error));
  }
  int code = kFailed;
  try {
    code = body();
  } catch (const CLI::ParseError& error) {
    code = report_parse_result(app, error);
  } catch (const std::bad_alloc&) {
    print_error("out of memory. Close other programs or use a smaller model");
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  return flush_output(code);
}

CLI::Validator at_least(std::int64_t minimum) {
  return {[minimum](std::string& text) -> std::string {
            std::int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error == std::errc() && end == text.data() + text.size() && value >= minimum) return {};
            return fmt::format("'{}' is no whole number of {} or more", text, minimum);
          },
          fmt::format(">= {}", minimum)};
}

void print_error(std::string_view message) {
  std::fflush(stdout);  // keep the order of the two streams in a terminal
  fmt::print(stderr, "error: {}\n", printable(message));
}

void print_warning(std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "warning: {}\n", printable(message));
}

void flush() {
  if (std::fflush(stdout) != 0) throw IoError("the answer could not be written", "standard output", errno);
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw IoError("the answer could not be written", "standard output", errno);
}

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

std::string format_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return value < 9.995 ? fmt::format("{:.2f} {}", value, kUnits[unit])
                       : fmt::format("{:.{}f} {}", value, value < 99.95 ? 1 : 0, kUnits[unit]);
}

std::string format_count(std::uint64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const auto point = next_code_point(text, at);
    if (!point) {
      out += "\xef\xbf\xbd";
      at = begin + 1;
    } else if (*point == '\n') {
      out += "\\n";
    } else if (*point < 0x20 || (*point >= 0x7f && *point < 0xa0)) {
      for (const char c : text.substr(begin, at - begin))
        out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    } else {
      out += text.substr(begin, at - begin);
    }
  }
  return out;
}

void Table::add_row(std::vector<std::string> cells) {
  COREAI_INVARIANT(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::to_string(std::size_t indent) const {
  if (rows_.empty()) return {};
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  for (const Column& column : columns_) {
    titles.push_back(printable(column.title));
    widths.push_back(width(titles.back()));
  }
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line(indent, ' ');
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) line += "  ";
      append_padded(line, cells[c], widths[c], columns_[c].align == Align::kRight);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line(titles);
  for (const auto& row : rows_) add_line(row);
  return out;
}

}  // namespace coreai::tools
