#include "grammar/token_trie.h"

#include <algorithm>
#include <numeric>

namespace coreai::grammar {

TokenTrie::TokenTrie(std::span<const std::string_view> tokens) {
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty()) ids_.push_back(static_cast<std::int32_t>(id));
  std::stable_sort(ids_.begin(), ids_.end(), [&](std::int32_t a, std::int32_t b) { return tokens[a] < tokens[b]; });

  std::vector<std::uint32_t> path;  // nodes from the root to the last token's end
  std::string_view last;
  for (std::uint32_t i = 0; i < ids_.size();) {
    const std::string_view token = tokens[ids_[i]];
    const auto [differs, unused] = std::mismatch(last.begin(), last.end(), token.begin(), token.end());
    const auto shared = static_cast<std::size_t>(differs - last.begin());
    for (; path.size() > shared; path.pop_back()) nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
    for (std::size_t at = shared; at < token.size(); ++at) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint8_t>(token[at]), 0});
    }
    std::uint32_t next = i;
    while (next < ids_.size() && tokens[ids_[next]] == token) ++next;
    entries_.push_back({i, next - i});
    nodes_[path.back()].entry = static_cast<std::uint32_t>(entries_.size()) & 0xffffffu;
    depth_ = std::max(depth_, token.size());
    last = token;
    i = next;
  }
  for (const std::uint32_t node : path) nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
}

std::size_t TokenTrie::memory_bytes() const {
  return nodes_.capacity() * sizeof(Node) + entries_.capacity() * sizeof(Entry) + ids_.capacity() * sizeof(ids_[0]);
}

}  // namespace coreai::grammar
