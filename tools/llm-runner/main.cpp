// llm-runner: one prompt, one answer from a language bundle. The text goes to stdout, all else to stderr.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "common/interrupt.h"
#include "common/tool.h"
#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/base/utf8.h"
#include "coreai/bundle/model_paths.h"
#include "coreai/language/text_generator.h"
#include "llm-runner/npy_writer.h"
#include "llm-runner/options.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPromptLimit = std::size_t{64} << 20;  // bytes

// Peak resident memory of this process image; getrusage would include the parent's before exec.
std::uint64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + std::strlen("VmHWM:"), nullptr, 10) * 1024;
  return 0;
}

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, n);
    if (text.size() > kPromptLimit)
      throw InvalidArgumentError(fmt::format("more than {} bytes", kPromptLimit), "standard input",
                                 "Give a shorter prompt");
  }
  if (std::ferror(stdin)) throw IoError("the prompt cannot be read", "standard input", errno);
  return text;
}

std::string prompt_text(const LlmRunnerOptions& options) {
  if (options.prompt) return *options.prompt;
  return *options.prompt_file == "-" ? read_standard_input() : read_text_file(*options.prompt_file, kPromptLimit);
}

// A line that overwrites itself, on a terminal only.
class ProgressLine {
 public:
  static void show(double fraction, std::string_view what, void* self) {
    auto& line = *static_cast<ProgressLine*>(self);
    std::string text = fmt::format("{} {:.0f} %", what, 100.0 * fraction);
    if (text == line.text_) return;
    fmt::print(stderr, "\r\x1b[K{}", text);
    line.text_ = std::move(text);
  }
  void clear() {
    if (!text_.empty()) fmt::print(stderr, "\r\x1b[K");
    text_.clear();
  }
  ~ProgressLine() { clear(); }

 private:
  std::string text_;  // what stands there
};

class Runner {
 public:
  explicit Runner(const LlmRunnerOptions& options) : options_(options), text_(input_text()), generator_(load()) {}

  int run(InterruptWatcher& interrupt) {
    fmt::print(stderr, "{}: {} arithmetic, {} thread{}\n", printable(generator_.bundle().name()), options_.precision,
               threads_, threads_ == 1 ? "" : "s");
    encode();
    const std::stop_token stop = interrupt.arm();
    if (!options_.logits_file.empty()) return write_logits(stop);
    return answer(stop);
  }

 private:
  std::string input_text() const {
    if (options_.prompt_ids) return {};
    std::string text = prompt_text(options_);
    if (const auto at = invalid_utf8(text)) {
      throw InvalidArgumentError(fmt::format("the prompt is not UTF-8 text: byte 0x{:02X} at offset {}",
                                             static_cast<unsigned char>(text[*at]), *at),
                                 options_.prompt_file ? *options_.prompt_file : "--prompt", "Give plain text in UTF-8");
    }
    return text;
  }

  TextGenerator load() {
    threads_ = thread_count(options_.common);
    SpecializationOptions specialization;
    specialization.precision = precision_from_name(options_.precision);
    specialization.threads = threads_;
    ProgressLine line;
    if (::isatty(STDERR_FILENO)) {
      specialization.progress = &ProgressLine::show;
      specialization.progress_user = &line;
    }
    return TextGenerator::load(ModelPaths::standard(options_.model_path).find(options_.model), specialization);
  }

  void warn(const std::string& text) {
    if (text.empty()) return;
    warnings_.push_back(text);
    print_warning(text);
  }

  void encode() {
    for (const std::string& text : generator_.bundle().warnings()) warn(text);
    if (options_.prompt_ids) {
      ids_ = parse_ids(*options_.prompt_ids);
      return;
    }
    EncodedPrompt encoded =
        generator_.encode(text_, {.system = options_.system, .raw = options_.raw, .chat = ChatTemplateOptions{}});
    warn(encoded.warning);
    ids_ = std::move(encoded.ids);
  }

