#include "grammar/lazy_machine.h"

#include <memory>

namespace coreai::grammar {

LazyMachine::~LazyMachine() {
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
    std::atomic<Row*>* rows = chunks_[chunk].load();
    if (rows == nullptr) continue;
    for (std::size_t i = 0; i < kFirstChunk << chunk; ++i) delete rows[i].load();
    delete[] rows;
  }
}

StateId LazyMachine::step(StateId state, std::uint8_t byte) {
  if (const Row* known = known_row(state)) return (*known)[byte];
  const std::lock_guard lock(mutex_);
  return find_step(state, byte);
}

const LazyMachine::Row& LazyMachine::row(StateId state) {
  if (const Row* known = known_row(state)) return *known;
  const std::lock_guard lock(mutex_);
  if (const Row* known = known_row(state)) return *known;
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
  return *placed;
}

void LazyMachine::fill(StateId state, const TokenTrie& trie, std::span<std::uint32_t> mask) {
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

std::optional<std::uint8_t> LazyMachine::forced_byte(StateId state) {
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

std::size_t LazyMachine::row_bytes() const {
  std::size_t bytes = row_count_.load() * sizeof(Row);
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk)
    if (chunks_[chunk].load() != nullptr) bytes += (kFirstChunk << chunk) * sizeof(void*);
  return bytes;
}

}  // namespace coreai::grammar
