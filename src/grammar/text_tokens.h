// The tokens of one text of a grammar, such as the rest of an e-mail address in its quotes, whatever follows it: found
// once per vocabulary and then the same for every grammar that holds the text.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/expression.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {

// Immutable; of the tokens below one node of a trie, from that node on.
class TextTokens {
 public:
  // `within`: the bits of the tokens that the text goes on behind, or ends with. `behind`: where others leave it, after
  // at least one byte.
  TextTokens(const TokenTrie& trie, std::span<const std::uint32_t> within, std::span<const TokenTrie::Place> behind);

  void add_within(std::span<std::uint32_t> mask) const;
  template <typename Visit>
  void for_each_within(Visit&& visit) const {
    for (const auto& [word, bits] : within_)
      for (std::uint32_t left = bits; left != 0; left &= left - 1)
        visit(static_cast<std::int32_t>(word * 32 + static_cast<std::uint32_t>(std::countr_zero(left))));
  }
  // What is left of the tokens that the text ends in; null where there are none.
  const TokenTrie* behind() const { return behind_.get(); }
  std::size_t memory_bytes() const;

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> within_;  // words that are not 0, by their index
  std::unique_ptr<const TokenTrie> behind_;
};

// Those of one vocabulary by what the text says, within a bound of bytes. Safe to use from several threads at once.
class TextTokensCache {
 public:
  struct Key {
    ContentHash text;
    const TokenTrie* trie;  // of the vocabulary, or of what is behind one of its slices or texts
    std::uint32_t node;
    bool operator==(const Key&) const = default;
  };
  // Null where it is not known.
  const TextTokens* find(const Key& key) const;
  // Keeps it as long as the cache lives; null where the bytes are used up. Of two for one key the first stays.
  const TextTokens* keep(const Key& key, TextTokens&& made);
  std::size_t memory_bytes() const;

 private:
  static constexpr std::size_t kMaxBytes = std::size_t{32} << 20;
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>((key.text.low ^ key.node) * 0x9e3779b97f4a7c15u) ^
             std::hash<const TokenTrie*>()(key.trie);
    }
  };
  mutable std::mutex mutex_;
  std::unordered_map<Key, std::unique_ptr<const TextTokens>, Hash> kept_;
  std::size_t bytes_ = 0;
};

}  // namespace coreai::grammar
