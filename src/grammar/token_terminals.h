// Tokens as terminals: a grammar names them by id or by their text in the vocabulary, and only the token itself
// matches, not its bytes. Inside an expression token `id` is the byte 0xff, which is in no UTF-8 text, and the id in
// three bytes, highest first.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "coreai/grammar/tokenizer_info.h"
#include "grammar/expression.h"

namespace coreai::grammar {

constexpr std::uint8_t kTokenMark = 0xff;
constexpr std::size_t kTokenBytes = 4;

// Tokens of a vocabulary.
class TokenSet {
 public:
  explicit TokenSet(const TokenizerInfo& tokenizer) : tokenizer_(&tokenizer), chosen_(tokenizer.real_tokens().size()) {}

  // Throws InvalidArgumentError: no such token, or one that has neither a text nor a meaning.
  void insert(std::int64_t id);
  // Those of a range that are more than padding. Throws InvalidArgumentError: it leaves the vocabulary.
  void insert(std::int64_t first, std::int64_t last);
  // Special tokens with this text, or ordinary ones where there are none. Throws InvalidArgumentError: no such token.
  void insert(std::string_view text);
  void insert_all();  // but end tokens
  void insert_all(const TokenSet& other);
  // All other tokens, special ones too, but neither padding nor end tokens: those must be named.
  TokenSet others() const;

  bool contains(const TokenSet& other) const;

  ExprId expression(ExpressionPool& pool) const;

 private:
  const TokenizerInfo* tokenizer_;
  std::vector<std::uint32_t> chosen_;  // one bit per token, as in a mask
};

// One of `<[12]>`, `<[1-5,9]>`, `<[^1,2]>`, `<[*]>` and `<text>`, angle brackets included. Throws InvalidArgumentError
// as TokenSet does, or where it reads like none of them.
TokenSet parse_token_terminal(const TokenizerInfo& tokenizer, std::string_view written);

// What follows token `id`.
ExprId after_token(ExpressionPool& pool, ExprId e, std::int32_t id);
// Sets the bits of all tokens that `e` may begin with.
void set_token_bits(ExpressionPool& pool, ExprId e, std::span<std::uint32_t> mask);

}  // namespace coreai::grammar
