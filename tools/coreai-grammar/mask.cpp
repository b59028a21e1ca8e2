// coreai-grammar mask: what a grammar allows after a text.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "coreai-grammar/commands.h"
#include "coreai-grammar/source.h"
#include "coreai/base/error.h"
#include "coreai/grammar/token_bitmask.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  GrammarOptions grammar;
  std::string after;
  std::int64_t limit = 20;
  bool json = false;
};

struct Tokens {
  std::size_t count = 0;
  std::vector<std::int32_t> first;  // up to the limit, by id
};

Tokens allowed_tokens(const grammar::GrammarMatcher& matcher, std::int64_t limit) {
  Tokens out;
  const grammar::TokenMask mask = matcher.next_token_mask();
  const std::size_t size = matcher.grammar().tokenizer().vocab_size();
  for (std::size_t id = 0; id < size; ++id) {
    if ((mask[id / 32] >> (id % 32) & 1u) == 0) continue;
    if (out.count++ < static_cast<std::size_t>(limit)) out.first.push_back(static_cast<std::int32_t>(id));
  }
  return out;
}

void print_tokens(const grammar::GrammarMatcher& matcher, const Options& options) {
  const Tokens tokens = allowed_tokens(matcher, options.limit);
  const grammar::TokenizerInfo& info = matcher.grammar().tokenizer();
  const std::string forced = matcher.find_jump_forward_string();
  if (options.json) {
    Json list = Json::array();
    for (const std::int32_t id : tokens.first)
      list.push_back({{"id", id}, {"text", info.token_bytes(id)}, {"end", info.is_end(id)}});
    print_json({{"may_end", matcher.can_terminate()},
                {"forced", forced},
                {"count", tokens.count},
                {"tokens", std::move(list)}});
    return;
  }
  std::string out =
      fmt::format("{} of {} tokens may come\n", format_count(tokens.count), format_count(info.vocab_size()));
  if (!forced.empty()) out += fmt::format("must come: {}\n", in_quotes(forced));
  out += fmt::format("may end: {}\n", matcher.can_terminate() ? "yes" : "no");
  Table table({{"id", Table::Align::kRight}, {"token", Table::Align::kLeft}});
  for (const std::int32_t id : tokens.first)
    table.add_row(
        {fmt::format("{}", id), in_quotes(info.token_bytes(id)) + (info.is_end(id) ? "  ends the text" : "")});
  out += table.to_string(2);
  if (tokens.count > tokens.first.size())
    out += fmt::format("  and {} more (--limit)\n", format_count(tokens.count - tokens.first.size()));
  print(out);
}

void print_bytes(const grammar::GrammarMatcher& matcher, const Options& options) {
  const NextBytes next = next_bytes(matcher);
  if (options.json) {
    print_json({{"may_end", next.end}, {"forced", next.forced}, {"bytes", next.ranges}});
    return;
  }
  std::string out = "may come:";
  for (const std::string& range : next.ranges) out += "  " + range;
  if (next.ranges.empty()) out += " nothing";
  if (!next.forced.empty()) out += fmt::format("\nmust come: {}", in_quotes(next.forced));
  print(out + fmt::format("\nmay end: {}\n", next.end ? "yes" : "no"));
}

int mask(const Options& options) {
  const GrammarText source = read_grammar(options.grammar);
  const Vocabulary vocabulary = open_vocabulary(options.grammar);
  grammar::GrammarCompiler compiler(vocabulary.info);
  grammar::GrammarMatcher matcher(compile(compiler, source, options.grammar));
  const std::size_t accepted = accept_prefix(matcher, options.after);
  if (accepted < options.after.size())
    throw InvalidArgumentError(
        fmt::format("the grammar allows only the first {} of its {} bytes: {}", accepted, options.after.size(),
                    in_quotes(std::string_view(options.after).substr(0, accepted))),
        "--after", "`coreai-grammar check` says what could have come");
  if (vocabulary.tokenizer)
    print_tokens(matcher, options);
  else
    print_bytes(matcher, options);
  return kDone;
}

}  // namespace

Command add_mask(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("mask", "Shows what may come after a text: exit 0, 1 when the grammar or the text is refused");
  command->add_option("grammar", options->grammar.file, "The grammar; - is standard input; none with --as json")
      ->type_name("GRAMMAR");
  command->add_option("--after", options->after, "The text so far; left out: the beginning")->type_name("TEXT");
  command->add_option("--limit", options->limit, "Tokens that are shown, by id")
      ->check(at_least(0))
      ->type_name("N")
      ->capture_default_str();
  add_grammar_options(*command, options->grammar);
  command->add_flag("--json", options->json, "Print one JSON document");
  return {command, [options] { return mask(*options); }};
}

}  // namespace coreai::tools
