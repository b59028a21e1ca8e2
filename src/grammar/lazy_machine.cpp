#include "grammar/lazy_machine.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "grammar/text_tokens.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {
namespace {

constexpr std::size_t kWorthKeeping = 256;  // nodes to walk
constexpr int kWide = 40;                   // live bytes from which on a row is cheaper than steps

std::uint64_t packed(StateId state, std::uint8_t byte) {
  return (std::uint64_t{state} << 8) | byte;
}

std::size_t slot(std::uint64_t key, std::size_t slots) {
  return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> 40) % slots;
}

}  // namespace

LazyMachine::LazyMachine() : remembered_(std::make_unique<Remembered>()) {}

LazyMachine::~LazyMachine() {
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
    std::atomic<Row*>* rows = chunks_[chunk].load();
    if (rows == nullptr) continue;
    for (std::size_t i = 0; i < kFirstChunk << chunk; ++i) delete rows[i].load();
    delete[] rows;
  }
}

// State 0 steps nowhere, so that an empty word is no transition.
std::optional<StateId> LazyMachine::known_step(StateId state, std::uint8_t byte) const {
  const std::uint64_t key = packed(state, byte);
  const std::uint64_t word = remembered_->steps[slot(key, kSteps)].load(std::memory_order_relaxed);
  if (word >> 28 != key) return std::nullopt;
  return static_cast<StateId>(word & (kMaxPacked - 1));
}

StateId LazyMachine::step_locked(StateId state, std::uint8_t byte) {
  if (const auto known = known_step(state, byte)) return *known;
  const StateId next = find_step(state, byte);
  const std::uint64_t key = packed(state, byte);
  if (state < kMaxPacked && next < kMaxPacked)
    remembered_->steps[slot(key, kSteps)].store((key << 28) | next, std::memory_order_relaxed);
  return next;
}

StateId LazyMachine::step(StateId state, std::uint8_t byte) {
  if (const Row* known = known_row(state)) return (*known)[byte];
  if (const auto known = known_step(state, byte)) return *known;
  const std::lock_guard lock(mutex_);
  return step_locked(state, byte);
}

void LazyMachine::successors(StateId state, std::array<StateId, 256>& next) {
  if (const Row* known = known_row(state)) {
    next = *known;
    return;
  }
  const std::lock_guard lock(mutex_);
  next.fill(kDead);
  const ByteSet live = live_bytes(state);
  if (live.size() >= kWide) {
    find_row(state, next);
    return;
  }
  live.for_each([&](std::uint8_t byte) { next[byte] = step_locked(state, byte); });
}

StateId LazyMachine::mask_state(StateId state, std::size_t longest) {
  auto& place = remembered_->mask_states[slot(state, kMaskStates)];
  const std::uint64_t word = place.load(std::memory_order_relaxed);
  if (word >> 32 == state) return static_cast<StateId>(word);
  const std::lock_guard lock(mutex_);
  const StateId found = find_mask_state(state, longest);
  place.store((std::uint64_t{state} << 32) | found, std::memory_order_relaxed);
  return found;
}

// Null where there are too many.
const LazyMachine::Row* LazyMachine::make_row(StateId state) {
  if (row_count_.load(std::memory_order_relaxed) >= kMaxRows) return nullptr;
  auto made = std::make_unique<Row>();
  find_row(state, *made);

  const Place at = place(state);
  auto& slot = chunks_[at.chunk];
  std::atomic<Row*>* chunk = slot.load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = new std::atomic<Row*>[kFirstChunk << at.chunk]();
    slot.store(chunk, std::memory_order_release);
  }
  Row* const placed = made.release();
  chunk[at.index].store(placed, std::memory_order_release);
  row_count_.fetch_add(1, std::memory_order_relaxed);
  return placed;
}

