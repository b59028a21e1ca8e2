// coreai-build dialect: the tables of the dialect, for people and for docs/aimodel-format.md.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "coreai-build/commands.h"
#include "coreai/base/dtype.h"
#include "coreai/base/error.h"
#include "coreai/ir/op_code.h"
#include "coreai/ir/op_doc.h"

namespace coreai::tools {
namespace {

struct DialectOptions {
  bool markdown = false;
  std::string update, check;
};

std::string read_document(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in || !text) throw IoError("the document cannot be read", path, errno);
  return std::move(text).str();
}

void write_document(const std::string& path, const std::string& text) {
  const std::string staged = path + ".new";
  {
    std::ofstream out(staged, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) throw IoError("the document cannot be written", staged, errno);
  }
  std::filesystem::rename(staged, path);
}

void print_operations() {
  Table table({{"operation", {}}, {"text", {}}, {"operands", {}}, {"results", {}}, {"computes", {}}});
  for (const ir::OpCode code : ir::all_ops()) {
    const ir::OpInfo& info = ir::op_info(code);
    table.add_row({std::string(info.disk_name), std::string(info.text_name), std::string(info.operands),
                   std::string(info.results), std::string(ir::op_summary(code))});
  }
  print(table.to_string());
}

int dialect(const DialectOptions& options) {
  if (!options.update.empty() || !options.check.empty()) {
    const std::string& path = options.update.empty() ? options.check : options.update;
    const std::string document = read_document(path);
    const std::string fresh = with_dialect_tables(document, path);
    const bool stale = fresh != document;
    if (stale && options.update.empty()) {
      print_error(fmt::format("{}: its tables are not those of this program. Run scripts/update_docs", path));
      return kFailed;
    }
    if (stale) write_document(path, fresh);
    print(fmt::format("{} {}\n", printable(path), stale ? "updated" : "is up to date"));
    return kDone;
  }
  if (!options.markdown) {
    print_operations();
    return kDone;
  }
  for (const DialectTable& table : dialect_tables()) print(fmt::format("## {}\n\n{}\n", table.name, table.markdown));
  return kDone;
}

// Where the markers of a table stand: behind the opening one, and before the closing one.
std::pair<std::size_t, std::size_t> marked_range(const std::string& document, const std::string& name,
                                                 const std::string& where) {
  const std::string open = fmt::format("<!-- table: {} -->\n", name);
  const std::string close = fmt::format("<!-- end: {} -->", name);
  const std::size_t begin = document.find(open);
  const std::size_t end = begin == std::string::npos ? begin : document.find(close, begin);
  if (end == std::string::npos) {
    throw MalformedError(fmt::format("the markers of the table '{}' are missing", name), where, 0,
                         fmt::format("Add '{}' and '{}' lines", open.substr(0, open.size() - 1), close));
  }
  return {begin + open.size(), end};
}

}  // namespace

std::string with_dialect_tables(const std::string& document, const std::string& where) {
  std::string text = document;
  for (const DialectTable& table : dialect_tables()) {
    const auto [begin, end] = marked_range(text, table.name, where);
    text.replace(begin, end - begin, table.markdown);
  }
  return text;
}

Command add_dialect(CLI::App& app) {
  auto options = std::make_shared<DialectOptions>();
  CLI::App* command = app.add_subcommand("dialect", "Prints the operations of the dialect, or all of its tables");
  CLI::Option* markdown = command->add_flag("--markdown", options->markdown, "All tables as Markdown");
  CLI::Option* update = command->add_option("--update", options->update, "Put the tables into a document's markers");
  command->add_option("--check", options->check, "Fail when a document's tables are stale")
      ->excludes(markdown)
      ->excludes(update);
  update->excludes(markdown);
  return {command, [options] { return dialect(*options); }};
}

}  // namespace coreai::tools
