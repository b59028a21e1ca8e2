// Masks of all grammars of a compiler, by grammar and state, within a bound of bytes; the longest unused go first.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/machine.h"

namespace coreai::grammar {

// Safe to use from several threads at once.
class MaskCache {
 public:
  struct Key {
    std::uint64_t grammar;
    StateId state;
    bool operator==(const Key&) const = default;
  };

  // Every `check_every`-th mask is to be checked; 0: none.
  explicit MaskCache(std::size_t max_bytes, std::uint32_t check_every = 0)
      : max_bytes_(max_bytes), check_every_(check_every) {}

  struct Made {
    TokenMask mask;
    bool everything = false;  // what `make` returned
  };
  // The mask of `key`, else what `make` writes into `words` cleared words. Two threads may make the same mask at once.
  template <typename Make>
  Made find_or_make(const Key& key, std::size_t words, Make&& make) {
    if (auto known = find(key)) return *std::move(known);
    const std::shared_ptr<std::uint32_t[]> mask(new std::uint32_t[words]());
    const bool everything = make(std::span(mask.get(), words));
    return keep(key, {mask, everything}, words * sizeof(std::uint32_t));
  }
  // Asked once for each mask that is made.
  bool check_is_due() { return check_every_ != 0 && (made_.fetch_add(1) + 1) % check_every_ == 0; }
  void forget_grammar(std::uint64_t grammar);
  void clear();
  std::size_t memory_bytes() const;

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>((key.grammar * 0x9e3779b97f4a7c15u) ^ (key.state * 0xff51afd7ed558ccdu));
    }
  };
  struct Entry {
    Made made;
    std::size_t bytes;
    std::list<Key>::iterator used;  // in order_
  };
  std::optional<Made> find(const Key& key);
  Made keep(const Key& key, Made made, std::size_t bytes);  // the first one stays
  void drop_oldest();

  std::size_t max_bytes_, bytes_ = 0;
  std::uint32_t check_every_;
  std::atomic<std::uint64_t> made_ = 0;
  mutable std::mutex mutex_;
  std::list<Key> order_;  // last used first
  std::unordered_map<Key, Entry, Hash> entries_;
};

}  // namespace coreai::grammar