const LazyMachine::Parts& LazyMachine::known_parts(StateId state) {
  const std::size_t at = state >> 1;
  if (at < parts_of_.size() && parts_of_[at] != 0) return parts_[parts_of_[at] - 1];
  if (parts_.empty()) parts_.emplace_back();
  Parts found = parts(state);
  std::uint32_t index = 0;
  if (!found.is_whole()) {
    index = static_cast<std::uint32_t>(parts_.size());
    parts_.push_back(std::move(found));
  }
  if (at >= parts_of_.size()) parts_of_.resize(std::max(at + 1, parts_of_.size() * 2));
  parts_of_[at] = index + 1;
  return parts_[index];
}

// The walk through the tokens, under the lock of the machine.
class LazyMachine::Walker {
 public:
  Walker(LazyMachine& machine, const TokenizerInfo& tokenizer, std::span<std::uint32_t> mask)
      : machine_(machine), tokenizer_(tokenizer), mask_(mask) {}

  void add_all(StateId state) { add(tokenizer_.trie(), TokenTrie::kRoot, state, nullptr); }

 private:
  // Which tokens behind a run count, and behind the run before it.
  struct Filter {
    const TokenSlice::Exits& exits;
    std::uint32_t min, max;
    const std::vector<std::int32_t>& excluded;  // ascending
    const Filter* outer;
  };
  static bool fits(const Filter* filter, std::int32_t id) {
    for (; filter != nullptr; filter = filter->outer) {
      const std::uint32_t units = filter->exits.units.find(id)->second;
      if (units < filter->min || units > filter->max) return false;
      if (std::ranges::binary_search(filter->excluded, id)) return false;
    }
    return true;
  }
  void set(std::int32_t id) { mask_[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32); }

