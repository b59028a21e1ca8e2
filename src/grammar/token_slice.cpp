#include "grammar/token_slice.h"

#include <algorithm>
#include <array>
#include <string>

namespace coreai::grammar {
namespace {

constexpr std::uint32_t kNowhere = UINT32_MAX;
constexpr std::size_t kMaxUnitStates = 4096;

// The derivatives of a unit; state 0 stands before a unit, and a unit that ends leads back to it.
class UnitStates {
 public:
  UnitStates(ExpressionPool& pool, ExprId unit) : pool_(pool) { number(unit); }

  // kNowhere where no unit goes on; `fits` becomes false where the unit is no prefix code or has too many states.
  std::uint32_t step(std::uint32_t state, std::uint8_t byte) {
    if (!known_[state]) find(state);
    return rows_[state][byte];
  }
  bool fits = true;

 private:
  std::uint32_t number(ExprId e) {
    const auto [at, added] = numbers_.try_emplace(e, static_cast<std::uint32_t>(rows_.size()));
    if (added) {
      rows_.emplace_back();
      known_.push_back(false);
      expressions_.push_back(e);
    }
    return at->second;
  }
  void find(std::uint32_t state) {
    const ByteClasses split = pool_.classes(expressions_[state]);
    std::array<std::uint32_t, 256> next{};
    for (std::size_t i = 0; i < split.representatives.size(); ++i) {
      const ExprId e = pool_.derive(expressions_[state], split.representatives[i]);
      fits = fits && (!pool_.nullable(e) || e == kEmptyString) && rows_.size() < kMaxUnitStates;
      next[i] = e == kEmptyString ? 0 : !fits || pool_.is_nothing(e) ? kNowhere : number(e);
    }
    for (std::size_t byte = 0; byte < 256; ++byte) rows_[state][byte] = next[split.class_of[byte]];
    known_[state] = true;
  }

  ExpressionPool& pool_;
  std::vector<std::array<std::uint32_t, 256>> rows_;
  std::vector<bool> known_;
  std::vector<ExprId> expressions_;
  std::unordered_map<ExprId, std::uint32_t> numbers_;
};

}  // namespace

bool TokenSlice::find(const TokenTrie& trie, TokenTrie::Place below, ExpressionPool& pool, ExprId unit, Found& found) {
  UnitStates states(pool, unit);
  struct Way {
    std::uint32_t state = kNowhere, units = 0;
    explicit operator bool() const { return state != kNowhere; }
  };
  const auto add_exits = [&](const Way& from, const TokenTrie::Node& node) {
    trie.for_each_below(node, [&](std::int32_t id, std::string_view rest) {
      found.exits.push_back({std::string(rest), id, from.units});
    });
  };
  trie.walk_nodes(below, Way{0}, [&](Way& from, const TokenTrie::Node& node, std::size_t) -> Way {
    if (!states.fits) return {};
    const std::uint32_t state = states.step(from.state, static_cast<std::uint8_t>(node.byte));
    if (state == kNowhere) {
      if (from.state == 0 && from.units > 0) add_exits(from, node);
      return {};
    }
    const Way at{state, from.units + (state == 0 ? 1 : 0)};
    if (node.entry != 0)
      for (const std::int32_t id : trie.ids(node)) found.within.push_back({at.units + (state == 0 ? 0 : 1), id});
    return at;
  });
  return states.fits;
}

TokenSlice::TokenSlice(Found found, std::size_t vocab_size, bool dense)
    : words_((vocab_size + 31) / 32), within_(std::move(found.within)), exits_([&] {
        std::vector<TokenTrie::Token> texts;
        texts.reserve(found.exits.size());
        for (const Exit& exit : found.exits) texts.push_back({exit.rest, exit.id});
        return texts;
      }()) {
  std::stable_sort(within_.begin(), within_.end(), [](const Within& a, const Within& b) { return a.units < b.units; });
  for (const Exit& exit : found.exits) units_.emplace(exit.id, exit.units);
  if (!dense) return;
  dense_.resize((kDense + 2) * words_);
  const auto set = [&](std::uint32_t row, std::int32_t id) {
    dense_[row * words_ + static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
  };
  for (const Within& token : within_) {
    for (std::uint32_t row = token.units; row <= kDense; ++row) set(row, token.id);
    set(kDense + 1, token.id);
  }
  std::erase_if(within_, [](const Within& token) { return token.units <= kDense; });
}

std::shared_ptr<const TokenSlice> TokenSlice::make(const TokenTrie& trie, TokenTrie::Place below,
                                                   std::size_t vocab_size, ExpressionPool& pool, ExprId unit,
                                                   bool dense) {
  Found found;
  if (!find(trie, below, pool, unit, found)) return nullptr;
  return std::shared_ptr<const TokenSlice>(new TokenSlice(std::move(found), vocab_size, dense));
}

void TokenSlice::add_within(std::uint32_t max, std::span<std::uint32_t> mask) const {
  const bool all = within_.empty() || max >= within_.back().units;
  if (!dense_.empty()) {
    const std::uint32_t* row = dense_.data() + (all && max > kDense ? kDense + 1 : std::min(max, kDense)) * words_;
    for (std::size_t word = 0; word < words_; ++word) mask[word] |= row[word];
    if (all) return;
  }
  for (const Within& token : within_) {
    if (token.units > max) break;
    mask[static_cast<std::size_t>(token.id) / 32] |= std::uint32_t{1} << (token.id % 32);
  }
}

std::uint32_t TokenSlice::units_before_exit(std::int32_t id) const {
  return units_.at(id);
}

std::size_t TokenSlice::memory_bytes() const {
  return dense_.capacity() * 4 + within_.capacity() * sizeof(Within) + units_.size() * 24 + exits_.memory_bytes();
}

std::shared_ptr<const TokenSlice> SliceCache::find(ExpressionPool& pool, ExprId unit, bool at_once) {
  const auto key = pool.content_hash(unit);
  if (!key) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!entries_.contains(*key) && entries_.size() >= kMaxUnits) return nullptr;
  Entry& entry = entries_[*key];
  if (!entry.tried && (at_once || ++entry.requests >= kWorthwhile) && slices_ < kMaxSlices) {
    entry.tried = true;
    entry.slice = TokenSlice::make(trie_, TokenTrie::kRoot, vocab_size_, pool, unit, true);
    slices_ += entry.slice != nullptr;
  }
  return entry.slice;
}

std::shared_ptr<const TokenSlice> SliceCache::find_below(const TokenTrie& trie, TokenTrie::Place place,
                                                         ExpressionPool& pool, ExprId unit) {
  const auto key = pool.content_hash(unit);
  if (!key) return nullptr;
  const std::lock_guard lock(mutex_);
  const Below wanted{*key, &trie, place.node};
  if (const auto known = below_.find(wanted); known != below_.end()) return known->second;
  const auto whole = entries_.find(*key);
  if (whole == entries_.end() || whole->second.slice == nullptr || below_.size() >= kMaxBelow) return nullptr;
  return below_.emplace(wanted, TokenSlice::make(trie, place, vocab_size_, pool, unit, false)).first->second;
}

std::size_t SliceCache::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = entries_.size() * sizeof(Entry);
  for (const auto& [key, entry] : entries_)
    if (entry.slice) bytes += entry.slice->memory_bytes();
  for (const auto& [key, slice] : below_)
    if (slice) bytes += slice->memory_bytes();
  return bytes;
}

}  // namespace coreai::grammar
