#include "grammar/mask_cache.h"

namespace coreai::grammar {

std::optional<MaskCache::Made> MaskCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  order_.splice(order_.begin(), order_, found->second.used);
  return found->second.made;
}

MaskCache::Made MaskCache::keep(const Key& key, Made made, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_) return made;
  if (const auto found = entries_.find(key); found != entries_.end()) return found->second.made;
  while (bytes_ + bytes > max_bytes_) drop_oldest();
  order_.push_front(key);
  entries_.emplace(key, Entry{made, bytes, order_.begin()});
  bytes_ += bytes;
  return made;
}

void MaskCache::drop_oldest() {
  const auto oldest = entries_.find(order_.back());
  bytes_ -= oldest->second.bytes;
  entries_.erase(oldest);
  order_.pop_back();
}

void MaskCache::forget_grammar(std::uint64_t grammar) {
  const std::lock_guard lock(mutex_);
  for (auto at = order_.begin(); at != order_.end();) {
    if (at->grammar != grammar) {
      ++at;
      continue;
    }
    const auto entry = entries_.find(*at);
    bytes_ -= entry->second.bytes;
    entries_.erase(entry);
    at = order_.erase(at);
  }
}

void MaskCache::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  order_.clear();
  bytes_ = 0;
}

std::size_t MaskCache::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace coreai::grammar