  bool is_set(std::int32_t id) const { return (mask_[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0; }

  struct Live {
    StateId state = kDead;
    bool looked = false;
    const Row* row = nullptr;
    ByteSet bytes{};
    explicit operator bool() const { return state != kDead; }
  };

  StateId next(Live& from, std::uint8_t byte) {
    if (!from.looked) {
      from.looked = true;
      from.row = machine_.known_row(from.state);
      if (from.row == nullptr) {
        from.bytes = machine_.live_bytes(from.state);
        if (from.bytes.size() >= kWide) from.row = machine_.make_row(from.state);
      }
    }
    if (from.row != nullptr) return (*from.row)[byte];
    return from.bytes.contains(byte) ? machine_.step_locked(from.state, byte) : kDead;
  }

  // The tokens below a place whose bytes from there on `state` takes.
  void add(const TokenTrie& trie, TokenTrie::Place place, StateId state, const Filter* filter) {
    if (state == kDead) return;
    const Parts& parts = machine_.known_parts(state);
    for (const StateRun& part : parts.runs) add_run(trie, place, part, filter);
    for (const StateText& part : parts.texts) add_text(trie, place, part, filter);
    if (const StateId others = parts.is_whole() ? state : parts.others; others != kDead)
      walk<true>(trie, place, others, filter);
  }

  bool is_vocabulary(const TokenTrie& trie, TokenTrie::Place place) const {
    return &trie == &tokenizer_.trie() && place == TokenTrie::kRoot;
  }

  // The tokens of the text are looked up, or found and kept for other grammars; then those that go on behind it.
  void add_text(const TokenTrie& trie, TokenTrie::Place place, const StateText& part, const Filter* filter) {
    const std::size_t below =
        place == TokenTrie::kRoot ? trie.nodes().size() : trie.node(place).end - trie.place(trie.node(place)).node;
    const auto hash = below < kWorthKeeping ? std::nullopt : machine_.pool().content_hash(part.text);
    if (!hash) return walk_text(trie, place, part.whole, part.absorbed, filter);
    const TextTokensCache::Key key{*hash, &trie, place.node};
    const TextTokens* tokens = tokenizer_.texts().find(key);
    if (tokens == nullptr) tokens = tokenizer_.texts().keep(key, find_text(trie, place, part));
    if (tokens == nullptr) return walk_text(trie, place, part.whole, part.absorbed, filter);
    if (filter == nullptr)
      tokens->add_within(mask_);
    else
      tokens->for_each_within([&](std::int32_t id) {
        if (fits(filter, id)) set(id);
      });
    if (part.rest == kDead) return;
    if (accepts(part.alone)) walk<true>(trie, place, part.rest, filter);
    if (tokens->behind() != nullptr) add(*tokens->behind(), TokenTrie::kRoot, part.rest, filter);
  }

  TextTokens find_text(const TokenTrie& trie, TokenTrie::Place place, const StateText& part) {
    std::vector<std::uint32_t> within(mask_.size());
    std::vector<TokenTrie::Place> behind;
    Walker alone(machine_, tokenizer_, within);
    alone.left_ = part.rest == kDead ? nullptr : &behind;
    alone.walk_text(trie, place, part.alone, part.absorbed, nullptr);
    return {trie, within, behind};
  }

  void walk_text(const TokenTrie& trie, TokenTrie::Place place, StateId state, const ExpressionPool::Absorbed& absorbed,
                 const Filter* filter) {
    const auto slice = is_vocabulary(trie, place) && absorbed.max >= TokenSlice::kDense
                           ? tokenizer_.slices().find(machine_.pool(), absorbed.unit)
                           : nullptr;
    if (slice != nullptr) slice->add_within(absorbed.max, mask_);
    if (left_ == nullptr)
      walk<true>(trie, place, state, filter, slice.get());
    else
      walk<false>(trie, place, state, filter, slice.get());
    if (slice == nullptr) return;
    for (const TokenSlice::Within& token : slice->within())
      if (token.units > absorbed.max) add_token(token.id, state);
  }

  void add_token(std::int32_t id, StateId state) {
    for (const char byte : tokenizer_.token_bytes(id)) {
      state = machine_.step_locked(state, static_cast<std::uint8_t>(byte));
      if (state == kDead) return;
    }
    set(id);
  }

  // Leaves alone the subtrees in which every token lies within `done`.
  template <bool kRuns>
  void walk(const TokenTrie& trie, TokenTrie::Place place, StateId state, const Filter* filter,
            const TokenSlice* done = nullptr) {
    const auto step = [&](Live& from, const TokenTrie::Node& node, std::size_t level) -> Live {
      if (done != nullptr && !done->is_mixed(trie.place(node))) return {};
      const StateId to = next(from, static_cast<std::uint8_t>(node.byte));
      if (to == kDead) {
        if (left_ != nullptr && level > 0 && accepts(from.state)) left_->push_back(trie.place(node));
        return {};
      }
      if (node.entry != 0)
        for (const std::int32_t id : trie.ids(node))
          if (fits(filter, id)) set(id);
      if constexpr (kRuns) {
        if (trie.has_children(node) && machine_.known_parts(to).is_simple()) {
          add(trie, trie.place(node), to, filter);
          return {};
        }
      }
      return {to};
    };
    Live start{state};
    if (place != TokenTrie::kRoot) return trie.walk_nodes(place, start, step);
    (trie.top_bytes() & machine_.live_bytes(state)).for_each([&](std::uint8_t byte) {  // the root has most children
      const TokenTrie::Node& node = *trie.top(byte);
      const Live below = step(start, node, 0);
      if (below && trie.has_children(node))
        trie.walk_nodes(trie.place(node), below, [&](Live& from, const TokenTrie::Node& deeper, std::size_t level) {
          return step(from, deeper, level + 1);
        });
    });
  }

  void add_run(const TokenTrie& trie, TokenTrie::Place place, const StateRun& part, const Filter* filter) {
    const Run& run = part.run;
    ExpressionPool& pool = machine_.pool();
    const auto slice = is_vocabulary(trie, place) ? tokenizer_.slices().find(pool, run.unit)
                                                  : tokenizer_.slices().find_below(trie, place, pool, run.unit);
    if (slice == nullptr) return walk<false>(trie, place, part.whole, filter);
    std::vector<std::int32_t> excluded, set_before;
    if (run.excluded != kNothing) excluded = find_excluded(trie, place, part);
    std::ranges::copy_if(excluded, std::back_inserter(set_before), [&](std::int32_t id) { return is_set(id); });
    if (filter == nullptr) {
      slice->add_within(run.max, mask_);
    } else {
      for (const TokenSlice::Within& token : slice->within()) {
        if (token.units > run.max) break;
        if (fits(filter, token.id)) set(token.id);
      }
    }
    for (const std::int32_t id : excluded) mask_[static_cast<std::size_t>(id) / 32] &= ~(std::uint32_t{1} << (id % 32));
    for (const std::int32_t id : set_before) set(id);
    if (part.rest == kDead) return;
    if (run.min == 0 && !pool.nullable(run.excluded)) walk<true>(trie, place, part.rest, filter);
    Live rest{part.rest};
    (slice->exit_bytes() & machine_.live_bytes(part.rest)).for_each([&](std::uint8_t byte) {
      if (next(rest, byte) == kDead) return;
      const TokenSlice::Exits& exits = slice->exits(byte);
      const Filter behind{exits, run.min, run.max, excluded, filter};
      walk<true>(*exits.trie, TokenTrie::kRoot, part.rest, &behind);
    });
  }

  // The tokens that lead to nothing but what is excluded: they begin as it does, or go on behind it.
  std::vector<std::int32_t> find_excluded(const TokenTrie& trie, TokenTrie::Place place, const StateRun& part) {
    ExpressionPool& pool = machine_.pool();
    const ByteSet inside = pool.first_bytes(part.run.unit);
    const bool finite = pool.is_finite(part.run.excluded);  // then what begins as it does always goes on elsewhere too
    struct Way {
      ExprId left = kNothing;
      StateId state = kDead;
      bool looked = false;
      ByteSet bytes{};
      explicit operator bool() const { return left != kNothing; }
    };
    std::vector<std::int32_t> out;
    trie.walk_nodes(
        place, Way{part.run.excluded, part.whole},
        [&](Way& from, const TokenTrie::Node& node, std::size_t level) -> Way {
          const auto byte = static_cast<std::uint8_t>(node.byte);
          if (!from.looked) {
            from.looked = true;
            from.bytes = pool.first_bytes(from.left);
          }
          // What does not begin with a unit is neither within the run nor behind it.
          const bool behind = level > 0 && !inside.contains(byte) && pool.nullable(from.left);
          const bool goes_on = !behind && from.bytes.contains(byte);
          if (!behind && !goes_on) return {};
          const StateId state = !finite ? machine_.step_locked(from.state, byte) : goes_on ? from.state : kDead;
          if (state == kDead) {
            trie.for_each_below(node, [&](std::int32_t id, std::string_view) { out.push_back(id); });
            return {};
          }
          return {goes_on ? pool.derive(from.left, byte) : kNothing, state};
        });
    std::ranges::sort(out);
    return out;
  }

  LazyMachine& machine_;
  const TokenizerInfo& tokenizer_;
  std::span<std::uint32_t> mask_;
  std::vector<TokenTrie::Place>* left_ = nullptr;  // of a text alone: the nodes at which tokens leave it
};

void LazyMachine::fill(StateId state, const TokenizerInfo& tokenizer, std::span<std::uint32_t> mask) {
  const std::lock_guard lock(mutex_);
  Walker(*this, tokenizer, mask).add_all(state);
}

std::optional<std::uint8_t> LazyMachine::forced_byte(StateId state) {
  if (accepts(state)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const ByteSet live = live_bytes(state);
  std::optional<std::uint8_t> only;
  for (int byte = 0; byte < 256; ++byte) {
    const auto next = static_cast<std::uint8_t>(byte);
    if (!live.contains(next) || step_locked(state, next) == kDead) continue;
    if (only) return std::nullopt;
    only = next;
  }
  return only;
}

std::size_t LazyMachine::row_bytes() const {
  std::size_t bytes = row_count_.load() * sizeof(Row) + sizeof(Remembered) + parts_of_.capacity() * 4 +
                      parts_.size() * (sizeof(Parts) + sizeof(StateRun));
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk)
    if (chunks_[chunk].load() != nullptr) bytes += (kFirstChunk << chunk) * sizeof(void*);
  return bytes;
}

}  // namespace coreai::grammar
