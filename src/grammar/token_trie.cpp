#include "grammar/token_trie.h"

#include <algorithm>

namespace coreai::grammar {

TokenTrie::TokenTrie(std::vector<Token> tokens) {
  std::erase_if(tokens, [](const Token& token) { return token.text.empty(); });
  std::stable_sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.text < b.text; });
  ids_.reserve(tokens.size());
  for (const Token& token : tokens) ids_.push_back(token.id);

  std::vector<std::uint32_t> path;  // nodes from the root to the last token's end
  std::string_view last;
  for (std::uint32_t i = 0; i < ids_.size();) {
    const std::string_view token = tokens[i].text;
    const auto [differs, unused] = std::mismatch(last.begin(), last.end(), token.begin(), token.end());
    const auto shared = static_cast<std::size_t>(differs - last.begin());
    for (; path.size() > shared; path.pop_back()) nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
    for (std::size_t at = shared; at < token.size(); ++at) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint8_t>(token[at]), 0});
    }
    std::uint32_t next = i;
    while (next < ids_.size() && tokens[next].text == token) ++next;
    entries_.push_back({i, next - i});
    nodes_[path.back()].entry = static_cast<std::uint32_t>(entries_.size()) & 0xffffffu;
    depth_ = std::max(depth_, token.size());
    last = token;
    i = next;
  }
  for (const std::uint32_t node : path) nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
  for (std::uint32_t node = 0; node < nodes_.size(); node = nodes_[node].end) {
    top_[nodes_[node].byte] = node + 1;
    top_bytes_.insert(static_cast<std::uint8_t>(nodes_[node].byte));
  }
}

std::size_t TokenTrie::memory_bytes() const {
  return nodes_.capacity() * sizeof(Node) + entries_.capacity() * sizeof(Entry) + ids_.capacity() * sizeof(ids_[0]);
}

}  // namespace coreai::grammar
