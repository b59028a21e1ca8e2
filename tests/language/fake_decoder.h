// A decoder without a model: it checks how it is called and makes logits from what its cache holds.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "coreai/base/error.h"
#include "language/decoder.h"

namespace coreai::testing_support {

struct FakeCall {
  std::int64_t start, count, rows;
  friend bool operator==(const FakeCall&, const FakeCall&) = default;
};

// The best next token is a hash of the whole history, so that a wrong cache gives a wrong continuation.
class FakeDecoder final : public Decoder {
 public:
  FakeDecoder(std::int64_t vocab, std::int64_t positions) : vocab_(vocab), positions_(positions) {}

  static TokenId next_token(std::span<const TokenId> history, std::int64_t vocab) {
    std::uint64_t hash = 1469598103934665603ULL;
    for (TokenId id : history) hash = (hash ^ static_cast<std::uint64_t>(id + 1)) * 1099511628211ULL;
    return static_cast<TokenId>((hash >> 20) % static_cast<std::uint64_t>(vocab));
  }

  const NDArray& forward(std::span<const TokenId> tokens, std::int64_t start, std::int64_t rows,
                         std::stop_token stop) override {
    if (on_forward) on_forward();
    if (stop.stop_requested()) throw CancelledError("stopped", "fake");
    calls.push_back({start, static_cast<std::int64_t>(tokens.size()), rows});
    EXPECT_LE(start, static_cast<std::int64_t>(cache_.size()));
    EXPECT_LE(start + static_cast<std::int64_t>(tokens.size()), positions_);
    cache_.resize(static_cast<std::size_t>(start));
    logits_ = NDArray(DType::kF32, {1, rows, vocab_});
    const auto values = logits_.mutable_values<float>();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      cache_.push_back(tokens[i]);
      const auto row = static_cast<std::int64_t>(i) - (static_cast<std::int64_t>(tokens.size()) - rows);
      if (row < 0) continue;
      const TokenId best = next_token(cache_, vocab_);
      values[static_cast<std::size_t>(row * vocab_ + best)] = poison ? std::numeric_limits<float>::quiet_NaN() : 5.0F;
    }
    return logits_;
  }
  void clear() override { ++clears; }
  bool supports_rewind() const override { return rewindable; }
  std::int64_t max_positions() const override { return positions_; }
  std::int64_t vocab_size() const override { return vocab_; }

  std::vector<FakeCall> calls;
  int clears = 0;
  bool rewindable = true;
  bool poison = false;
  std::function<void()> on_forward;

 private:
  std::int64_t vocab_, positions_;
  std::vector<TokenId> cache_;
  NDArray logits_;
};

}  // namespace coreai::testing_support
