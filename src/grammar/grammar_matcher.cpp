#include "coreai/grammar/grammar_matcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "coreai/base/error.h"
#include "coreai/grammar/token_bitmask.h"
#include "grammar/compiled_grammar_data.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {
namespace {

// Throws where `mask` holds other tokens than a walk from `state` token by token finds, one byte after the other.
void check_mask(Machine& machine, StateId state, const TokenizerInfo& tokenizer, std::span<const std::uint32_t> mask) {
  std::vector<std::uint32_t> expected(mask.size());
  tokenizer.trie().walk_nodes(TokenTrie::kRoot, state, [&](StateId from, const TokenTrie::Node& node, std::size_t) {
    const StateId to = machine.step(from, static_cast<std::uint8_t>(node.byte));
    if (to != kDead && node.entry != 0)
      for (const std::int32_t id : tokenizer.trie().ids(node))
        expected[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
    return to;
  });
  const auto [wrong, right] = std::ranges::mismatch(mask, expected);
  if (wrong == mask.end()) return;
  const auto id = static_cast<std::int32_t>((wrong - mask.begin()) * 32 + std::countr_zero(*wrong ^ *right));
  throw InternalError(
      fmt::format("a mask {} token {} of bytes {:02x}, which a walk byte by byte {}",
                  ((*wrong >> (id % 32)) & 1u) != 0 ? "allows" : "leaves out", id,
                  fmt::join(std::span(reinterpret_cast<const unsigned char*>(tokenizer.token_bytes(id).data()),
                                      tokenizer.token_bytes(id).size()),
                            " "),
                  ((*right >> (id % 32)) & 1u) != 0 ? "accepts" : "refuses"),
      "GrammarMatcher::next_token_mask", "report the grammar and the text accepted so far; no option avoids it");
}

}  // namespace

// The way that the text took; forks share its beginning.
struct GrammarMatcher::Step {
  std::shared_ptr<Step> previous;
  std::size_t count;  // of steps, this one included
  StateId state;
  bool ended;
};

GrammarMatcher::GrammarMatcher(CompiledGrammar grammar) : grammar_(std::move(grammar)) {
  reset();
}
GrammarMatcher::~GrammarMatcher() {
  release(last_);
}
GrammarMatcher::GrammarMatcher(const GrammarMatcher&) = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;

GrammarMatcher& GrammarMatcher::operator=(const GrammarMatcher& other) {
  if (this != &other) *this = GrammarMatcher(other);
  return *this;
}

GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&& other) noexcept {
  if (this == &other) return *this;
  release(last_);
  grammar_ = std::move(other.grammar_);
  last_ = std::move(other.last_);
  return *this;
}

// One after the other: a long way must not be freed by recursion.
void GrammarMatcher::release(std::shared_ptr<Step>& step) {
  while (step && step.use_count() == 1) step = std::exchange(step->previous, nullptr);
  step.reset();
}

void GrammarMatcher::push(StateId state, bool ended) {
  last_ = std::make_shared<Step>(Step{last_, last_->count + 1, state, ended});
}

bool GrammarMatcher::accept_token(std::int32_t id) {
  const TokenizerInfo& tokenizer = grammar_.tokenizer();
  const std::string_view bytes = tokenizer.token_bytes(id);  // checks the id
  if (last_->ended) return false;
  Machine& machine = *grammar_.data_->machine;
  const bool spelled = !bytes.empty() && !tokenizer.is_special(id);
  const StateId text = spelled ? after(bytes) : kDead, named = machine.step_token(last_->state, id);
  const StateId next = text == kDead ? named : named == kDead ? text : machine.either(text, named);
  if (next != kDead) {
    push(next, tokenizer.is_end(id) && nothing_follows(next));
    return true;
  }
  if (!tokenizer.is_end(id) || !accepts(last_->state)) return false;
  push(last_->state, true);
  return true;
}

