#include "grammar/lazy_machine.h"

#include <memory>
#include <utility>
#include <vector>

#include "grammar/token_trie.h"

namespace coreai::grammar {
namespace {

constexpr int kWide = 20;  // live bytes from which on a row is cheaper than steps

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

// The walk through the tokens, under the lock of the machine.
class LazyMachine::Walker {
 public:
  Walker(LazyMachine& machine, const TokenizerInfo& tokenizer, std::span<std::uint32_t> mask)
      : machine_(machine), tokenizer_(tokenizer), mask_(mask) {}

  void add_state(StateId state) {
    if (state == kDead) return;
    const Parts parts = machine_.parts(state);
    for (const StateRun& part : parts.runs)  // those that take bits away come first
      if (part.run.excluded != kNothing) add_apart(part);
    for (const StateRun& part : parts.runs)
      if (part.run.excluded == kNothing) add_run(part);
    walk(tokenizer_.trie(), parts.others);
  }

 private:
  struct Live {
    StateId state = kDead;
    bool looked = false;
    const Row* row = nullptr;
    ByteSet bytes{};
    explicit operator bool() const { return state != kDead; }
  };

  Live next(Live& from, std::uint8_t byte) {
    if (!from.looked) {
      from.looked = true;
      from.row = machine_.known_row(from.state);
      if (from.row == nullptr) {
        from.bytes = machine_.live_bytes(from.state);
        if (from.bytes.size() >= kWide) from.row = machine_.make_row(from.state);
      }
    }
    if (from.row != nullptr) return {(*from.row)[byte]};
    return {from.bytes.contains(byte) ? machine_.step_locked(from.state, byte) : kDead};
  }

  void walk(const TokenTrie& trie, StateId state) {
    walk(trie, state, [](std::int32_t) { return true; });
  }

  template <typename Fits>
  void walk(const TokenTrie& trie, StateId state, Fits&& fits) {
    if (state == kDead) return;
    trie.walk(
        Live{state}, [&](Live& from, std::uint8_t byte) { return next(from, byte); },
        [&](std::span<const std::int32_t> ids) {
          for (const std::int32_t id : ids)
            if (fits(id)) mask_[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
        });
  }

  void add_apart(const StateRun& part) {
    if (std::exchange(clean_, false)) return add_run(part);
    std::vector<std::uint32_t> own(mask_.size());
    Walker(machine_, tokenizer_, own).add_run(part);
    for (std::size_t word = 0; word < own.size(); ++word) mask_[word] |= own[word];
  }

  void add_run(const StateRun& part) {
    const Run& run = part.run;
    const auto slice = tokenizer_.slices().find(machine_.pool(), run.unit);
    if (slice == nullptr) return walk(tokenizer_.trie(), part.whole);
    slice->add_within(run.max, mask_);
    if (run.min == 0 && !machine_.pool().nullable(run.excluded)) walk(tokenizer_.trie(), part.rest);
    walk(slice->exits(), part.rest, [&](std::int32_t id) {
      const std::uint32_t units = slice->units_before_exit(id);
      return run.min <= units && units <= run.max;
    });
    if (run.excluded != kNothing) exclude(run);
  }

  // Takes away the tokens that go on behind what is excluded: all that lie below its ends, but for those that go on
  // inside the repetition.
  void exclude(const Run& run) {
    ExpressionPool& pool = machine_.pool();
    const ByteSet inside = pool.first_bytes(run.unit);
    struct Way {
      ExprId left = kNothing;
      bool looked = false;
      ByteSet bytes{};
      explicit operator bool() const { return left != kNothing; }
    };
    const TokenTrie& trie = tokenizer_.trie();
    trie.walk_nodes(Way{run.excluded}, [&](Way& from, const TokenTrie::Node& node, std::size_t level) -> Way {
      const auto byte = static_cast<std::uint8_t>(node.byte);
      if (level > 0 && pool.nullable(from.left) && !inside.contains(byte)) {
        trie.for_each_below(node, [&](std::int32_t id) {
          mask_[static_cast<std::size_t>(id) / 32] &= ~(std::uint32_t{1} << (id % 32));
        });
      }
      if (!from.looked) {
        from.looked = true;
        from.bytes = pool.first_bytes(from.left);
      }
      return {from.bytes.contains(byte) ? pool.derive(from.left, byte) : kNothing};
    });
  }

  LazyMachine& machine_;
  const TokenizerInfo& tokenizer_;
  std::span<std::uint32_t> mask_;
  bool clean_ = true;
};

void LazyMachine::fill(StateId state, const TokenizerInfo& tokenizer, std::span<std::uint32_t> mask) {
  const std::lock_guard lock(mutex_);
  Walker(*this, tokenizer, mask).add_state(state);
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
  std::size_t bytes = row_count_.load() * sizeof(Row) + sizeof(Remembered);
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk)
    if (chunks_[chunk].load() != nullptr) bytes += (kFirstChunk << chunk) * sizeof(void*);
  return bytes;
}

}  // namespace coreai::grammar
