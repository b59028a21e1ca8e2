// A stream of generated tokens that the caller pulls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "coreai/language/sampling.h"
#include "coreai/text/tokenizer.h"

namespace coreai {

enum class StopReason : std::uint8_t {
  kEndToken,     // the last token is one of GenerationOptions::end_tokens
  kMaxTokens,    // as many tokens as asked for
  kContextFull,  // prompt and answer together fill the context
  kCancelled,    // the caller stopped it, or the engine was reset or given another prompt
};
// "end_token", "max_tokens", "context_full", "cancelled".
std::string_view stop_reason_name(StopReason reason);

struct GenerationOptions {
  SamplingConfiguration sampling = {};
  std::optional<std::int64_t> max_tokens = {};  // nothing = until an end token or a full context; 0 gives no token
  std::vector<TokenId> end_tokens = {};         // the token that ends the answer is given out as its last one
  bool include_logits = false;                  // GeneratedToken::logits
  std::stop_token stop = {};                    // stops within one decode step or one chunk of the prompt

  // Throws InvalidArgumentError that names every field out of range.
  void validate() const;
};

struct GeneratedToken {
  TokenId token = 0;
  // The row it was chosen from, [vocab], before temperature; empty unless asked for. Valid until the next pull.
  std::span<const float> logits;
};

struct GenerationStatistics {
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  // of the prompt, already in the cache
  std::int64_t generated_tokens = 0;
  double prefill_seconds = 0;  // forward passes over the prompt and the choice of the first token
  double decode_seconds = 0;   // the same for all later tokens
};

// What an engine implements for one run.
class GenerationSource {
 public:
  virtual ~GenerationSource() = default;
  virtual std::optional<GeneratedToken> next() = 0;
  virtual std::optional<StopReason> stop_reason() const = 0;
  virtual const GenerationStatistics& statistics() const = 0;
  virtual void cancel() = 0;  // from any thread
};

// Move-only; nothing runs between pulls, and dropping it ends the run. One thread pulls; cancel() may come from
// another.
//   for (const GeneratedToken& token : generation) ...
//   generation.stop_reason()
class Generation {
 public:
  explicit Generation(std::unique_ptr<GenerationSource> source) : source_(std::move(source)) {}
  Generation(Generation&&) noexcept = default;
  Generation& operator=(Generation&&) noexcept = default;

  // The next token; nothing when the run is over. Throws what the model's run throws, and InvalidArgumentError for
  // logits that are not finite; the run is over then, without a stop reason.
  std::optional<GeneratedToken> next() { return source_->next(); }
  // Why the run is over; nothing while it is not, or after an error. Written once.
  std::optional<StopReason> stop_reason() const { return source_->stop_reason(); }
  const GenerationStatistics& statistics() const { return source_->statistics(); }
  void cancel() { source_->cancel(); }

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = GeneratedToken;

    Iterator() = default;
    explicit Iterator(GenerationSource* source) : source_(source) { ++*this; }
    const GeneratedToken& operator*() const { return *token_; }
    Iterator& operator++() {
      token_ = source_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.token_; }

   private:
    GenerationSource* source_ = nullptr;
    std::optional<GeneratedToken> token_;
  };
  Iterator begin() { return Iterator(source_.get()); }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::unique_ptr<GenerationSource> source_;
};

}  // namespace coreai
