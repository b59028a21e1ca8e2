#include "grammar/expression_machine.h"

#include "coreai/base/error.h"

namespace coreai::grammar {

ExpressionMachine::ExpressionMachine(std::unique_ptr<ExpressionPool> pool, ExprId language) : pool_(std::move(pool)) {
  start_ = state_of(language);
  if (start_ == kDead)
    throw InvalidArgumentError("no text belongs to the grammar", "grammar", "its conditions exclude each other");
}

ExpressionMachine::~ExpressionMachine() {
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
    std::atomic<Row*>* rows = chunks_[chunk].load();
    if (rows == nullptr) continue;
    for (std::size_t i = 0; i < kFirstChunk << chunk; ++i) delete rows[i].load();
    delete[] rows;
  }
}

StateId ExpressionMachine::state_of(ExprId e) {
  if (pool_->is_nothing(e)) return kDead;
  return (e << 1) | static_cast<StateId>(pool_->nullable(e));
}

// A single step makes no row: a counted repetition passes through many states once.
StateId ExpressionMachine::step(StateId state, std::uint8_t byte) {
  if (const Row* known = find_row(state)) return (*known)[byte];
  const std::lock_guard lock(mutex_);
  return state_of(pool_->derive(expression(state), byte));
}

const ExpressionMachine::Row& ExpressionMachine::row(StateId state) {
  if (const Row* known = find_row(state)) return *known;
  const std::lock_guard lock(mutex_);
  if (const Row* known = find_row(state)) return *known;
  auto made = std::make_unique<Row>();
  const ByteClasses split = pool_->classes(expression(state));
  std::array<StateId, 256> next;
  for (std::size_t i = 0; i < split.representatives.size(); ++i)
    next[i] = state_of(pool_->derive(expression(state), split.representatives[i]));
  for (std::size_t byte = 0; byte < 256; ++byte) (*made)[byte] = next[split.class_of[byte]];

  const Place at = place(expression(state));
  auto& slot = chunks_[static_cast<std::size_t>(at.chunk)];
  std::atomic<Row*>* chunk = slot.load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = new std::atomic<Row*>[kFirstChunk << at.chunk]();
    slot.store(chunk, std::memory_order_release);
  }
  Row* const placed = made.release();
  chunk[at.index].store(placed, std::memory_order_release);
  row_count_.fetch_add(1, std::memory_order_relaxed);
  return *placed;
}

StateId ExpressionMachine::mask_state(StateId state, std::size_t longest) {
  const std::lock_guard lock(mutex_);
  if (!pool_->counts(expression(state))) return state;
  return state_of(pool_->clamp(expression(state), static_cast<std::uint32_t>(longest)));
}

void ExpressionMachine::fill(StateId state, const TokenTrie& trie, std::span<std::uint32_t> mask) {
  struct Live {
    StateId state = kDead;
    const Row* row = nullptr;
    explicit operator bool() const { return state != kDead; }
  };
  const auto step_to = [&](Live& from, std::uint8_t byte) {
    if (from.row == nullptr) from.row = &row(from.state);
    return Live{(*from.row)[byte], nullptr};
  };
  trie.walk(Live{state, nullptr}, step_to, [&](std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) mask[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (id % 32);
  });
}

std::optional<std::uint8_t> ExpressionMachine::forced_byte(StateId state) {
  if (accepts(state)) return std::nullopt;
  const Row& next = row(state);
  std::optional<std::uint8_t> only;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (next[byte] == kDead) continue;
    if (only) return std::nullopt;
    only = static_cast<std::uint8_t>(byte);
  }
  return only;
}

std::size_t ExpressionMachine::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = pool_->memory_bytes() + row_count_.load() * sizeof(Row);
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk)
    if (chunks_[chunk].load() != nullptr) bytes += (kFirstChunk << chunk) * sizeof(void*);
  return bytes;
}

}  // namespace coreai::grammar
