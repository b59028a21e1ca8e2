// What every program shares: exit codes, error printing, --version and --threads, tables for a terminal.
// A tool's answer goes to stdout; everything else (errors, warnings, progress) goes to stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace coreai::tools {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,        // it could not be done (bad input included), or there are findings
  kCouldNotLook = 2,  // only of what looks at files (`audit`, `verify`, `inspect` of bundles, `--check`): it could not
  kWrongUsage = 64,   // the command line is wrong; nothing was tried
};

struct CommonOptions {
  int threads = 0;  // 0 = one per available core
};

// Threads to use: `options.threads`, or the number of cores this process may run on.
int thread_count(const CommonOptions& options);

// Adds --version and --threads, and lets options stand behind a subcommand. The app's name must be the program's.
void add_common_options(CLI::App& app, CommonOptions& options);

// Parses, then calls `body`, whose result is the exit code. A wrong command line prints `error: ...` and gives
// kWrongUsage, and so does a CLI::ValidationError from `body`; any other exception from `body` prints `error:
// <message>` and gives kFailed, and so does stdout that cannot be written. A reader that closes the pipe early ends the
// program without a word.
int run_tool(CLI::App& app, int argc, char** argv, const std::function<int()>& body);

// Of a tool with subcommands: one of them and what runs it; its options live as long as the function.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};
// Runs `look`; what could not be looked at, and an answer that could not be written, is told and gives kCouldNotLook.
int looking(const std::function<int()>& look);

// For options that take a whole number: refuses what is none or is below `minimum`.
CLI::Validator at_least(std::int64_t minimum);

// `error: <message>` on stderr.
void print_error(std::string_view message);
// `warning: <message>` on stderr.
void print_warning(std::string_view message);
// Writes to stdout. Throws IoError when that fails.
void print(std::string_view text);
// One JSON document on stdout; bytes that are no UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json& json);
// What was printed leaves the program. Throws IoError when that fails.
void flush();

// "1.2 GB" with decimal units, "512 B" below 1000.
std::string format_bytes(std::uint64_t bytes);
// "12,345,678".
std::string format_count(std::uint64_t count);
// Text from files for a terminal, as one line: control characters become \n and \xNN, invalid UTF-8 becomes U+FFFD.
std::string printable(std::string_view text);

// Columns padded to their widest cell. Width counts code points.
class Table {
 public:
  enum class Align : std::uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One cell per column; cells and titles pass through printable().
  void add_row(std::vector<std::string> cells);
  // Title line, then rows, each behind `indent` spaces. Empty when there is no row.
  std::string to_string(std::size_t indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace coreai::tools