StateId GrammarMatcher::after(std::string_view bytes) const {
  StateId state = last_->state;
  for (const char byte : bytes) {
    state = grammar_.data_->machine->step(state, static_cast<std::uint8_t>(byte));
    if (state == kDead) break;
  }
  return state;
}

bool GrammarMatcher::nothing_follows(StateId state) const {
  Machine& machine = *grammar_.data_->machine;
  std::array<StateId, 256> next;
  machine.successors(state, next);
  return accepts(state) && std::ranges::count(next, kDead) == 256 && !machine.names_tokens(state);
}

bool GrammarMatcher::accept_bytes(std::string_view bytes) {
  if (last_->ended) return false;
  const StateId state = after(bytes);
  if (state == kDead) return false;
  push(state, false);
  return true;
}

// The mask, and whether it allows all that has a text, and the end.
std::pair<TokenMask, bool> GrammarMatcher::find_mask() const {
  const TokenizerInfo& tokenizer = grammar_.tokenizer();
  const std::size_t words = bitmask_words(tokenizer.vocab_size());
  if (last_->ended) return {TokenMask(new std::uint32_t[words]()), false};
  Machine& machine = *grammar_.data_->machine;
  const StateId state = machine.mask_state(last_->state, tokenizer.longest_token());
  auto found =
      grammar_.data_->masks->find_or_make({grammar_.data_->id, state}, words, [&](std::span<std::uint32_t> mask) {
        machine.fill(state, tokenizer, mask);
        if (grammar_.data_->masks->check_is_due()) check_mask(machine, last_->state, tokenizer, mask);
        machine.fill_named_tokens(state, mask);
        if (!accepts(state)) return false;
        for (const std::int32_t id : tokenizer.end_ids())
          mask[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
        const auto every = tokenizer.every_token();
        return std::equal(every.begin(), every.end(), mask.begin(),
                          [](std::uint32_t wanted, std::uint32_t word) { return (word & wanted) == wanted; });
      });
  return {std::move(found.mask), found.everything};
}

TokenMask GrammarMatcher::next_token_mask() const {
  return find_mask().first;
}

MaskKind GrammarMatcher::fill_next_token_bitmask(std::span<std::uint32_t> mask) const {
  const std::size_t words = bitmask_words(grammar_.tokenizer().vocab_size());
  if (mask.size() < words)
    throw InvalidArgumentError(fmt::format("a mask of {} words; the vocabulary needs {}", mask.size(), words),
                               "GrammarMatcher::fill_next_token_bitmask", "give bitmask_words(vocab_size) words");
  const auto [made, everything] = find_mask();
  std::copy_n(made.get(), words, mask.begin());
  if (last_->ended) return MaskKind::kTerminated;
  return everything ? MaskKind::kUnconstrained : MaskKind::kConstrained;
}

void GrammarMatcher::rollback(std::size_t steps) {
  if (steps > last_->count)
    throw InvalidArgumentError(fmt::format("rollback by {} of {} accepted steps", steps, last_->count),
                               "GrammarMatcher::rollback");
  for (; steps > 0; --steps) last_ = std::shared_ptr<Step>(last_->previous);
}

std::size_t GrammarMatcher::accepted_steps() const {
  return last_->count;
}

void GrammarMatcher::reset() {
  release(last_);
  last_ = std::make_shared<Step>(Step{nullptr, 0, grammar_.data_->machine->start(), false});
}

std::string GrammarMatcher::find_jump_forward_string(std::size_t max_bytes) const {
  std::string out;
  if (last_->ended) return out;
  Machine& machine = *grammar_.data_->machine;
  for (StateId state = last_->state; out.size() < max_bytes && !machine.names_tokens(state);) {
    const auto byte = machine.forced_byte(state);
    if (!byte) break;
    out += static_cast<char>(*byte);
    state = machine.step(state, *byte);
  }
  return out;
}

bool GrammarMatcher::is_terminated() const {
  return last_->ended;
}
bool GrammarMatcher::can_terminate() const {
  return !last_->ended && accepts(last_->state);
}

}  // namespace coreai::grammar
