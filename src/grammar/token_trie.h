// The tokens as a tree of bytes in depth-first order: a dead byte skips its subtree in one step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_set.h"

namespace coreai::grammar {

class TokenTrie {
 public:
  struct Node {
    std::uint32_t end;                   // index after the last node of the subtree
    std::uint32_t byte : 8, entry : 24;  // entry: 1 + index in entries(), 0 where no token ends
  };
  // Tokens that end at a node: ids[first, first + count). Vocabularies have several ids with the same bytes.
  struct Entry {
    std::uint32_t first, count;
  };

  struct Token {
    std::string_view text;
    std::int32_t id;
  };

  // Tokens without a text are left out. At most 2^24 - 2 tokens.
  explicit TokenTrie(std::vector<Token> tokens);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const std::int32_t> ids(const Node& node) const {
    const Entry& e = entries_[node.entry - 1];
    return std::span(ids_).subspan(e.first, e.count);
  }
  std::size_t token_count() const { return ids_.size(); }
  std::size_t depth() const { return depth_; }  // of the deepest node: the longest token's length
  std::size_t memory_bytes() const;

  // A node, or the root above all nodes.
  struct Place {
    std::uint32_t node;
    bool operator==(const Place&) const = default;
  };
  static constexpr Place kRoot{UINT32_MAX};
  Place place(const Node& node) const { return {static_cast<std::uint32_t>(&node - nodes_.data())}; }
  const Node& node(Place at) const { return nodes_[at.node]; }
  // The child of the root, if there is one.
  const Node* top(std::uint8_t byte) const { return top_[byte] == 0 ? nullptr : &nodes_[top_[byte] - 1]; }
  const ByteSet& top_bytes() const { return top_bytes_; }
  bool has_children(const Node& node) const { return node.end > place(node).node + 1; }

  // From `start` down: `step(state, node)` gives the state below a node; one that is false skips what lies below.
  template <typename State, typename Step>
  void walk_nodes(Place below, State start, Step&& step) const {
    const std::uint32_t first = below == kRoot ? 0 : below.node + 1;
    const auto end = below == kRoot ? static_cast<std::uint32_t>(nodes_.size()) : nodes_[below.node].end;
    struct Level {
      State state;
      std::uint32_t end;
    };
    std::vector<Level> levels;
    levels.reserve(16);
    levels.push_back({start, end});
    for (std::uint32_t i = first; i < end;) {
      while (levels.back().end <= i) levels.pop_back();
      const Node& node = nodes_[i];
      State next = step(levels.back().state, node, levels.size() - 1);
      if (!next) {
        i = node.end;
        continue;
      }
      if (++i == node.end) continue;
      levels.push_back({next, node.end});
    }
  }

  // Calls visit(id, text) for the tokens that end at `node` or below it; the text begins with the node's byte.
  template <typename Visit>
  void for_each_below(const Node& top, Visit&& visit) const {
    std::string text;
    std::vector<std::uint32_t> ends;
    for (std::uint32_t i = place(top).node; i < top.end; ++i) {
      while (!ends.empty() && ends.back() <= i) {
        ends.pop_back();
        text.pop_back();
      }
      const Node& node = nodes_[i];
      text += static_cast<char>(node.byte);
      ends.push_back(node.end);
      if (node.entry != 0)
        for (const std::int32_t id : ids(node)) visit(id, std::string_view(text));
    }
  }

 private:
  std::vector<Node> nodes_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> ids_;
  std::size_t depth_ = 0;
  std::array<std::uint32_t, 256> top_{};  // 1 + node
  ByteSet top_bytes_;
};

}  // namespace coreai::grammar
