// coreai-grammar compile: is a grammar accepted, and what does it cost.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "coreai-grammar/commands.h"
#include "coreai-grammar/source.h"
#include "coreai/base/error.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Options {
  GrammarOptions grammar;
  bool json = false;
};

double milliseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

Json error_json(const Error& error) {
  Json json = {{"kind", error_code_name(error.code())},
               {"problem", error.problem()},
               {"where", error.where()},
               {"next_step", error.next_step()}};
  if (const auto* malformed = dynamic_cast<const MalformedError*>(&error)) json["offset"] = malformed->offset();
  return json;
}

int compile_file(const Options& options) {
  const GrammarText source = read_grammar(options.grammar);
  const Vocabulary vocabulary = open_vocabulary(options.grammar);
  grammar::GrammarCompiler compiler(vocabulary.info);
  try {
    const auto begin = Clock::now();
    const grammar::CompiledGrammar compiled = compile(compiler, source, options.grammar);
    const double compile_ms = milliseconds(begin);
    const grammar::TokenMask mask = grammar::GrammarMatcher(compiled).next_token_mask();
    const double first_mask_ms = milliseconds(begin);
    if (options.json) {
      Json dropped = Json::array();
      for (const auto& one : compiled.dropped()) dropped.push_back({{"pointer", one.pointer}, {"reason", one.reason}});
      print_json({{"ok", true},
                  {"as", source.form},
                  {"vocab_size", vocabulary.info.vocab_size()},
                  {"memory_bytes", compiled.memory_bytes()},
                  {"mask_memory_bytes", compiler.mask_memory_bytes()},
                  {"compile_ms", compile_ms},
                  {"first_mask_ms", first_mask_ms},
                  {"dropped", std::move(dropped)}});
      return kDone;
    }
    print(fmt::format("ok: {}, {}, compiled after {:.2f} ms, first mask after {:.2f} ms\n", source.form,
                      format_bytes(compiled.memory_bytes()), compile_ms, first_mask_ms));
    Table dropped({{"not enforced", Table::Align::kLeft}, {"reason", Table::Align::kLeft}});
    for (const auto& one : compiled.dropped()) dropped.add_row({one.pointer, one.reason});
    print(dropped.to_string());
    return kDone;
  } catch (const Error& error) {
    if (options.json) print_json({{"ok", false}, {"as", source.form}, {"error", error_json(error)}});
    throw;
  }
}

}  // namespace

Command add_compile(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "compile", "Compiles a grammar: exit 0, 1 when it is malformed or asks for what cannot be enforced");
  command->add_option("file", options->grammar.file, "The grammar; - is standard input; none with --as json")
      ->type_name("FILE");
  add_grammar_options(*command, options->grammar);
  command->add_flag("--json", options->json, "Print one JSON document");
  return {command, [options] { return compile_file(*options); }};
}

}  // namespace coreai::tools
