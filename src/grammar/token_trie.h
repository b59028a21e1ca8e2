// The tokens as a tree of bytes in depth-first order: a dead byte skips its subtree in one step.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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

  // Calls visit(ids) for each node with tokens all of whose bytes `step` takes from `start`; `step(state, byte)` gives
  // a state that is false when it is dead.
  template <typename State, typename Step, typename Visit>
  void walk(State start, Step&& step, Visit&& visit) const {
    walk_nodes(start, [&](State& from, const Node& node, std::size_t) {
      State next = step(from, static_cast<std::uint8_t>(node.byte));
      if (next && node.entry != 0) visit(ids(node));
      return next;
    });
  }

  // `step(state, node, level)` gives the state below a node; level: bytes before it.
  template <typename State, typename Step>
  void walk_nodes(State start, Step&& step) const {
    std::vector<State> states(depth_ + 1);
    std::size_t level = 0;
    states[0] = start;
    std::vector<std::uint32_t> ends(depth_ + 1);
    ends[0] = static_cast<std::uint32_t>(nodes_.size());
    for (std::uint32_t i = 0; i < nodes_.size();) {
      while (ends[level] <= i) --level;
      const Node& node = nodes_[i];
      State next = step(states[level], node, level);
      if (!next) {
        i = node.end;
        continue;
      }
      if (++i == node.end) continue;
      ++level;
      states[level] = next;
      ends[level] = node.end;
    }
  }

  // Calls visit(id) for the tokens that end at `node` or below it.
  template <typename Visit>
  void for_each_below(const Node& node, Visit&& visit) const {
    for (const Node* at = &node; at != nodes_.data() + node.end; ++at)
      if (at->entry != 0)
        for (const std::int32_t id : ids(*at)) visit(id);
  }

 private:
  std::vector<Node> nodes_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> ids_;
  std::size_t depth_ = 0;
};

}  // namespace coreai::grammar
