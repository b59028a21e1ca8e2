// coreai-grammar check: which texts does a grammar accept, and where do the others leave it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "coreai-grammar/commands.h"
#include "coreai-grammar/source.h"
#include "coreai/base/utf8.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  GrammarOptions grammar;
  std::vector<std::string> files, texts;
  bool json = false;
};

struct Verdict {
  std::string name;
  bool accepted = false, ends_early = false;
  std::size_t offset = 0, line = 1, column = 1;  // of the first byte that does not fit; columns count characters
  std::string found, expected;
};

// The character that a byte is part of.
std::string found_at(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && at - begin < 3 && (static_cast<unsigned char>(text[begin]) & 0xc0u) == 0x80u) --begin;
  std::size_t end = begin;
  if (!next_code_point(text, end) || end <= at) return in_quotes(text.substr(at, 1));
  return in_quotes(text.substr(begin, end - begin));
}

Verdict judge(const grammar::CompiledGrammar& grammar, std::string name, std::string_view text) {
  grammar::GrammarMatcher matcher(grammar);
  Verdict out{.name = std::move(name), .found = {}, .expected = {}};
  out.offset = accept_prefix(matcher, text);
  const bool whole = out.offset == text.size();
  out.accepted = whole && matcher.can_terminate();
  if (out.accepted) return out;
  out.ends_early = whole;
  const std::string_view before = text.substr(0, out.offset);
  const std::size_t line = before.rfind('\n');
  out.line = 1 + static_cast<std::size_t>(std::ranges::count(before, '\n'));
  out.column = 1 + static_cast<std::size_t>(
                       std::ranges::count_if(before.substr(line == std::string_view::npos ? 0 : line + 1),
                                             [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
  out.found = whole ? "the end" : found_at(text, out.offset);
  out.expected = next_bytes(matcher).to_string();
  return out;
}

std::string verdict_text(const Verdict& one) {
  const std::string name = printable(one.name);
  if (one.accepted) return fmt::format("{}: ok\n", name);
  const std::string place = fmt::format("byte {} (line {}, column {})", one.offset, one.line, one.column);
  if (one.ends_early) return fmt::format("{}: ends too early, at {}\n  could come: {}\n", name, place, one.expected);
  return fmt::format("{}: rejected at {}\n  found: {}\n  could come: {}\n", name, place, one.found, one.expected);
}

Json verdict_json(const Verdict& one) {
  Json json = {{"name", one.name}, {"accepted", one.accepted}};
  if (!one.accepted)
    json.update({{"ends_early", one.ends_early},
                 {"offset", one.offset},
                 {"line", one.line},
                 {"column", one.column},
                 {"found", one.found},
                 {"expected", one.expected}});
  return json;
}

int check(Options& options) {
  take_texts(options.grammar, options.files);
  if (options.files.empty() && options.texts.empty())
    throw CLI::ValidationError("check", "there is nothing to check: name files, or give --text");
  const GrammarText source = read_grammar(options.grammar);
  const Vocabulary vocabulary = open_vocabulary({});
  grammar::GrammarCompiler compiler(vocabulary.info);
  const grammar::CompiledGrammar compiled = compile(compiler, source, options.grammar);
  for (const auto& one : compiled.dropped())
    print_warning(fmt::format("not enforced: {}: {}", one.pointer, one.reason));
  bool all = true;
  Json list = Json::array();
  const auto report = [&](const Verdict& one) {
    all = all && one.accepted;
    if (options.json)
      list.push_back(verdict_json(one));
    else
      print(verdict_text(one));
  };
  for (const std::string& file : options.files)
    report(judge(compiled, file == "-" ? "standard input" : file, read_instance(compiled, file)));
  for (std::size_t i = 0; i < options.texts.size(); ++i)
    report(judge(compiled, options.texts.size() == 1 ? "text" : fmt::format("text {}", i + 1), options.texts[i]));
  if (options.json) print_json({{"accepted", all}, {"instances", std::move(list)}});
  return all ? kDone : kFailed;
}

}  // namespace

Command add_check(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("check",
                                         "Says which texts a grammar accepts, and where it rejects the others: exit "
                                         "0, 1 when one is rejected, 2 when the grammar or a text cannot be read");
  command->add_option("grammar", options->grammar.file, "The grammar, mostly a JSON Schema; - is standard input")
      ->required()
      ->type_name("SCHEMA");
  command->add_option("instance", options->files, "Files with a text each; - is standard input")->type_name("INSTANCE");
  command->add_option("--text", options->texts, "A text to check; may be given more than once")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  add_grammar_options(*command, options->grammar);
  command->remove_option(command->get_option("--tokenizer"));  // texts are read as bytes
  command->add_flag("--json", options->json, "Print one JSON document");
  return {command, [options] { return looking([&] { return check(*options); }); }};
}

}  // namespace coreai::tools
