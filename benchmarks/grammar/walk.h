// Walks the instances of JSON Schemas through a grammar engine, one token after the other: times, verdicts, report.
//
// Files are as cases.py writes them. TTFM is the time from the schema's text to the first mask, which counts there
// alone; every later token counts as its mask and its commit. Nothing is subtracted. An engine has
//   void prepare()                           work before the clock starts
//   void compile(const std::string& schema)  to the first mask; throws
//   bool is_empty(const std::exception&)     whether that error says that no value belongs to the schema
//   void restart()                           a new matcher
//   void mask(); const std::uint32_t* words(); bool accept(std::int32_t token); bool can_end()
//   std::size_t memory_bytes()               of the grammar, 0: not known
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace grammar_bench {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

inline std::uint64_t nanoseconds(Clock::time_point from, Clock::time_point to) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

struct Options {
  std::string vocabulary, cases, rows, only;
  bool verbose = false;
  std::size_t from = 0, count = SIZE_MAX, slowest = 0;
  unsigned limit = 120;  // seconds for one schema
};

struct Vocabulary {
  std::vector<std::string> tokens;  // in the writing of byte-level vocabularies
  std::vector<std::int32_t> special_ids, end_ids;
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
  std::string status = "ok", error;  // ok, refused, stopped: an error on an instance
  double ttfm_ms = 0;
  std::size_t valid_rejected = 0, invalid_accepted = 0, mismatches = 0, memory_bytes = 0;
  std::vector<Step> steps;
  bool passes() const { return status == "ok" && valid_rejected == 0 && invalid_accepted == 0; }
};

inline Vocabulary read_vocabulary(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  const auto json = Json::parse(file);
  if (json.at("kind") != "byte_level") throw std::runtime_error(path + " is no vocabulary of the kind byte_level");
  return {json.at("tokens"), json.at("special_ids"), json.at("end_ids")};
}

inline std::vector<Case> read_cases(const Options& options) {
  std::ifstream file(options.cases);
  if (!file) throw std::runtime_error(options.cases + " cannot be read");
  std::vector<Case> cases;
  std::size_t index = 0;
  for (std::string line; std::getline(file, line); ++index) {
    if (index < options.from || index - options.from >= options.count) continue;
    const auto json = Json::parse(line);
    Case one{json.at("name"), json.at("schema"), {}};
    if (one.name.find(options.only) == std::string::npos) continue;
    for (const auto& instance : json.at("instances"))
      one.instances.push_back({instance.at("valid"), instance.at("tokens")});
    cases.push_back(std::move(one));
  }
  return cases;
}

// The steps that took longest.
class Slowest {
 public:
  Slowest(std::size_t limit, const Vocabulary& vocabulary) : limit_(limit), vocabulary_(vocabulary) {}

  void note(const Case& one, std::size_t instance, std::size_t step, const Step& time) {
    if (limit_ == 0 || (steps_.size() == limit_ && steps_.back().time.sum() >= time.sum())) return;
    const auto place = std::upper_bound(steps_.begin(), steps_.end(), time.sum(),
                                        [](std::uint64_t sum, const Place& s) { return sum > s.time.sum(); });
    std::string text;
    for (std::size_t at = step > 12 ? step - 12 : 0; at <= step; ++at) {
      if (at == step) text += " | ";  // the mask is the one before this token
      text += vocabulary_.tokens[static_cast<std::size_t>(one.instances[instance].tokens[at])];
    }
    steps_.insert(place, {time, one.name, std::move(text), instance, step});
    if (steps_.size() > limit_) steps_.pop_back();
  }

  void print() const {
    for (const Place& s : steps_)
      fmt::print(stderr, "{:10.1f} us (mask {:.1f}) {} instance {} step {}: {}\n",
                 static_cast<double>(s.time.sum()) * 1e-3, static_cast<double>(s.time.mask_ns) * 1e-3, s.name,
                 s.instance, s.step, s.text);
  }

 private:
  struct Place {
    Step time;
    std::string name, text;
    std::size_t instance, step;
  };
  std::size_t limit_;
  const Vocabulary& vocabulary_;
  std::vector<Place> steps_;
};

template <typename Engine>
void walk(Engine& engine, const Case& one, std::size_t number, Row& row, Slowest& slowest) {
  const Instance& instance = one.instances[number];
  engine.restart();
  bool accepted = true;
  for (std::size_t i = 0; i < instance.tokens.size() && accepted; ++i) {
    const std::int32_t token = instance.tokens[i];
    const auto start = Clock::now();
    engine.mask();
    const auto masked = Clock::now();
    accepted = engine.accept(token);
    const Step step{nanoseconds(start, masked), nanoseconds(masked, Clock::now())};
    const bool allowed = (engine.words()[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1u) != 0;
    row.mismatches += allowed != accepted;
    if (number == 0 && i == 0) continue;  // its mask was the first mask
    row.steps.push_back(step);
    slowest.note(one, number, i, step);
  }
  accepted = accepted && engine.can_end();
  row.valid_rejected += instance.valid && !accepted;
  row.invalid_accepted += !instance.valid && accepted;
}

template <typename Engine>
Row run(Engine& engine, const Case& one, Slowest& slowest) {
  Row row;
  engine.prepare();
  try {
    const auto start = Clock::now();
    engine.compile(one.schema);
    row.ttfm_ms = static_cast<double>(nanoseconds(start, Clock::now())) * 1e-6;
  } catch (const std::exception& error) {
    row.error = error.what();
    row.status = "refused";
    // A schema without any value that belongs to it is right to refuse where no instance is valid.
    if (engine.is_empty(error) && std::ranges::none_of(one.instances, &Instance::valid)) row.status = "ok";
    return row;
  }
  try {
    for (std::size_t i = 0; i < one.instances.size(); ++i) walk(engine, one, i, row, slowest);
  } catch (const std::exception& error) {
    row.status = "stopped";
    row.error = error.what();
  }
  row.memory_bytes = engine.memory_bytes();
  return row;
}

// Nearest rank: the least value that a share `p` of all does not exceed.
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

inline double rounded(double value) {
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

inline std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

inline Json row_json(const Case& one, const Row& row) {
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

inline char current_case[256];  // for the handler of SIGALRM

inline void out_of_time(int) {
  for (const char* part : {"error: no end within the limit: ", static_cast<const char*>(current_case), "\n"})
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  _exit(3);
}

// All cases; rows go out one by one, so that a reader knows how far a crash let the program come. The exit status.
template <typename Engine>
int measure(const Options& options, const Vocabulary& vocabulary, Engine& engine) {
  const auto cases = read_cases(options);
  std::ofstream rows;
  if (!options.rows.empty()) rows.open(options.rows);
  Totals totals;
  Slowest slowest(options.slowest, vocabulary);
  std::signal(SIGALRM, out_of_time);
  for (const Case& one : cases) {
    current_case[one.name.copy(current_case, sizeof current_case - 1)] = 0;
    alarm(options.limit);
    const Row row = run(engine, one, slowest);
    alarm(0);
    totals.add(row);
    if (rows.is_open()) rows << line_of(row_json(one, row)) << std::endl;
    if (!options.verbose) continue;
    std::uint64_t longest = 0;
    for (const Step& step : row.steps) longest = std::max(longest, step.sum());
    fmt::print(stderr, "{} {}: first mask {:.3f} ms, {} tokens, longest {:.1f} us, {} rejected, {} accepted{}{}\n",
               row.status, one.name, row.ttfm_ms, row.steps.size(), static_cast<double>(longest) * 1e-3,
               row.valid_rejected, row.invalid_accepted, row.error.empty() ? "" : ": ", row.error);
  }
  slowest.print();
  fmt::print("{}\n", line_of(totals.summary()));
  return totals.mismatches == 0 ? 0 : 1;
}

inline std::optional<std::size_t> whole(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// What an option of the engine's own takes: itself alone, a value behind it; or it is none.
enum class Taken { kFlag, kValue, kUnknown };
using OwnOption = std::function<Taken(std::string_view name, std::string_view value)>;

inline bool set_option(Options& options, std::string_view name, const char* text) {
  if (name == "--rows" || name == "--only") {
    (name == "--rows" ? options.rows : options.only) = text;
    return true;
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

inline std::optional<Options> read_options(int argc, char** argv, const OwnOption& own) {
  Options options;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const bool last = i + 1 == argc;
    if (!name.starts_with("--")) {
      files.emplace_back(name);
      continue;
    }
    const Taken taken = own(name, last ? "" : argv[i + 1]);
    if (taken == Taken::kValue)
      ++i;
    else if (name == "--verbose")
      options.verbose = true;
    else if (taken == Taken::kUnknown && (last || !set_option(options, name, argv[++i])))
      return std::nullopt;
  }
  if (files.size() != 2) return std::nullopt;
  options.vocabulary = files[0];
  options.cases = files[1];
  return options;
}

inline constexpr const char* kCommonUsage =
    "VOCABULARY CASES [--only NAME] [--from N] [--count N] [--rows FILE] [--slowest N] [--limit SECONDS] [--verbose]";

}  // namespace grammar_bench
