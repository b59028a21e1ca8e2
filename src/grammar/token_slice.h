// The tokens that a repetition of one unit takes, such as the characters of a JSON string: found once per vocabulary,
// so that a mask of a long string is a copy and a short walk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/expression.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {

// The texts of a vocabulary's `count` tokens.
struct TokenTexts {
  std::size_t count;
  std::function<std::string_view(std::int32_t)> text;
};

class TokenSlice {
 public:
  // Null where `unit` is no prefix code on the way of some token.
  static std::shared_ptr<const TokenSlice> make(const TokenTrie& trie, const TokenTexts& tokens, ExpressionPool& pool,
                                                ExprId unit);

  // Sets the bits of the tokens that lie within `max` units; one that the token only begins counts.
  void add_within(std::uint32_t max, std::span<std::uint32_t> mask) const;
  // What is left of the tokens that go on behind at least one unit with a byte that begins none.
  const TokenTrie& exits() const { return exits_; }
  std::uint32_t units_before_exit(std::int32_t id) const { return units_[static_cast<std::size_t>(id)]; }
  std::size_t memory_bytes() const;

 private:
  static constexpr std::uint32_t kDense = 12;  // longer tokens are few
  struct Within {
    std::uint32_t units;
    std::int32_t id;
  };
  struct Exit {
    std::int32_t id;
    std::uint32_t units, depth;  // bytes of the token that the units take
  };
  struct Found {
    std::vector<Within> within;
    std::vector<Exit> exits;
  };
  TokenSlice(const TokenTexts& tokens, Found found);
  static std::vector<TokenTrie::Token> exit_texts(const TokenTexts& tokens, const std::vector<Exit>& exits);
  static bool find(const TokenTrie& trie, ExpressionPool& pool, ExprId unit, Found& found);

  std::size_t words_;
  std::vector<std::uint32_t> dense_;  // row k: the tokens within k units; the last row: all
  std::vector<Within> longer_;        // than kDense units, ascending
  std::vector<std::uint16_t> units_;
  TokenTrie exits_;
};

// Slices of one vocabulary by what their units say, whatever the grammar. Safe to use from several threads at once.
class SliceCache {
 public:
  // Both outlive it.
  SliceCache(const TokenTrie& trie, TokenTexts tokens) : trie_(trie), tokens_(std::move(tokens)) {}

  // Null where the unit is no prefix code, holds rules, or was not asked for often enough to be worth the search.
  std::shared_ptr<const TokenSlice> find(ExpressionPool& pool, ExprId unit, bool at_once = false);
  std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t kMaxSlices = 64, kMaxUnits = 4096;
  static constexpr std::uint32_t kWorthwhile = 3;  // requests
  struct Entry {
    std::uint32_t requests = 0;
    bool tried = false;
    std::shared_ptr<const TokenSlice> slice;
  };
  const TokenTrie& trie_;
  TokenTexts tokens_;
  std::size_t slices_ = 0;
  mutable std::mutex mutex_;
  std::unordered_map<ContentHash, Entry, ContentHash::Hash> entries_;
};

}  // namespace coreai::grammar
