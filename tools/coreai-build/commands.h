// The subcommands of coreai-build. Each adds its options to the app and returns what runs it; options live as long as
// the returned function.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/tool.h"

namespace coreai::tools {

// The whole program.
int coreai_build(int argc, char** argv);

Command add_inspect(CLI::App& app, const CommonOptions& common);
Command add_rewrite(CLI::App& app);
Command add_dialect(CLI::App& app);
Command add_cache(CLI::App& app);

// Tables of the dialect as Markdown, by name, in the order of the document.
struct DialectTable {
  std::string name;
  std::string markdown;
};
std::vector<DialectTable> dialect_tables();
// `document` with the text between each table's markers replaced by the table. Throws MalformedError when a marker is
// missing or stands alone; `where` names the document.
std::string with_dialect_tables(const std::string& document, const std::string& where);

}  // namespace coreai::tools
