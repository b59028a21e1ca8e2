// Times the grammar engine over the instances of JSON Schemas, one token after the other, and checks every verdict.
// Prints one JSON object; exits 1 where a mask and the matcher disagree about a token of an instance.
//
//   grammar_bench VOCABULARY CASES [--shared] [--no-copy] [--whitespace N|any|none] [--as-written] [--only NAME]
//                 [--from N] [--count N] [--rows FILE] [--slowest N] [--limit SECONDS] [--verbose]
//
// Both files are as benchmarks/grammar/cases.py writes them. `ttfm` is the time from the schema's text to the first
// mask, the compiler included unless --shared keeps one for all schemas; that first mask counts there alone. Every
// later token counts as its mask and its commit; nothing is subtracted. --rows writes a line for each schema, --slowest
// the steps that took longest to stderr. A schema that takes longer than --limit (120 s) ends the program with
// status 3.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/base/error.h"
#include "coreai/grammar/grammar_matcher.h"
#include "coreai/grammar/token_bitmask.h"

namespace coreai::grammar {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

std::uint64_t nanoseconds(Clock::time_point from, Clock::time_point to) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

struct Options {
  std::string vocabulary, cases, rows, only;
  bool shared = false, copy = true, verbose = false;
  std::size_t from = 0, count = SIZE_MAX, slowest = 0;
  unsigned limit = 120;
  JsonSchemaOptions schema{};
};

struct Instance {
  bool valid = false;
  std::vector<std::int32_t> tokens;
};

struct Case {
  std::string name, schema;
  std::vector<Instance> instances;
};

struct Step {
  std::uint64_t mask_ns = 0, commit_ns = 0;
  std::uint64_t sum() const { return mask_ns + commit_ns; }
};

// What became of one schema.
struct Row {
  std::string status = "ok", error;  // ok, refused, stopped (the work budget ran out on an instance)
  double ttfm_ms = 0;
  std::size_t valid_rejected = 0, invalid_accepted = 0, mismatches = 0, memory_bytes = 0;
  std::vector<Step> steps;
  bool passes() const { return status == "ok" && valid_rejected == 0 && invalid_accepted == 0; }
};

struct SlowStep {
  Step time;
  std::string name;
  std::size_t instance, step;
  std::string text;
};

TokenizerInfo read_vocabulary(const std::string& path) {
  std::ifstream file(path);
  const auto json = Json::parse(file);
  if (json.at("kind") != "byte_level") throw InvalidArgumentError("a vocabulary that is not byte_level", path);
  return TokenizerInfo(json.at("tokens").get<std::vector<std::string>>(),
                       {.kind = VocabularyKind::kByteLevel,
                        .end_ids = json.at("end_ids").get<std::vector<std::int32_t>>(),
                        .special_ids = json.at("special_ids").get<std::vector<std::int32_t>>()});
}

std::vector<Case> read_cases(const Options& options) {
  std::ifstream file(options.cases);
  if (!file) throw IoError("cannot be read", options.cases, errno);
  std::vector<Case> cases;
  std::size_t index = 0;
  for (std::string line; std::getline(file, line); ++index) {
    if (index < options.from || index - options.from >= options.count) continue;
    const auto json = Json::parse(line);
    Case one{json.at("name"), json.at("schema"), {}};
    if (!options.only.empty() && one.name.find(options.only) == std::string::npos) continue;
    for (const auto& instance : json.at("instances"))
      one.instances.push_back({instance.at("valid"), instance.at("tokens").get<std::vector<std::int32_t>>()});
    cases.push_back(std::move(one));
  }
  return cases;
}

class Bench {
 public:
  Bench(const Options& options, TokenizerInfo tokenizer)
      : options_(options), tokenizer_(std::move(tokenizer)), buffer_(bitmask_words(tokenizer_.vocab_size())) {
    if (options.shared) shared_.emplace(tokenizer_);
  }

