#include "grammar/free_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

constexpr std::size_t kMaxPatternBytes = 8192;  // 1 KiB of table for each
constexpr std::size_t kMaxSteps = 200'000;      // between the places that free text can be at

// What may follow inside a character: nothing more, or so many bytes of 80..BF, or a second byte that E0, ED, F0 or F4
// restricts (Unicode 15, table 3-7).
enum Utf8State : std::uint8_t { kWhole, kOneMore, kTwoMore, kThreeMore, kAfterE0, kAfterEd, kAfterF0, kAfterF4 };
constexpr std::size_t kUtf8States = 8;

std::optional<Utf8State> next_state(Utf8State state, std::uint8_t byte) {
  const auto within = [&](int first, int last, Utf8State next) {
    return byte >= first && byte <= last ? std::optional(next) : std::nullopt;
  };
  switch (state) {
    case kWhole:
      if (byte < 0x80) return kWhole;
      if (byte == 0xe0) return kAfterE0;
      if (byte == 0xed) return kAfterEd;
      if (byte == 0xf0) return kAfterF0;
      if (byte == 0xf4) return kAfterF4;
      if (byte >= 0xc2 && byte <= 0xdf) return kOneMore;
      if (byte >= 0xe1 && byte <= 0xef) return kTwoMore;
      return within(0xf1, 0xf3, kThreeMore);
    case kOneMore:
      return within(0x80, 0xbf, kWhole);
    case kTwoMore:
      return within(0x80, 0xbf, kOneMore);
    case kThreeMore:
      return within(0x80, 0xbf, kTwoMore);
    case kAfterE0:
      return within(0xa0, 0xbf, kOneMore);
    case kAfterEd:
      return within(0x80, 0x9f, kOneMore);
    case kAfterF0:
      return within(0x90, 0xbf, kTwoMore);
    case kAfterF4:
      return within(0x80, 0x8f, kTwoMore);
  }
  return std::nullopt;
}

class FreeText {
 public:
  FreeText(GrammarAst& ast, ExpressionPool& pool, const std::vector<FreeTextEnd>& ends,
           const std::vector<std::string>& excludes)
      : ast_(ast), pool_(pool), ends_(ends), nodes_(1) {
    std::size_t bytes = 0;
    for (const FreeTextEnd& end : ends) bytes += end.text.size();
    for (const std::string& text : excludes) bytes += text.size();
    if (bytes > kMaxPatternBytes)
      throw UnsupportedError(fmt::format("free text that looks for {} bytes of texts", bytes), "the grammar",
                             fmt::format("use texts of at most {} bytes together", kMaxPatternBytes));
    for (std::size_t i = 0; i < ends.size(); ++i) nodes_[insert(ends[i].text, i)].ends.push_back(i);
    for (const std::string& text : excludes) nodes_[insert(text, std::nullopt)].excluded = true;
    link();
  }

  void define(std::uint32_t rule, bool may_end) {
    targets_.assign(nodes_.size() * kUtf8States, 0);
    targets_[0] = ast_.reference(rule) + 1;
    open_.push_back({0, kWhole, rule});
    for (std::size_t at = 0; at < open_.size(); ++at) {
      const Place here = open_[at];
      std::vector<std::pair<AstId, ByteSet>> steps;  // by what follows the byte
      AstId last = 0;
      std::size_t last_at = 0;
      for (int byte = 0; byte < 256; ++byte) {
        const AstId to = step(here, static_cast<std::uint8_t>(byte));
        if (to == 0) continue;
        if (to != last) {
          last = to;
          last_at =
              static_cast<std::size_t>(std::ranges::find(steps, to, &std::pair<AstId, ByteSet>::first) - steps.begin());
          if (last_at == steps.size()) steps.emplace_back(to, ByteSet());
        }
        steps[last_at].second.insert(static_cast<std::uint8_t>(byte));
      }
      steps_ += steps.size();
      if (steps_ > kMaxSteps)
        throw UnsupportedError(fmt::format("free text with more than {} steps between its places", kMaxSteps),
                               "the grammar", "look for fewer texts");
      std::vector<AstId> choices;
      if (may_end && here.state == kWhole) choices.push_back(ast_.empty_text());
      for (const auto& [to, bytes] : steps)
        choices.push_back(ast_.sequence({ast_.leaf(pool_, pool_.bytes(bytes)), to - 1}));
      ast_.rules()[here.rule].body = ast_.choice(std::move(choices));
    }
  }

