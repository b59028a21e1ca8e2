#include "grammar/text_tokens.h"

#include <deque>
#include <string>
#include <string_view>

namespace coreai::grammar {

TextTokens::TextTokens(const TokenTrie& trie, std::span<const std::uint32_t> within,
                       std::span<const TokenTrie::Place> behind) {
  for (std::uint32_t word = 0; word < within.size(); ++word)
    if (within[word] != 0) within_.emplace_back(word, within[word]);
  within_.shrink_to_fit();
  if (behind.empty()) return;
  std::deque<std::string> kept;  // addresses stay
  std::vector<TokenTrie::Token> texts;
  for (const TokenTrie::Place place : behind)
    trie.for_each_below(trie.node(place), [&](std::int32_t id, std::string_view text) {
      texts.push_back({kept.emplace_back(text), id});
    });
  behind_ = std::make_unique<const TokenTrie>(std::move(texts));
}

void TextTokens::add_within(std::span<std::uint32_t> mask) const {
  for (const auto& [word, bits] : within_) mask[word] |= bits;
}

std::size_t TextTokens::memory_bytes() const {
  return sizeof(*this) + within_.capacity() * sizeof(within_[0]) +
         (behind_ == nullptr ? 0 : sizeof(TokenTrie) + behind_->memory_bytes());
}

const TextTokens* TextTokensCache::find(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto known = kept_.find(key);
  return known == kept_.end() ? nullptr : known->second.get();
}

const TextTokens* TextTokensCache::keep(const Key& key, TextTokens&& made) {
  const std::lock_guard lock(mutex_);
  const std::size_t bytes = made.memory_bytes() + sizeof(Key) + 4 * sizeof(void*);
  if (bytes_ + bytes > kMaxBytes) return nullptr;
  const auto [at, added] = kept_.try_emplace(key);
  if (added) {
    at->second = std::make_unique<const TextTokens>(std::move(made));
    bytes_ += bytes;
  }
  return at->second.get();
}

std::size_t TextTokensCache::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace coreai::grammar
