// One generation that has to follow a grammar: what a loop of decode, mask, sample and accept asks for.
// Source of the contract: ConstrainedGenerationSession of Core AI; here its stop tokens count, nothing sticks over a
// rollback, and a buffer that is too small is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/grammar/grammar_matcher.h"

namespace coreai::grammar {

// Not safe to use from several threads at once; sessions of one grammar are independent of each other. Functions throw
// UnsupportedError as those of GrammarMatcher.
class ConstrainedGenerationSession {
 public:
  // `stop_ids` end the text like the vocabulary's end tokens: allowed exactly where the text may end, never by their
  // text. Throws InvalidArgumentError: no such id.
  explicit ConstrainedGenerationSession(CompiledGrammar grammar, std::vector<std::int32_t> stop_ids = {});
  // Throws as GrammarCompiler::compile_json_schema.
  ConstrainedGenerationSession(GrammarCompiler& compiler, std::string_view schema,
                               const JsonSchemaOptions& options = {}, std::vector<std::int32_t> stop_ids = {});

  // False, and nothing changed, where the token may not come or the text has ended. Throws InvalidArgumentError: no
  // such id.
  bool accept_token(std::int32_t id);
  // Takes back the last tokens, a stop token included. False, and nothing changed, where fewer were accepted.
  bool rollback(std::size_t tokens);
  void reset();
  std::size_t accepted_tokens() const { return matcher_.accepted_steps() + (stopped_ ? 1 : 0); }

  // Nothing where the text has ended.
  std::optional<TokenMask> next_token_bitmask() const;
  // Writes bitmask_words(vocab_size) words; no bit where the text has ended. Throws InvalidArgumentError: fewer words
  // are given; more are left alone.
  MaskKind fill_next_token_bitmask(std::span<std::uint32_t> mask) const;
  // Sets the logits [vocab_size] of tokens that may not come to minus infinity (coreai/grammar/token_bitmask.h). False,
  // and nothing changed, where the text has ended. Throws InvalidArgumentError: fewer logits than the vocabulary needs.
  bool apply_mask(std::span<float> logits) const;
  bool apply_mask_f16(std::span<std::uint16_t> logits) const;
  bool apply_mask_bf16(std::span<std::uint16_t> logits) const;

  // The bytes that must follow; nothing where there is a choice or the text may end.
  std::optional<std::string> find_jump_forward_string() const;

  bool is_terminated() const { return stopped_ || matcher_.is_terminated(); }
  bool can_terminate() const { return !stopped_ && matcher_.can_terminate(); }
  const GrammarMatcher& matcher() const { return matcher_; }

 private:
  bool is_stop(std::int32_t id) const;
  void set_stops(std::span<std::uint32_t> mask) const;
  GrammarMatcher matcher_;
  std::vector<std::int32_t> stop_ids_;  // ascending
  bool stopped_ = false;                // by one of them
};

}  // namespace coreai::grammar