  int answer(const std::stop_token& stop) {
    GenerationOptions generation;
    generation.sampling = options_.sampling;
    generation.sampling.seed = options_.seed ? *options_.seed : std::random_device{}();
    for (const std::string& text : generation.sampling.warnings()) warn(text);
    generation.max_tokens = options_.max_tokens;
    generation.stop = stop;
    TextGeneration run = generator_.generate(ids_, generation);
    std::string text;
    while (const auto piece = run.next()) {
      text += piece->text;
      if (!options_.json) stream(piece->text);
    }
    if (options_.json) {
      print(report(run, text, generation.sampling).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    } else if (!text.ends_with('\n')) {
      print("\n");
    }
    std::fflush(stdout);
    summarize(run, generation.sampling);
    return kDone;
  }

  static void stream(const std::string& text) {
    if (text.empty()) return;
    print(text);
    flush();
  }

  Json report(const TextGeneration& run, const std::string& text, const SamplingConfiguration& sampling) const {
    const TextTimings timings = run.timings();
    Json json;
    json["model"] = generator_.bundle().name();
    json["precision"] = options_.precision;
    json["threads"] = threads_;
    json["text"] = text;
    json["prompt_ids"] = ids_;
    json["token_ids"] = run.tokens();
    json["stop_reason"] = run.stop_reason() ? Json(stop_reason_name(*run.stop_reason())) : Json();
    json["prompt_tokens"] = ids_.size();
    json["generated_tokens"] = run.tokens().size();
    json["load_ms"] = timings.load_ms;
    json["ttft_ms"] = timings.time_to_first_token_ms;
    json["prefill_tokens_per_second"] = timings.prefill_tokens_per_second;
    json["decode_tokens_per_second"] = timings.decode_tokens_per_second;
    json["peak_rss_bytes"] = peak_rss_bytes();
    json["temperature"] = sampling.temperature;
    if (!sampling.greedy()) json["seed"] = sampling.seed;
    json["warnings"] = warnings_;
    return json;
  }

  void summarize(const TextGeneration& run, const SamplingConfiguration& sampling) const {
    const TextTimings timings = run.timings();
    fmt::print(stderr, "stopped: {}{}\n", run.stop_reason() ? stop_reason_name(*run.stop_reason()) : "",
               sampling.greedy() ? "" : fmt::format("; seed {}", sampling.seed));
    fmt::print(stderr, "prompt: {} tokens, {:.1f} tokens/s; answer: {} tokens, {:.1f} tokens/s\n", ids_.size(),
               timings.prefill_tokens_per_second, run.tokens().size(), timings.decode_tokens_per_second);
    fmt::print(stderr, "load: {:.1f} ms; first token: {:.1f} ms; peak memory: {}\n", timings.load_ms,
               timings.time_to_first_token_ms, format_bytes(peak_rss_bytes()));
  }

  int write_logits(const std::stop_token& stop) {
    auto& engine = dynamic_cast<SequentialEngine&>(generator_.engine());
    NpyRowWriter file(options_.logits_file, ids_.size(), static_cast<std::size_t>(engine.vocab_size()));
    std::vector<float> row(static_cast<std::size_t>(engine.vocab_size()));
    engine.evaluate(
        ids_,
        [&](std::int64_t, const NDArray& logits) {
          const std::size_t row_bytes = dtype_bytes(logits.dtype(), row.size());
          const auto bytes = logits.bytes();
          for (std::size_t at = 0; at < bytes.size(); at += row_bytes) {
            widen_logits(logits.dtype(), bytes.subspan(at, row_bytes), row);
            file.write(row);
          }
        },
        stop);
    file.finish();
    if (options_.json) {
      Json json;
      json["model"] = generator_.bundle().name();
      json["precision"] = options_.precision;
      json["threads"] = threads_;
      json["prompt_ids"] = ids_;
      json["logits"] = options_.logits_file;
      json["load_ms"] = generator_.load_ms();
      json["peak_rss_bytes"] = peak_rss_bytes();
      print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    }
    return kDone;
  }

  const LlmRunnerOptions& options_;
  std::string text_;
  int threads_ = 0;
  TextGenerator generator_;
  std::vector<TokenId> ids_;
  std::vector<std::string> warnings_;
};

}  // namespace
}  // namespace coreai::tools

int main(int argc, char** argv) {
  using namespace coreai::tools;
  CLI::App app("Answers a prompt with a language model bundle. The answer goes to standard output.", "llm-runner");
  LlmRunnerOptions options;
  add_options(app, options);
  app.callback([&] { check_options(options); });
  return run_tool(app, argc, argv, [&] {
    InterruptWatcher interrupt;
    return Runner(options).run(interrupt);
  });
}
