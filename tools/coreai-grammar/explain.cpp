// coreai-grammar explain: what becomes of each keyword of a JSON Schema.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "coreai-grammar/commands.h"
#include "coreai-grammar/source.h"
#include "coreai/grammar/schema_explanation.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;
using grammar::ExplainedKeyword;
using grammar::KeywordFate;

struct Options {
  GrammarOptions grammar;
  bool json = false;
};

constexpr KeywordFate kFates[] = {KeywordFate::kEnforced, KeywordFate::kAnnotation, KeywordFate::kUnused,
                                  KeywordFate::kLeftOut, KeywordFate::kRefused};

int explain(Options& options) {
  options.grammar.form = "schema";
  const GrammarText source = read_grammar(options.grammar);
  const auto keywords = grammar::explain_json_schema(source.text, schema_options(options.grammar));
  const auto count = [&](KeywordFate fate) { return std::ranges::count(keywords, fate, &ExplainedKeyword::fate); };
  const int status = count(KeywordFate::kRefused) == 0 ? kDone : kFailed;
  if (options.json) {
    Json list = Json::array(), counts = Json::object();
    for (const ExplainedKeyword& one : keywords)
      list.push_back({{"pointer", one.pointer}, {"fate", keyword_fate_name(one.fate)}, {"reason", one.reason}});
    for (const KeywordFate fate : kFates) counts[std::string(keyword_fate_name(fate))] = count(fate);
    print_json({{"ok", status == kDone}, {"counts", std::move(counts)}, {"keywords", std::move(list)}});
    return status;
  }
  Table table({{"keyword", Table::Align::kLeft}, {"is", Table::Align::kLeft}, {"why", Table::Align::kLeft}});
  for (const ExplainedKeyword& one : keywords)
    table.add_row({one.pointer, std::string(keyword_fate_name(one.fate)), one.reason});
  std::string summary;
  for (const KeywordFate fate : kFates)
    if (count(fate) != 0)
      summary += fmt::format("{}{} {}", summary.empty() ? "" : ", ", count(fate), keyword_fate_name(fate));
  print(table.to_string() + (summary.empty() ? "no keywords" : summary) + "\n");
  return status;
}

}  // namespace

Command add_explain(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain",
                                         "Says what becomes of each keyword of a JSON Schema: exit 0, 1 when one is "
                                         "refused or the schema is malformed");
  command->add_option("schema", options->grammar.file, "The schema; - is standard input")
      ->required()
      ->type_name("SCHEMA");
  add_grammar_options(*command, options->grammar);
  for (const char* other : {"--as", "--tokenizer", "--start", "--whitespace", "--in-order"})
    command->remove_option(command->get_option(other));
  command->add_flag("--json", options->json, "Print one JSON document");
  return {command, [options] { return explain(*options); }};
}

}  // namespace coreai::tools