  Row run(const Case& one) {
    Row row;
    std::optional<GrammarCompiler> own;
    std::optional<CompiledGrammar> grammar;
    try {
      const auto start = Clock::now();
      GrammarCompiler& compiler = options_.shared ? *shared_ : own.emplace(tokenizer_);
      grammar = compiler.compile_json_schema(one.schema, options_.schema);
      GrammarMatcher matcher(*grammar);
      mask_of(matcher);
      row.ttfm_ms = static_cast<double>(nanoseconds(start, Clock::now())) * 1e-6;
    } catch (const Error& error) {
      refuse(one, error, row);
      return row;
    }
    try {
      for (std::size_t i = 0; i < one.instances.size(); ++i) walk(one, i, *grammar, row);
    } catch (const UnsupportedError& error) {
      row.status = "stopped";
      row.error = error.what();
    }
    row.memory_bytes = grammar->memory_bytes();
    return row;
  }

  std::vector<SlowStep> slowest;

 private:
  // A schema without any value that belongs to it is right to refuse where no instance is valid.
  static void refuse(const Case& one, const Error& error, Row& row) {
    const bool empty = error.code() == ErrorCode::kInvalidArgument && error.problem().starts_with("no value belongs");
    row.error = error.what();
    row.status = empty ? "empty" : "refused";
    if (!empty) return;
    for (const Instance& instance : one.instances) row.valid_rejected += instance.valid;
    if (row.valid_rejected == 0) row.status = "ok";
  }

  void mask_of(const GrammarMatcher& matcher) {
    if (options_.copy)
      matcher.fill_next_token_bitmask(buffer_);
    else
      mask_ = matcher.next_token_mask();
  }

  void walk(const Case& one, std::size_t number, const CompiledGrammar& grammar, Row& row) {
    const Instance& instance = one.instances[number];
    GrammarMatcher matcher(grammar);
    bool accepted = true;
    for (std::size_t i = 0; i < instance.tokens.size() && accepted; ++i) {
      const std::int32_t token = instance.tokens[i];
      const auto start = Clock::now();
      mask_of(matcher);
      const auto masked = Clock::now();
      accepted = matcher.accept_token(token);
      const Step step{nanoseconds(start, masked), nanoseconds(masked, Clock::now())};
      const std::uint32_t* words = options_.copy ? buffer_.data() : mask_.get();
      const bool allowed = (words[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1u) != 0;
      row.mismatches += allowed != accepted;
      if (number == 0 && i == 0) continue;  // its mask was the first mask
      row.steps.push_back(step);
      note(one, number, i, step);
    }
    accepted = accepted && matcher.can_terminate();
    row.valid_rejected += instance.valid && !accepted;
    row.invalid_accepted += !instance.valid && accepted;
  }

  void note(const Case& one, std::size_t number, std::size_t i, const Step& step) {
    if (options_.slowest == 0 || (slowest.size() == options_.slowest && slowest.back().time.sum() >= step.sum()))
      return;
    const auto place = std::upper_bound(slowest.begin(), slowest.end(), step.sum(),
                                        [](std::uint64_t sum, const SlowStep& s) { return sum > s.time.sum(); });
    std::string text;
    for (std::size_t at = i > 12 ? i - 12 : 0; at <= i; ++at) {
      if (at == i) text += "\u2038";  // the mask is that before this token
      text += tokenizer_.token_bytes(one.instances[number].tokens[at]);
    }
    slowest.insert(place, {step, one.name, number, i, std::move(text)});
    if (slowest.size() > options_.slowest) slowest.pop_back();
  }

  const Options& options_;
  TokenizerInfo tokenizer_;
  std::optional<GrammarCompiler> shared_;
  std::vector<std::uint32_t> buffer_;
  TokenMask mask_;
};

// Nearest rank: the value that a share `p` of all does not exceed.
template <typename T>
double percentile(const std::vector<T>& sorted, double p) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(sorted.size())));
  return static_cast<double>(sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1]);
}

