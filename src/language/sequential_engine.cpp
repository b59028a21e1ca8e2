#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <mutex>
#include <string_view>

#include "coreai/base/error.h"
#include "coreai/base/log.h"
#include "language/decoder.h"

namespace coreai {
namespace {

constexpr std::int64_t kDefaultChunkThreshold = 1024;  // tokens
constexpr std::int64_t kDefaultChunkSize = 512;        // tokens
// evaluate() keeps a piece's logits below this many bytes.
constexpr std::int64_t kEvaluationBytes = std::int64_t{64} << 20;
constexpr std::int64_t kEvaluationRows = 16;  // at least, however wide the vocabulary

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::int64_t chunk_threshold_from_environment() {
  const char* text = std::getenv("COREAI_CHUNK_THRESHOLD");
  if (text == nullptr) return kDefaultChunkThreshold;
  const std::string_view value(text);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc() && end == value.data() + value.size() && number > 0) return number;
  log(LogLevel::kWarning, fmt::format("COREAI_CHUNK_THRESHOLD is '{}', not a positive number of tokens; {} is used",
                                      value, kDefaultChunkThreshold));
  return kDefaultChunkThreshold;
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEndToken:
      return "end_token";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

void GenerationOptions::validate() const {
  sampling.validate();
  if (max_tokens && *max_tokens < 0)
    throw InvalidArgumentError(fmt::format("max_tokens is {}, valid: 0 or more", *max_tokens), "generation",
                               "Leave it out to generate until an end token");
}

EngineConfiguration EngineConfiguration::resolved() const {
  EngineConfiguration made = *this;
  if (made.chunk_threshold == 0) made.chunk_threshold = chunk_threshold_from_environment();
  if (made.chunk_size == 0) made.chunk_size = std::min(kDefaultChunkSize, made.chunk_threshold);
  std::string faults;
  const auto require_positive = [&](std::int64_t value, std::string_view name) {
    if (value <= 0) faults += fmt::format("{}{} is {}, valid: 1 or more", faults.empty() ? "" : "; ", name, value);
  };
  require_positive(made.max_context_length, "max_context_length");
  require_positive(made.initial_capacity, "initial_capacity");
  require_positive(made.chunk_threshold, "chunk_threshold");
  require_positive(made.chunk_size, "chunk_size");
  if (!faults.empty()) throw InvalidArgumentError(faults, "engine configuration", "Correct the named fields");
  return made;
}

// What the engine and its open run share, so that either may go first. Touched by one thread, but for `stop`.
struct SequentialEngine::Core {
  Core(std::unique_ptr<Decoder> d, const EngineConfiguration& c) : decoder(std::move(d)), configuration(c) {
    history.reserve(static_cast<std::size_t>(std::min(decoder->max_positions(), c.initial_capacity)));
  }

  std::unique_ptr<Decoder> decoder;
  EngineConfiguration configuration;
  std::vector<TokenId> history;  // tokens whose rows the cache holds, in order
  std::uint64_t run = 0;         // the open run; an older one is over
  bool busy = false;

  std::mutex stop_mutex;
  std::stop_source stop{std::nostopstate};  // of the open run

  // The run before it is over, whatever it was doing.
  std::uint64_t open_run(const std::stop_source& source) {
    const std::lock_guard lock(stop_mutex);
    stop.request_stop();
    stop = source;
    busy = true;
    return ++run;
  }
  void close_run(std::uint64_t id) {
    if (id == run) busy = false;
  }
  void close_any_run() {
    const std::lock_guard lock(stop_mutex);
    stop.request_stop();
    ++run;
    busy = false;
  }
  void rewind(std::int64_t count) {
    history.resize(static_cast<std::size_t>(count));
    if (count == 0) decoder->clear();
  }

  // Appends `tokens` to the cache, in chunks when there are many; the logits of the last position.
  const NDArray& append(std::span<const TokenId> tokens, const std::stop_token& token) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const std::int64_t chunk = count > configuration.chunk_threshold ? configuration.chunk_size : count;
    for (std::int64_t done = 0;; done += chunk) {
      const bool last = count - done <= chunk;
      const auto part =
          tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(last ? count - done : chunk));
      if (token.stop_requested()) throw CancelledError("the run was stopped", "generation");
      const NDArray& logits = decoder->forward(part, static_cast<std::int64_t>(history.size()), last ? 1 : 0, token);
      history.insert(history.end(), part.begin(), part.end());
      if (last) return logits;
    }
  }

