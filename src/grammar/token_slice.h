// The tokens that a repetition of one unit takes, such as the characters of a JSON string: found once per vocabulary,
// so that a mask of a long string is a copy and a short walk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/expression.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {

// Of the tokens below one node of a trie, from that node on. Safe to use from several threads at once.
class TokenSlice {
 public:
  // Null where `unit` is no prefix code on the way of some token. `dense`: of a whole vocabulary, to be added in few
  // steps. `trie` outlives it.
  static std::shared_ptr<const TokenSlice> make(const TokenTrie& trie, TokenTrie::Place below, std::size_t vocab_size,
                                                ExpressionPool& pool, ExprId unit, bool dense);

  struct Within {
    std::uint32_t units;
    std::int32_t id;
  };
  // The tokens that lie within some units, fewest first; one that the token only begins counts. Dense: those of more
  // than kDense.
  std::span<const Within> within() const { return within_; }
  static constexpr std::uint32_t kDense = 12;
  // Sets the bits of those within `max` units.
  void add_within(std::uint32_t max, std::span<std::uint32_t> mask) const;
  // Whether a token at the node or below is not within any number of units. Dense ones only.
  bool is_mixed(TokenTrie::Place place) const { return mixed_[place.node]; }

  // What is left of the tokens that go on behind at least one unit with `byte`, where it begins none.
  struct Exits {
    std::unique_ptr<const TokenTrie> trie;
    std::unordered_map<std::int32_t, std::uint32_t> units;  // before the exit, by id
  };
  const Exits& exits(std::uint8_t byte) const;  // one of exit_bytes()
  const ByteSet& exit_bytes() const { return exit_bytes_; }
  std::size_t memory_bytes() const;

 private:
  struct ExitsOfByte {
    std::vector<std::pair<TokenTrie::Place, std::uint32_t>> nodes;  // with the units before them
    mutable std::once_flag once;
    mutable Exits found;
  };
  explicit TokenSlice(const TokenTrie& trie) : trie_(trie) {}
  bool find(ExpressionPool& pool, ExprId unit, TokenTrie::Place below);
  void make_dense(std::size_t vocab_size);

  const TokenTrie& trie_;
  std::size_t words_ = 0;
  std::vector<Within> within_;
  std::vector<std::uint32_t> dense_;  // row k: the tokens within k units; the last row: all
  std::vector<bool> mixed_;
  std::map<std::uint8_t, ExitsOfByte> exits_;  // few bytes
  ByteSet exit_bytes_;
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
  static constexpr std::uint32_t kWorthwhile = 2;  // requests
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