template <typename T>
double mean(const std::vector<T>& values) {
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double rounded(double value) {
  return std::round(value * 1000) / 1000;
}

struct Totals {
  std::vector<std::uint64_t> steps, masks;  // ns
  std::vector<double> ttfm;                 // ms
  std::vector<std::size_t> memory;
  std::size_t schemas = 0, passing = 0, validation_errors = 0, invalidation_errors = 0, refused = 0, stopped = 0,
              mismatches = 0;

  void add(const Row& row) {
    ++schemas;
    passing += row.passes();
    validation_errors += row.valid_rejected > 0;
    invalidation_errors += row.invalid_accepted > 0;
    refused += row.status == "refused";
    stopped += row.status == "stopped";
    mismatches += row.mismatches;
    if (row.ttfm_ms > 0) {
      ttfm.push_back(row.ttfm_ms);
      memory.push_back(row.memory_bytes);
    }
    for (const Step& step : row.steps) {
      steps.push_back(step.sum());
      masks.push_back(step.mask_ns);
    }
  }

  Json summary() {
    std::ranges::sort(steps);
    std::ranges::sort(masks);
    std::ranges::sort(ttfm);
    std::ranges::sort(memory);
    Json json;
    json["mask_avg_us"] = rounded(mean(steps) * 1e-3);
    for (const auto& [name, p] :
         {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}})
      json[fmt::format("mask_{}_us", name)] = rounded(percentile(steps, p) * 1e-3);
    for (const auto& [name, p] : {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}})
      json[fmt::format("ttfm_{}_ms", name)] = rounded(percentile(ttfm, p));
    json["ttfm_avg_ms"] = rounded(mean(ttfm));
    json["schemas"] = schemas;
    json["passing"] = passing;
    json["validation_errors"] = validation_errors;
    json["invalidation_errors"] = invalidation_errors;
    json["refused"] = refused;
    json["stopped"] = stopped;
    json["mismatches"] = mismatches;
    json["tokens"] = steps.size();
    json["mask_alone_avg_us"] = rounded(mean(masks) * 1e-3);
    json["mask_alone_p50_us"] = rounded(percentile(masks, 0.5) * 1e-3);
    json["mask_alone_p99_us"] = rounded(percentile(masks, 0.99) * 1e-3);
    json["grammar_p50_kb"] = rounded(percentile(memory, 0.5) / 1024);
    json["grammar_p99_kb"] = rounded(percentile(memory, 0.99) / 1024);
    json["grammar_max_kb"] = rounded(percentile(memory, 1.0) / 1024);
    return json;
  }
};

Json row_json(const Case& one, const Row& row) {
  Json json;
  json["name"] = one.name;
  json["status"] = row.status;
  json["ttfm_ms"] = row.ttfm_ms;
  json["valid_rejected"] = row.valid_rejected;
  json["invalid_accepted"] = row.invalid_accepted;
  json["mismatches"] = row.mismatches;
  json["memory_bytes"] = row.memory_bytes;
  json["error"] = row.error;
  auto& steps = json["steps_ns"] = Json::array();
  for (const Step& step : row.steps) steps.push_back(step.sum());
  return json;
}

char current_case[256];  // for the handler of SIGALRM

void out_of_time(int) {
  const char* parts[] = {"error: no end within the limit: ", current_case, "\n"};
  for (const char* part : parts)
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  _exit(3);
}