  void check_tokens(std::span<const TokenId> tokens) const {
    if (tokens.empty())
      throw InvalidArgumentError("there is no token to process", "prompt",
                                 "Give at least one token; a model without a begin token cannot start from nothing");
    const std::int64_t vocab = decoder->vocab_size();
    for (TokenId id : tokens)
      if (id < 0 || id >= vocab)
        throw InvalidArgumentError(fmt::format("token id {} is outside the vocabulary of {}", id, vocab), "prompt",
                                   "Encode the text with the tokenizer of this bundle");
    const auto count = static_cast<std::int64_t>(tokens.size());
    const std::int64_t capacity = decoder->max_positions();
    if (count > capacity)
      throw ContextLengthError(count, capacity, fmt::format("a prompt of {} tokens", count),
                               fmt::format("Shorten the prompt to fewer than {} tokens, or use a model with a longer "
                                           "context",
                                           capacity));
  }
};

namespace {

class SequentialRun final : public GenerationSource {
 public:
  SequentialRun(std::shared_ptr<SequentialEngine::Core> core, std::span<const TokenId> prompt,
                const GenerationOptions& options)
      : core_(std::move(core)),
        sampler_(options.sampling),
        end_tokens_(options.end_tokens),
        include_logits_(options.include_logits),
        pending_(prompt.begin(), prompt.end()),
        forward_(options.stop, [this] { stop_.request_stop(); }),
        id_(core_->open_run(stop_)) {
    statistics_.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    const std::int64_t room = core_->decoder->max_positions() - statistics_.prompt_tokens;
    const std::int64_t wanted = options.max_tokens.value_or(std::numeric_limits<std::int64_t>::max());
    budget_ = std::min(room, wanted);
    budget_reason_ = wanted <= room ? StopReason::kMaxTokens : StopReason::kContextFull;
    vocab_ = static_cast<std::size_t>(core_->decoder->vocab_size());
  }
  ~SequentialRun() override { core_->close_run(id_); }
  SequentialRun(const SequentialRun&) = delete;
  SequentialRun& operator=(const SequentialRun&) = delete;

  std::optional<GeneratedToken> next() override {
    if (over_) return std::nullopt;
    if (id_ != core_->run || stop_.stop_requested()) return finish(StopReason::kCancelled);
    if (statistics_.generated_tokens >= budget_) return finish(budget_reason_);
    const auto start = Clock::now();
    try {
      const GeneratedToken made = step();
      (statistics_.generated_tokens == 1 ? statistics_.prefill_seconds : statistics_.decode_seconds) +=
          seconds_since(start);
      return made;
    } catch (const CancelledError&) {
      return finish(StopReason::kCancelled);
    } catch (...) {
      over_ = true;
      core_->close_run(id_);
      throw;
    }
  }

  std::optional<StopReason> stop_reason() const override { return reason_; }
  const GenerationStatistics& statistics() const override { return statistics_; }
  void cancel() override { stop_.request_stop(); }

 private:
  GeneratedToken step() {
    const NDArray& logits = core_->append(pending_, stop_.get_token());
    const auto bytes = logits.bytes();
    const std::size_t row_bytes = dtype_bytes(logits.dtype(), vocab_);
    COREAI_INVARIANT(bytes.size() >= row_bytes);
    const std::span<const float> row = last_row(logits.dtype(), bytes.last(row_bytes));
    const TokenId token = sampler_.sample(row, static_cast<std::uint64_t>(statistics_.generated_tokens));
    pending_.assign(1, token);
    ++statistics_.generated_tokens;
    if (std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end()) {
      finish(StopReason::kEndToken);
    }
    return {token, include_logits_ ? row : std::span<const float>()};
  }

