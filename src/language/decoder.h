// One forward pass of a decoder, as the engines see it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>

#include "coreai/base/ndarray.h"
#include "coreai/language/inference_engine.h"

namespace coreai {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Computes `tokens` at positions start, start+1, ... with the cache below `start` as it is, and gives the logits of
  // the last `rows` of them: [1, rows, vocab], valid until the next call. start + tokens <= max_positions().
  virtual const NDArray& forward(std::span<const TokenId> tokens, std::int64_t start, std::int64_t rows,
                                 std::stop_token stop) = 0;
  // Forgets what a rewind to position 0 would not overwrite: recurrent states.
  virtual void clear() = 0;
  virtual bool supports_rewind() const = 0;
  virtual std::int64_t max_positions() const = 0;
  virtual std::int64_t vocab_size() const = 0;
};

// A decoder over a function of the dynamic contract. Throws UnsupportedError that names what differs.
std::unique_ptr<Decoder> make_function_decoder(const InferenceFunction& function,
                                               const EngineConfiguration& configuration);

}  // namespace coreai
