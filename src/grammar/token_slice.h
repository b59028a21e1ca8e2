// The tokens that a repetition of one unit takes, such as the characters of a JSON string: found once per vocabulary,
// so that a mask of a long string is a copy and a short walk.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/expression.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {

// Of the tokens below one node of a trie, from that node on.
class TokenSlice {
 public:
  // Null where `unit` is no prefix code on the way of some token. `dense`: to be added whole, in few steps.
  static std::shared_ptr<const TokenSlice> make(const TokenTrie& trie, TokenTrie::Place below, std::size_t vocab_size,
                                                ExpressionPool& pool, ExprId unit, bool dense);

  struct Within {
    std::uint32_t units;
    std::int32_t id;
  };
  // The tokens that lie within some units, fewest first; one that the token only begins counts. Dense: long ones only.
  std::span<const Within> within() const { return within_; }
  // Sets the bits of those within `max` units.
  void add_within(std::uint32_t max, std::span<std::uint32_t> mask) const;
  // What is left of the tokens that go on behind at least one unit with a byte that begins none.
  const TokenTrie& exits() const { return exits_; }
  std::uint32_t units_before_exit(std::int32_t id) const;
  std::size_t memory_bytes() const;

 private:
  static constexpr std::uint32_t kDense = 12;  // longer tokens are few
  struct Exit {
    std::string rest;
    std::int32_t id;
    std::uint32_t units;
  };
  struct Found {
    std::vector<Within> within;
    std::vector<Exit> exits;
  };
  TokenSlice(Found found, std::size_t vocab_size, bool dense);
  static bool find(const TokenTrie& trie, TokenTrie::Place below, ExpressionPool& pool, ExprId unit, Found& found);

  std::size_t words_;
  std::vector<Within> within_;
  std::vector<std::uint32_t> dense_;  // row k: the tokens within k units; the last row: all
  std::unordered_map<std::int32_t, std::uint32_t> units_;
  TokenTrie exits_;
};

// Slices of one vocabulary by what their units say, whatever the grammar. Safe to use from several threads at once.
class SliceCache {
 public:
  // `trie` outlives it.
  SliceCache(const TokenTrie& trie, std::size_t vocab_size) : trie_(trie), vocab_size_(vocab_size) {}

  // Of the whole vocabulary. Null where the unit is no prefix code, holds rules, or was not asked for often enough to
  // be worth the search.
  std::shared_ptr<const TokenSlice> find(ExpressionPool& pool, ExprId unit, bool at_once = false);
  // Below a node of the vocabulary's trie or of the exits of a slice; null where that of the whole is.
  std::shared_ptr<const TokenSlice> find_below(const TokenTrie& trie, TokenTrie::Place place, ExpressionPool& pool,
                                               ExprId unit);
  std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t kMaxSlices = 64, kMaxUnits = 4096, kMaxBelow = 8192;
  static constexpr std::uint32_t kWorthwhile = 3;  // requests
  struct Entry {
    std::uint32_t requests = 0;
    bool tried = false;
    std::shared_ptr<const TokenSlice> slice;
  };
  struct Below {
    ContentHash unit;
    const TokenTrie* trie;
    std::uint32_t node;
    bool operator==(const Below&) const = default;
    struct Hash {
      std::size_t operator()(const Below& of) const {
        return static_cast<std::size_t>((of.unit.low ^ of.node) * 0x9e3779b97f4a7c15u) ^
               std::hash<const TokenTrie*>()(of.trie);
      }
    };
  };
  const TokenTrie& trie_;
  std::size_t vocab_size_;
  std::size_t slices_ = 0;
  mutable std::mutex mutex_;
  std::unordered_map<ContentHash, Entry, ContentHash::Hash> entries_;
  std::unordered_map<Below, std::shared_ptr<const TokenSlice>, Below::Hash> below_;
};

}  // namespace coreai::grammar
