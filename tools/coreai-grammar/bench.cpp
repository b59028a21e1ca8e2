// coreai-grammar bench: time of masks and commits along texts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "coreai-grammar/commands.h"
#include "coreai-grammar/source.h"
#include "coreai/base/error.h"
#include "coreai/grammar/token_bitmask.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Options {
  GrammarOptions grammar;
  std::vector<std::string> files;
  std::int64_t rounds = 3;
  bool json = false;
};

double microseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

// Microseconds per token.
struct Times {
  std::vector<double> mask, commit;
};

struct Summary {
  double mean = 0, p50 = 0, p99 = 0, max = 0;
  explicit Summary(std::vector<double> times) {
    if (times.empty()) return;
    std::ranges::sort(times);
    const auto last = static_cast<double>(times.size() - 1);
    mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    p50 = times[static_cast<std::size_t>(last * 0.5)];
    p99 = times[static_cast<std::size_t>(last * 0.99)];
    max = times.back();
  }
};

struct Instance {
  std::string name;
  std::vector<std::int32_t> tokens;
};

std::vector<Instance> read_instances(const Options& options, const Vocabulary& vocabulary,
                                     const grammar::CompiledGrammar& grammar) {
  std::vector<Instance> out;
  for (const std::string& file : options.files) {
    const std::string text = read_instance(grammar, file);
    Instance one{file, {}};
    if (vocabulary.tokenizer)
      one.tokens = vocabulary.tokenizer->encode(text, false);
    else
      for (const char c : text) one.tokens.push_back(static_cast<unsigned char>(c));
    out.push_back(std::move(one));
  }
  return out;
}

void walk(grammar::GrammarMatcher& matcher, const Instance& instance, std::span<std::uint32_t> mask, Times& times) {
  std::size_t at = 0;
  for (const std::int32_t token : instance.tokens) {
    const auto begin = Clock::now();
    matcher.fill_next_token_bitmask(mask);
    times.mask.push_back(microseconds(begin));
    const auto commit = Clock::now();
    const bool accepted = matcher.accept_token(token);
    times.commit.push_back(microseconds(commit));
    if (!accepted)
      throw InvalidArgumentError(
          fmt::format("its token {} (the {}th: {}) is rejected", token, at + 1,
                      in_quotes(matcher.grammar().tokenizer().token_bytes(token))),
          instance.name, "measure with texts that the grammar accepts; `coreai-grammar check` says what is wrong");
    ++at;
  }
  const auto begin = Clock::now();
  matcher.fill_next_token_bitmask(mask);
  times.mask.push_back(microseconds(begin));
}

Json summary_json(const Summary& one) {
  return {{"mean_us", one.mean}, {"p50_us", one.p50}, {"p99_us", one.p99}, {"max_us", one.max}};
}

int bench(Options& options) {
  take_texts(options.grammar, options.files);
  if (options.files.empty()) throw CLI::ValidationError("bench", "name files with texts to measure along");
  const GrammarText source = read_grammar(options.grammar);
  const Vocabulary vocabulary = open_vocabulary(options.grammar);
  grammar::GrammarCompiler compiler(vocabulary.info);
  std::vector<std::uint32_t> mask(grammar::bitmask_words(vocabulary.info.vocab_size()));
  const auto begin = Clock::now();
  const grammar::CompiledGrammar compiled = compile(compiler, source, options.grammar);
  grammar::GrammarMatcher matcher(compiled);
  matcher.fill_next_token_bitmask(mask);
  const double first_mask_us = microseconds(begin);
  const std::vector<Instance> instances = read_instances(options, vocabulary, compiled);
  Times first, later;
  for (std::int64_t round = 0; round < options.rounds; ++round)
    for (const Instance& instance : instances) {
      matcher.reset();
      walk(matcher, instance, mask, round == 0 ? first : later);
    }
  std::vector<std::pair<std::string, Summary>> rows = {{"mask, first round", Summary(first.mask)},
                                                       {"commit, first round", Summary(first.commit)}};
  if (options.rounds > 1) {
    rows.emplace_back("mask, later rounds", Summary(later.mask));
    rows.emplace_back("commit, later rounds", Summary(later.commit));
  }
  if (options.json) {
    Json json = {{"tokens", first.commit.size()},
                 {"rounds", options.rounds},
                 {"first_mask_ms", first_mask_us / 1000},
                 {"memory_bytes", compiled.memory_bytes()},
                 {"mask_memory_bytes", compiler.mask_memory_bytes()}};
    const char* names[] = {"mask_first", "commit_first", "mask_later", "commit_later"};
    for (std::size_t i = 0; i < rows.size(); ++i) json[names[i]] = summary_json(rows[i].second);
    print_json(json);
    return kDone;
  }
  Table table({{"us per token", Table::Align::kLeft},
               {"mean", Table::Align::kRight},
               {"p50", Table::Align::kRight},
               {"p99", Table::Align::kRight},
               {"max", Table::Align::kRight}});
  for (const auto& [name, one] : rows)
    table.add_row({name, fmt::format("{:.2f}", one.mean), fmt::format("{:.2f}", one.p50),
                   fmt::format("{:.2f}", one.p99), fmt::format("{:.2f}", one.max)});
  print(fmt::format("{} tokens a round; first mask after {:.2f} ms; grammar {}, masks {}\n",
                    format_count(first.commit.size()), first_mask_us / 1000, format_bytes(compiled.memory_bytes()),
                    format_bytes(compiler.mask_memory_bytes())) +
        table.to_string());
  return kDone;
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measures masks and commits along texts; the first round finds the masks, the later ones reuse them");
  command->add_option("grammar", options->grammar.file, "The grammar")->required()->type_name("GRAMMAR");
  command->add_option("instance", options->files, "Files with a text that the grammar accepts")->type_name("INSTANCE");
  command->add_option("--rounds", options->rounds, "How often the texts are walked")
      ->check(at_least(1))
      ->type_name("N")
      ->capture_default_str();
  add_grammar_options(*command, options->grammar);
  command->add_flag("--json", options->json, "Print one JSON document");
  return {command, [options] { return bench(*options); }};
}

}  // namespace coreai::tools