 private:
  struct Place {
    std::uint32_t node;
    Utf8State state;
    std::uint32_t rule;
  };
  struct Node {
    std::array<std::uint32_t, 256> next{};
    std::uint32_t back = 0;  // of the longest proper suffix that is a node
    std::uint32_t depth = 0;
    std::vector<std::size_t> ends;   // that are complete here
    std::vector<std::size_t> begun;  // that begin with the node's text
    bool excluded = false;
  };

  std::uint32_t insert(std::string_view text, std::optional<std::size_t> end) {
    std::uint32_t at = 0;
    for (const char c : text) {
      const auto byte = static_cast<std::uint8_t>(c);
      if (nodes_[at].next[byte] == 0) {
        nodes_[at].next[byte] = static_cast<std::uint32_t>(nodes_.size());
        nodes_.emplace_back().depth = nodes_[at].depth + 1;
      }
      at = nodes_[at].next[byte];
      if (end) nodes_[at].begun.push_back(*end);
    }
    return at;
  }

  // Breadth first, so that the suffixes of a node are complete before it.
  void link() {
    std::vector<std::uint32_t> order{0};
    for (std::size_t i = 0; i < order.size(); ++i) {
      Node& node = nodes_[order[i]];
      const Node& back = nodes_[node.back];
      for (std::size_t byte = 0; byte < 256; ++byte) {
        const std::uint32_t child = node.next[byte];
        const std::uint32_t shorter = order[i] == 0 ? 0 : back.next[byte];
        if (child == 0) {
          node.next[byte] = shorter;
          continue;
        }
        nodes_[child].back = shorter;
        order.push_back(child);
      }
      if (order[i] == 0) continue;
      node.ends.insert(node.ends.end(), back.ends.begin(), back.ends.end());
      node.excluded = node.excluded || back.excluded;
    }
  }

  // What follows a byte, and 1; 0 where the text ends badly.
  AstId step(const Place& from, std::uint8_t byte) {
    const auto state = next_state(from.state, byte);
    if (!state) return 0;
    const std::uint32_t to = nodes_[from.node].next[byte];
    AstId& target = targets_[to * kUtf8States + *state];
    if (target != 0) return target;
    if (!nodes_[to].ends.empty()) return target = after_end(to) + 1;
    if (nodes_[to].excluded) return target = after_excluded(to) + 1;
    const std::uint32_t rule = ast_.add_rule("free text");
    open_.push_back({to, *state, rule});
    return target = ast_.reference(rule) + 1;
  }

  AstId after_end(std::uint32_t at) {
    std::vector<AstId> choices;
    choices.reserve(nodes_[at].ends.size());
    for (const std::size_t end : nodes_[at].ends) choices.push_back(ends_[end].then);
    return ast_.choice(std::move(choices));
  }

  // Something excluded is complete: it must lie inside an end that began before, and that end must be the first.
  AstId after_excluded(std::uint32_t at) {
    std::vector<AstId> choices;
    for (std::uint32_t begun = at; begun != 0; begun = nodes_[begun].back) {
      const std::uint32_t length = nodes_[begun].depth;
      for (const std::size_t index : nodes_[begun].begun) {
        const FreeTextEnd& end = ends_[index];
        if (end.text.size() <= length) continue;
        const std::string_view rest = std::string_view(end.text).substr(length);
        std::uint32_t reached = at;
        bool first = true;
        for (std::size_t i = 0; i + 1 < rest.size(); ++i) {
          reached = nodes_[reached].next[static_cast<std::uint8_t>(rest[i])];
          first = first && nodes_[reached].ends.empty();
        }
        if (first) choices.push_back(ast_.sequence({ast_.literal(std::string(rest)), end.then}));
      }
    }
    return ast_.choice(std::move(choices));
  }
  GrammarAst& ast_;
  ExpressionPool& pool_;
  const std::vector<FreeTextEnd>& ends_;
  std::vector<Node> nodes_;
  std::vector<AstId> targets_;  // by node and state, as step gives them
  std::vector<Place> open_;
  std::size_t steps_ = 0;
};

}  // namespace

void define_free_text(GrammarAst& ast, ExpressionPool& pool, std::uint32_t rule, const std::vector<FreeTextEnd>& ends,
                      const std::vector<std::string>& excludes, bool may_end) {
  FreeText(ast, pool, ends, excludes).define(rule, may_end);
}

}  // namespace coreai::grammar
