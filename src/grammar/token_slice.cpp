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

bool TokenSlice::find(const TokenTrie& trie, ExpressionPool& pool, ExprId unit, Found& found) {
  UnitStates states(pool, unit);
  struct Place {
    std::uint32_t state, units, depth;
  };
  std::vector<Place> path(trie.depth() + 1);
  std::vector<std::uint32_t> ends(trie.depth() + 1);
  const auto nodes = trie.nodes();
  ends[0] = static_cast<std::uint32_t>(nodes.size());
  std::size_t level = 0;
  for (std::uint32_t i = 0; i < nodes.size() && states.fits;) {
    while (ends[level] <= i) --level;
    const TokenTrie::Node& node = nodes[i];
    const Place from = path[level];
    const std::uint32_t state = states.step(from.state, static_cast<std::uint8_t>(node.byte));
    if (state == kNowhere) {
      if (from.state == 0 && from.units > 0)
        for (; i < node.end; ++i)
          if (nodes[i].entry != 0)
            for (const std::int32_t id : trie.ids(nodes[i])) found.exits.push_back({id, from.units, from.depth});
      i = node.end;
      continue;
    }
    const Place at{state, from.units + (state == 0 ? 1 : 0), from.depth + 1};
    if (node.entry != 0)
      for (const std::int32_t id : trie.ids(node)) found.within.push_back({at.units + (state == 0 ? 0 : 1), id});
    if (++i == node.end) continue;
    path[++level] = at;
    ends[level] = node.end;
  }
  return states.fits;
}

TokenSlice::TokenSlice(const TokenTexts& tokens, Found found)
    : words_((tokens.count + 31) / 32), units_(tokens.count), exits_(exit_texts(tokens, found.exits)) {
  std::stable_sort(found.within.begin(), found.within.end(),
                   [](const Within& a, const Within& b) { return a.units < b.units; });
  dense_.resize((kDense + 2) * words_);
  const auto set = [&](std::uint32_t row, std::int32_t id) {
    dense_[row * words_ + static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
  };
  for (const Within& token : found.within) {
    for (std::uint32_t row = token.units; row <= kDense; ++row) set(row, token.id);
    set(kDense + 1, token.id);
    if (token.units > kDense) longer_.push_back(token);
  }
  for (const Exit& exit : found.exits)
    units_[static_cast<std::size_t>(exit.id)] = static_cast<std::uint16_t>(std::min(exit.units, 65535u));
}

std::vector<TokenTrie::Token> TokenSlice::exit_texts(const TokenTexts& tokens, const std::vector<Exit>& exits) {
  std::vector<TokenTrie::Token> out;
  out.reserve(exits.size());
  for (const Exit& exit : exits) out.push_back({tokens.text(exit.id).substr(exit.depth), exit.id});
  return out;
}

std::shared_ptr<const TokenSlice> TokenSlice::make(const TokenTrie& trie, const TokenTexts& tokens,
                                                   ExpressionPool& pool, ExprId unit) {
  Found found;
  if (!find(trie, pool, unit, found)) return nullptr;
  return std::shared_ptr<const TokenSlice>(new TokenSlice(tokens, std::move(found)));
}

void TokenSlice::add_within(std::uint32_t max, std::span<std::uint32_t> mask) const {
  const bool all = longer_.empty() ? max >= kDense : max >= longer_.back().units;
  const std::uint32_t* row = dense_.data() + (all ? kDense + 1 : std::min(max, kDense)) * words_;
  for (std::size_t word = 0; word < words_; ++word) mask[word] |= row[word];
  if (all || max <= kDense) return;
  for (const Within& token : longer_) {
    if (token.units > max) break;
    mask[static_cast<std::size_t>(token.id) / 32] |= std::uint32_t{1} << (token.id % 32);
  }
}

std::size_t TokenSlice::memory_bytes() const {
  return dense_.capacity() * 4 + longer_.capacity() * sizeof(Within) + units_.capacity() * 2 + exits_.memory_bytes();
}

std::shared_ptr<const TokenSlice> SliceCache::find(ExpressionPool& pool, ExprId unit, bool at_once) {
  const auto key = pool.content_hash(unit);
  if (!key) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!entries_.contains(*key) && entries_.size() >= kMaxUnits) return nullptr;
  Entry& entry = entries_[*key];
  if (!entry.tried && (at_once || ++entry.requests >= kWorthwhile) && slices_ < kMaxSlices) {
    entry.tried = true;
    entry.slice = TokenSlice::make(trie_, tokens_, pool, unit);
    slices_ += entry.slice != nullptr;
  }
  return entry.slice;
}

std::size_t SliceCache::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = entries_.size() * sizeof(Entry);
  for (const auto& [key, entry] : entries_)
    if (entry.slice) bytes += entry.slice->memory_bytes();
  return bytes;
}

}  // namespace coreai::grammar
