// What every language-model engine offers: tokens in, a stream of tokens out, a cache that it owns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "coreai/base/ndarray.h"
#include "coreai/bundle/language_bundle.h"
#include "coreai/language/generation.h"
#include "coreai/runtime/ai_model.h"

namespace coreai {

// One engine is one session: the model behind it is shared, the cache is its own. Not thread-safe but for cancel();
// separate engines over one model run at the same time.
class InferenceEngine {
 public:
  virtual ~InferenceEngine() = default;

  // Starts a run over the whole token sequence `tokens` (never only its new part). A run that is still open is
  // cancelled. Throws ContextLengthError when it is longer than the context, before anything is computed;
  // InvalidArgumentError for no token, an id outside the vocabulary, or bad options.
  virtual Generation generate(std::span<const TokenId> tokens, const GenerationOptions& options) = 0;

  // Tokens whose keys and values the cache holds. The last generated token is not among them before the next step.
  virtual std::int64_t processed_token_count() const = 0;
  // Back to the state after the first `token_count` tokens; 0 clears. Cancels an open run. Throws InvalidArgumentError
  // when more are asked for than were processed, UnsupportedError when supports_rewind() is false and it is not 0.
  virtual void reset(std::int64_t token_count = 0) = 0;
  // One forward pass of that many tokens, so that the first real one meets no cold page or buffer; then a reset.
  virtual void warmup(std::int64_t query_length) = 0;
  virtual bool is_busy() const = 0;
  // Ends the open run within one step. From any thread, any number of times.
  virtual void cancel() = 0;

  virtual bool supports_logits() const = 0;
  virtual bool supports_rewind() const = 0;
  // Tokens of the last generate() that were found in the cache.
  virtual std::int64_t last_prefix_hit_count() const = 0;
  virtual std::int64_t max_context_length() const = 0;  // positions
  virtual std::int64_t vocab_size() const = 0;          // width of the logits
};

struct EngineConfiguration {
  std::int64_t max_context_length = 0;  // of the bundle; a cache of fixed length may allow less
  std::int64_t initial_capacity = 256;  // positions that a growing cache starts with; it doubles
  // A prompt of more tokens than the threshold is computed in chunks. 0 = COREAI_CHUNK_THRESHOLD, else 1024.
  std::int64_t chunk_threshold = 0;
  std::int64_t chunk_size = 0;  // 0 = the smaller of 512 and the threshold
  // What the bundle declares of the function's states (`language.states`); a state it does not name is classified by
  // its name and shape.
  std::vector<DeclaredState> states = {};

  // Fills in the zeros (reads COREAI_CHUNK_THRESHOLD). Throws InvalidArgumentError that names every field out of range.
  EngineConfiguration resolved() const;
};

class Decoder;

// Dynamic models: one forward pass after the other on the calling thread, logits at hand.
// States, their names, dtypes and lengths are read from the function's descriptor; 1 to 4 of them.
class SequentialEngine final : public InferenceEngine {
 public:
  // Throws UnsupportedError when the function does not follow the dynamic contract (`input_ids` [1,?], `position_ids`
  // [1,?], states, logits [1,?,vocab]) or a state cannot be what the configuration declares, naming what differs.
  static std::unique_ptr<SequentialEngine> create(const InferenceFunction& function,
                                                  const EngineConfiguration& configuration);
  explicit SequentialEngine(std::unique_ptr<Decoder> decoder, const EngineConfiguration& configuration);
  ~SequentialEngine() override;

  Generation generate(std::span<const TokenId> tokens, const GenerationOptions& options) override;
  std::int64_t processed_token_count() const override;
  void reset(std::int64_t token_count = 0) override;
  void warmup(std::int64_t query_length) override;
  bool is_busy() const override;
  void cancel() override;
  bool supports_logits() const override { return true; }
  bool supports_rewind() const override;
  std::int64_t last_prefix_hit_count() const override { return 0; }
  std::int64_t max_context_length() const override;
  std::int64_t vocab_size() const override;

  // The logits of every position of `tokens`, from an empty cache, in pieces: `sink` gets the first position of a piece
  // and its rows [1, n, vocab] in the model's dtype, valid during the call. Throws as generate(), and CancelledError.
  using LogitsSink = std::function<void(std::int64_t first_position, const NDArray& logits)>;
  void evaluate(std::span<const TokenId> tokens, const LogitsSink& sink, std::stop_token stop = {});

  struct Core;

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace coreai
