// Follows one text through a grammar, token by token, and says what may come next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "coreai/grammar/compiled_grammar.h"

namespace coreai::grammar {

enum class MaskKind {
  kTerminated,     // an end token was accepted: nothing may follow, the mask is empty
  kUnconstrained,  // every token of the vocabulary with a text may come, and the end
  kConstrained,
};

// One per text; copying it is `fork`. Not safe to use from several threads at once; matchers of one grammar are
// independent of each other. Functions throw UnsupportedError when the grammar's work budget is used up; the matcher
// then is as it was.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(CompiledGrammar grammar);
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&);
  GrammarMatcher& operator=(const GrammarMatcher&);
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  // False, and nothing changed, where the token may not come. An end token may come where the text may end; special
  // tokens only where the grammar names them. An end token that the grammar names is one of its terminals: it ends the
  // text only where nothing can follow it. Throws InvalidArgumentError: no such id.
  bool accept_token(std::int32_t id);
  // The same for text that is not cut into tokens; one step for rollback. An empty text is a step as well.
  bool accept_bytes(std::string_view bytes);

  // Writes bitmask_words(vocab_size) words. Throws InvalidArgumentError: fewer words are given; more are left alone.
  MaskKind fill_next_token_bitmask(std::span<std::uint32_t> mask) const;
  // The same without a copy: a mask that other sessions may read as well.
  TokenMask next_token_mask() const;

  // Takes back the last `steps` accepted tokens or texts. Throws InvalidArgumentError: fewer were accepted.
  void rollback(std::size_t steps);
  std::size_t accepted_steps() const;
  void reset();
  // Independent of this one from here on; takes the same time however long the text is.
  GrammarMatcher fork() const { return *this; }

  // The bytes that must follow whatever comes, up to `max_bytes`; empty where there is a choice or the text may end.
  std::string find_jump_forward_string(std::size_t max_bytes = 4096) const;

  bool is_terminated() const;  // an end token was accepted
  bool can_terminate() const;  // the text may end here
  const CompiledGrammar& grammar() const { return grammar_; }

 private:
  struct Step;
  void push(std::uint32_t state, bool ended);
  std::pair<TokenMask, bool> find_mask() const;
  std::uint32_t after(std::string_view bytes) const;
  bool nothing_follows(std::uint32_t state) const;
  static void release(std::shared_ptr<Step>& step);
  CompiledGrammar grammar_;
  std::shared_ptr<Step> last_;
};

}  // namespace coreai::grammar
