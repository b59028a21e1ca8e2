#include "grammar/token_slice.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <string_view>

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

bool TokenSlice::find(ExpressionPool& pool, ExprId unit, TokenTrie::Place below) {
  UnitStates states(pool, unit);
  struct Way {
    std::uint32_t state = kNowhere, units = 0;
    explicit operator bool() const { return state != kNowhere; }
  };
  trie_.walk_nodes(below, Way{0}, [&](Way& from, const TokenTrie::Node& node, std::size_t) -> Way {
    if (!states.fits) return {};
    const std::uint32_t state = states.step(from.state, static_cast<std::uint8_t>(node.byte));
    if (state == kNowhere) {
      if (from.state == 0 && from.units > 0) {
        exits_[static_cast<std::uint8_t>(node.byte)].nodes.push_back({trie_.place(node), from.units});
        exit_bytes_.insert(static_cast<std::uint8_t>(node.byte));
      }
      return {};
    }
    const Way at{state, from.units + (state == 0 ? 1 : 0)};
    if (node.entry != 0)
      for (const std::int32_t id : trie_.ids(node)) within_.push_back({at.units + (state == 0 ? 0 : 1), id});
    return at;
  });
  return states.fits;
}

std::shared_ptr<const TokenSlice> TokenSlice::make(const TokenTrie& trie, TokenTrie::Place below,
                                                   std::size_t vocab_size, ExpressionPool& pool, ExprId unit,
                                                   bool dense) {
  std::shared_ptr<TokenSlice> made(new TokenSlice(trie));
  if (!made->find(pool, unit, below)) return nullptr;
  if (dense) made->make_dense(vocab_size);
  const auto fewer = [](const Within& a, const Within& b) { return a.units < b.units; };
  std::stable_sort(made->within_.begin(), made->within_.end(), fewer);
  return made;
}

void TokenSlice::make_dense(std::size_t vocab_size) {
  words_ = (vocab_size + 31) / 32;
  dense_.resize((kDense + 2) * words_);
  for (const Within& token : within_) {
    const std::uint32_t row = std::min(token.units, kDense + 1);
    dense_[row * words_ + static_cast<std::size_t>(token.id) / 32] |= std::uint32_t{1} << (token.id % 32);
  }
  for (std::size_t i = words_; i < dense_.size(); ++i) dense_[i] |= dense_[i - words_];
  std::erase_if(within_, [](const Within& token) { return token.units <= kDense; });

  const std::uint32_t* const all = dense_.data() + (kDense + 1) * words_;
  const auto is_within = [&](std::int32_t id) {
    return (all[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
  };
  // A node stands before those below it: from the back its children are known.
  const auto nodes = trie_.nodes();
  mixed_.resize(nodes.size());
  for (std::size_t i = nodes.size(); i-- > 0;) {
    bool mixed = nodes[i].entry != 0 && !std::ranges::all_of(trie_.ids(nodes[i]), is_within);
    for (std::uint32_t child = static_cast<std::uint32_t>(i) + 1; !mixed && child < nodes[i].end;
         child = nodes[child].end)
      mixed = mixed_[child];
    mixed_[i] = mixed;
  }
}

const TokenSlice::Exits& TokenSlice::exits(std::uint8_t byte) const {
  const ExitsOfByte& of = exits_.at(byte);
  std::call_once(of.once, [&] {
    std::deque<std::string> kept;  // addresses stay
    std::vector<TokenTrie::Token> texts;
    for (const auto& [place, units] : of.nodes)
      trie_.for_each_below(trie_.node(place), [&, before = units](std::int32_t id, std::string_view text) {
        texts.push_back({kept.emplace_back(text), id});
        of.found.units.emplace(id, before);
      });
    of.found.trie = std::make_unique<const TokenTrie>(std::move(texts));
  });
  return of.found;
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

std::size_t TokenSlice::memory_bytes() const {
  std::size_t bytes = sizeof(*this) + dense_.capacity() * 4 + within_.capacity() * sizeof(Within) + mixed_.size() / 8;
  for (const auto& [byte, exits] : exits_)  // their tries, made later, are of the same order
    bytes += exits.nodes.capacity() * (sizeof(exits.nodes[0]) + sizeof(TokenTrie::Node));
  return bytes;
}

std::shared_ptr<const TokenSlice> SliceCache::find(ExpressionPool& pool, ExprId unit, bool at_once) {
  const auto key = pool.content_hash(unit);
  if (!key) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!entries_.contains(*key) && entries_.size() >= kMaxUnits) return nullptr;
  Entry& entry = entries_[*key];
  if (!entry.tried && (at_once || ++entry.requests >= kWorthwhile) && slices_ < kMaxSlices) {
    // It may throw where the budget of this grammar ends; others must not do without for that.
    entry.slice = TokenSlice::make(trie_, TokenTrie::kRoot, vocab_size_, pool, unit, true);
    entry.tried = true;
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
