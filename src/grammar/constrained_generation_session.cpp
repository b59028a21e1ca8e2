#include "coreai/grammar/constrained_generation_session.h"

#include <algorithm>
#include <utility>

#include "coreai/grammar/token_bitmask.h"

namespace coreai::grammar {

ConstrainedGenerationSession::ConstrainedGenerationSession(CompiledGrammar grammar, std::vector<std::int32_t> stop_ids)
    : matcher_(std::move(grammar)), stop_ids_(std::move(stop_ids)) {
  const TokenizerInfo& tokenizer = matcher_.grammar().tokenizer();
  for (const std::int32_t id : stop_ids_) tokenizer.token_bytes(id);  // checks the id
  std::erase_if(stop_ids_, [&](std::int32_t id) { return tokenizer.is_end(id); });
  std::ranges::sort(stop_ids_);
}

ConstrainedGenerationSession::ConstrainedGenerationSession(GrammarCompiler& compiler, std::string_view schema,
                                                           const JsonSchemaOptions& options,
                                                           std::vector<std::int32_t> stop_ids)
    : ConstrainedGenerationSession(compiler.compile_json_schema(schema, options), std::move(stop_ids)) {}

bool ConstrainedGenerationSession::is_stop(std::int32_t id) const {
  return std::ranges::binary_search(stop_ids_, id);
}

bool ConstrainedGenerationSession::accept_token(std::int32_t id) {
  if (!is_stop(id)) return !stopped_ && matcher_.accept_token(id);
  if (!can_terminate()) return false;
  stopped_ = true;
  return true;
}

bool ConstrainedGenerationSession::rollback(std::size_t tokens) {
  if (tokens > accepted_tokens()) return false;
  if (tokens == 0) return true;
  matcher_.rollback(tokens - (stopped_ ? 1 : 0));
  stopped_ = false;
  return true;
}

void ConstrainedGenerationSession::reset() {
  matcher_.reset();
  stopped_ = false;
}

void ConstrainedGenerationSession::set_stops(std::span<std::uint32_t> mask) const {
  const bool allowed = matcher_.can_terminate();
  for (const std::int32_t id : stop_ids_) {
    std::uint32_t& word = mask[static_cast<std::size_t>(id) / 32];
    const std::uint32_t bit = std::uint32_t{1} << (id % 32);
    word = allowed ? word | bit : word & ~bit;
  }
}

std::optional<TokenMask> ConstrainedGenerationSession::next_token_bitmask() const {
  if (is_terminated()) return std::nullopt;
  TokenMask shared = matcher_.next_token_mask();
  if (stop_ids_.empty()) return shared;
  const std::size_t words = bitmask_words(matcher_.grammar().tokenizer().vocab_size());
  const std::shared_ptr<std::uint32_t[]> own(new std::uint32_t[words]);
  std::copy_n(shared.get(), words, own.get());
  set_stops({own.get(), words});
  return TokenMask(own);
}

MaskKind ConstrainedGenerationSession::fill_next_token_bitmask(std::span<std::uint32_t> mask) const {
  const MaskKind kind = matcher_.fill_next_token_bitmask(mask);
  if (kind == MaskKind::kTerminated) return kind;
  if (!stopped_) {
    set_stops(mask);
    return kind;
  }
  std::ranges::fill(mask.first(bitmask_words(matcher_.grammar().tokenizer().vocab_size())), 0u);
  return MaskKind::kTerminated;
}

namespace {

template <typename T>
bool apply(const ConstrainedGenerationSession& session, std::span<T> logits,
           void (*apply_mask)(std::span<const std::uint32_t>, std::span<T>)) {
  const auto mask = session.next_token_bitmask();
  if (!mask) return false;
  apply_mask({mask->get(), bitmask_words(session.matcher().grammar().tokenizer().vocab_size())}, logits);
  return true;
}

}  // namespace

bool ConstrainedGenerationSession::apply_mask(std::span<float> logits) const {
  return apply(*this, logits, apply_token_bitmask);
}
bool ConstrainedGenerationSession::apply_mask_f16(std::span<std::uint16_t> logits) const {
  return apply(*this, logits, apply_token_bitmask_f16);
}
bool ConstrainedGenerationSession::apply_mask_bf16(std::span<std::uint16_t> logits) const {
  return apply(*this, logits, apply_token_bitmask_bf16);
}

std::optional<std::string> ConstrainedGenerationSession::find_jump_forward_string() const {
  if (is_terminated()) return std::nullopt;
  std::string forced = matcher_.find_jump_forward_string();
  return forced.empty() ? std::nullopt : std::optional(std::move(forced));
}

}  // namespace coreai::grammar