std::optional<std::size_t> whole(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<JsonWhitespace> whitespace(std::string_view text) {
  if (text == "any") return JsonWhitespace::any();
  if (text == "none") return JsonWhitespace::none();
  const auto value = whole(text);
  if (!value || *value > UINT32_MAX) return std::nullopt;
  return JsonWhitespace{static_cast<std::uint32_t>(*value)};
}

// The value of an option that takes one; false: no such option, or a value that it does not take.
bool set_option(Options& options, std::string_view name, const char* text) {
  if (name == "--rows" || name == "--only") {
    (name == "--rows" ? options.rows : options.only) = text;
    return true;
  }
  if (name == "--whitespace") {
    const auto value = whitespace(text);
    if (value) options.schema.whitespace = *value;
    return value.has_value();
  }
  const auto number = whole(text);
  if (!number) return false;
  if (name == "--from")
    options.from = *number;
  else if (name == "--count")
    options.count = *number;
  else if (name == "--slowest")
    options.slowest = *number;
  else if (name == "--limit" && *number > 0 && *number < 1'000'000)
    options.limit = static_cast<unsigned>(*number);
  else
    return false;
  return true;
}

std::optional<Options> read_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (!name.starts_with("--"))
      files.emplace_back(name);
    else if (name == "--shared")
      options.shared = true;
    else if (name == "--no-copy")
      options.copy = false;
    else if (name == "--as-written")
      options.schema.property_order = PropertyOrder::kAsWritten;
    else if (name == "--verbose")
      options.verbose = true;
    else if (i + 1 == argc || !set_option(options, name, argv[++i]))
      return std::nullopt;
  }
  if (files.size() != 2) return std::nullopt;
  options.vocabulary = files[0];
  options.cases = files[1];
  return options;
}

int measure(const Options& options) {
  const auto cases = read_cases(options);
  const auto start = Clock::now();
  Bench bench(options, read_vocabulary(options.vocabulary));
  const double setup_ms = static_cast<double>(nanoseconds(start, Clock::now())) * 1e-6;
  std::ofstream rows;
  if (!options.rows.empty()) rows.open(options.rows);
  Totals totals;
  std::signal(SIGALRM, out_of_time);
  for (const Case& one : cases) {
    one.name.copy(current_case, sizeof current_case - 1);
    current_case[std::min(one.name.size(), sizeof current_case - 1)] = 0;
    alarm(options.limit);
    const Row row = bench.run(one);
    alarm(0);
    totals.add(row);
    if (rows.is_open()) rows << row_json(one, row).dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    if (!options.verbose) continue;
    std::uint64_t longest = 0;
    for (const Step& step : row.steps) longest = std::max(longest, step.sum());
    fmt::print(stderr, "{} {}: first mask {:.3f} ms, {} tokens, longest {:.1f} us, {} rejected, {} accepted{}{}\n",
               row.status, one.name, row.ttfm_ms, row.steps.size(), static_cast<double>(longest) * 1e-3,
               row.valid_rejected, row.invalid_accepted, row.error.empty() ? "" : ": ", row.error);
  }
  for (const SlowStep& slow : bench.slowest)
    fmt::print(stderr, "{:10.1f} us (mask {:.1f}) {} instance {} step {}: {}\n",
               static_cast<double>(slow.time.sum()) * 1e-3, static_cast<double>(slow.time.mask_ns) * 1e-3, slow.name,
               slow.instance, slow.step, Json(slow.text).dump(-1, ' ', false, Json::error_handler_t::replace));
  Json summary = totals.summary();
  summary["setup_ms"] = rounded(setup_ms);
  fmt::print("{}\n", summary.dump());
  return totals.mismatches == 0 ? 0 : 1;
}

}  // namespace
}  // namespace coreai::grammar

int main(int argc, char** argv) {
  using namespace coreai::grammar;
  const auto options = read_options(argc, argv);
  if (!options) {
    std::fputs(
        "usage: grammar_bench VOCABULARY CASES [--shared] [--no-copy] [--whitespace N|any|none] [--as-written]\n"
        "                     [--only NAME] [--from N] [--count N] [--rows FILE] [--slowest N] [--limit SECONDS] "
        "[--verbose]\n",
        stderr);
    return 2;
  }
  try {
    return measure(*options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