  // f32 rows are used where they lie.
  std::span<const float> last_row(DType dtype, std::span<const std::byte> bytes) {
    if (dtype == DType::kF32) return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
    row_.resize(vocab_);
    widen_logits(dtype, bytes, row_);
    return row_;
  }

  std::nullopt_t finish(StopReason reason) {
    over_ = true;
    if (!reason_) reason_ = reason;
    core_->close_run(id_);
    return std::nullopt;
  }

  std::shared_ptr<SequentialEngine::Core> core_;
  Sampler sampler_;
  std::vector<TokenId> end_tokens_;
  bool include_logits_;
  std::vector<TokenId> pending_;  // given or chosen, not yet in the cache
  std::size_t vocab_ = 0;
  std::vector<float> row_;  // [vocab], for logits that are not f32
  std::stop_source stop_;
  std::stop_callback<std::function<void()>> forward_;  // after stop_: it uses it
  std::uint64_t id_;
  std::int64_t budget_ = 0;
  StopReason budget_reason_ = StopReason::kMaxTokens;
  bool over_ = false;
  std::optional<StopReason> reason_;
  GenerationStatistics statistics_;
};

}  // namespace

SequentialEngine::SequentialEngine(std::unique_ptr<Decoder> decoder, const EngineConfiguration& configuration)
    : core_(std::make_shared<Core>(std::move(decoder), configuration.resolved())) {}
SequentialEngine::~SequentialEngine() = default;

Generation SequentialEngine::generate(std::span<const TokenId> tokens, const GenerationOptions& options) {
  options.validate();
  core_->check_tokens(tokens);
  reset();
  return Generation(std::make_unique<SequentialRun>(core_, tokens, options));
}

std::int64_t SequentialEngine::processed_token_count() const {
  return static_cast<std::int64_t>(core_->history.size());
}

void SequentialEngine::reset(std::int64_t token_count) {
  if (token_count < 0 || token_count > processed_token_count())
    throw InvalidArgumentError(fmt::format("reset to {} tokens, valid: 0 to {}", token_count, processed_token_count()),
                               "engine", "Only what was processed can be kept");
  if (token_count > 0 && token_count < processed_token_count() && !supports_rewind())
    throw UnsupportedError("a model with recurrent state cannot go back to a position in the middle", "engine",
                           "Reset to 0 and process the prefix again");
  core_->close_any_run();
  core_->rewind(token_count);
}

void SequentialEngine::warmup(std::int64_t query_length) {
  const std::vector<TokenId> tokens(static_cast<std::size_t>(std::max<std::int64_t>(query_length, 1)), 0);
  core_->check_tokens(tokens);
  reset();
  core_->append(tokens, {});
  reset();
}

bool SequentialEngine::is_busy() const {
  return core_->busy;
}

void SequentialEngine::cancel() {
  const std::lock_guard lock(core_->stop_mutex);
  core_->stop.request_stop();
}

bool SequentialEngine::supports_rewind() const {
  return core_->decoder->supports_rewind();
}
std::int64_t SequentialEngine::max_context_length() const {
  return core_->decoder->max_positions();
}
std::int64_t SequentialEngine::vocab_size() const {
  return core_->decoder->vocab_size();
}

void SequentialEngine::evaluate(std::span<const TokenId> tokens, const LogitsSink& sink, std::stop_token stop) {
  core_->check_tokens(tokens);
  reset();
  const auto width = static_cast<std::int64_t>(sizeof(float)) * vocab_size();
  const auto piece = static_cast<std::size_t>(
      std::min(core_->configuration.chunk_size, std::max(kEvaluationRows, kEvaluationBytes / width)));
  for (std::size_t done = 0; done < tokens.size(); done += piece) {
    const auto part = tokens.subspan(done, std::min(piece, tokens.size() - done));
    if (stop.stop_requested()) throw CancelledError("the run was stopped", "evaluation");
    const auto first = static_cast<std::int64_t>(done);
    const NDArray& logits = core_->decoder->forward(part, first, static_cast<std::int64_t>(part.size()), stop);
    core_->history.insert(core_->history.end(), part.begin(), part.end());
    sink(first, logits);
  }
}

}  // namespace coreai
