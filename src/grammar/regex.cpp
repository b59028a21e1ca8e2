#include "grammar/regex.h"

#include <fmt/format.h>

#include "coreai/base/error.h"
#include "grammar/regex_parser.h"

namespace coreai::grammar {
namespace {

constexpr std::uint32_t kMaxUnrolled = 32;  // copies of a repetition that holds anchors or look-ahead

// Anchors and look-ahead look at what comes next, so a node is built together with its continuation. At the start of
// the text the continuation is `at_start` as long as nothing was consumed, and `after` then.
class Builder {
 public:
  Builder(ExpressionPool& pool, std::string_view pattern, const CodePointEncoder& encoder, const RegexSyntax& syntax)
      : pool_(pool),
        pattern_(pattern),
        encoder_(encoder),
        tree_(parse_regex(pattern, syntax)),
        any_(encoder.encode(pool, CodePointSet::all())),
        plain_(tree_.nodes.size(), kUnknown) {}

  ExprId build(RegexMatch match) {
    const auto root = static_cast<std::uint32_t>(tree_.nodes.size() - 1);
    if (match == RegexMatch::kWhole) return node(root, true, kEmptyString, kEmptyString);
    const ExprId rest = anything();
    const ExprId later = pool_.concat(pool_.repeat(any_, 1), node(root, false, rest, rest));
    return pool_.any_of({node(root, true, rest, rest), later});
  }

 private:
  static constexpr ExprId kUnknown = UINT32_MAX;

  ExprId anything() { return pool_.repeat(any_, 0); }

  // A node without assertions, by itself.
  ExprId plain(std::uint32_t at) {
    if (plain_[at] != kUnknown) return plain_[at];
    const RegexNode& n = tree_.nodes[at];
    std::vector<ExprId> parts;
    parts.reserve(n.children.size());
    for (const std::uint32_t child : n.children) parts.push_back(plain(child));
    ExprId out = kEmptyString;
    switch (n.kind) {
      case RegexNode::Kind::kSet:
        out = encoder_.encode(pool_, n.set);
        break;
      case RegexNode::Kind::kSequence:
        for (std::size_t i = parts.size(); i-- > 0;) out = pool_.concat(parts[i], out);
        break;
      case RegexNode::Kind::kChoice:
        out = pool_.any_of(parts);
        break;
      case RegexNode::Kind::kRepeat:
        out = pool_.repeat(parts[0], n.min, n.max);
        break;
      default:
        COREAI_INVARIANT(!n.assertions);
    }
    return plain_[at] = out;
  }

  ExprId node(std::uint32_t at, bool start, ExprId at_start, ExprId after) {
    const RegexNode& n = tree_.nodes[at];
    const ExprId next = start ? at_start : after;
    if (!n.assertions) {
      const ExprId self = plain(at);
      if (!start || at_start == after || !pool_.nullable(self)) return pool_.concat(self, after);
      const ExprId consumed = pool_.all_of({self, pool_.negate(kEmptyString)});
      return pool_.any_of({at_start, pool_.concat(consumed, after)});
    }
    switch (n.kind) {
      case RegexNode::Kind::kStart:
        return start ? at_start : kNothing;
      case RegexNode::Kind::kEnd:
        return pool_.nullable(next) ? kEmptyString : kNothing;
      case RegexNode::Kind::kLookAhead: {
        const ExprId seen = node(n.children[0], start, anything(), anything());
        return pool_.all_of({n.negated ? pool_.negate(seen) : seen, next});
      }
      case RegexNode::Kind::kChoice: {
        std::vector<ExprId> choices;
        choices.reserve(n.children.size());
        for (const std::uint32_t child : n.children) choices.push_back(node(child, start, at_start, after));
        return pool_.any_of(choices);
      }
      case RegexNode::Kind::kSequence:
        return sequence(n, start, at_start, after);
      case RegexNode::Kind::kRepeat:
        return repeated(n, start, at_start, after);
      default:
        return kNothing;
    }
  }

  ExprId sequence(const RegexNode& n, bool start, ExprId at_start, ExprId after) {
    ExprId started = start ? at_start : after, later = after;
    for (std::size_t i = n.children.size(); i-- > 0;) {
      const ExprId from_start = start ? node(n.children[i], true, started, later) : kNothing;
      later = node(n.children[i], false, later, later);
      started = start ? from_start : later;
    }
    return started;
  }

  ExprId repeated(const RegexNode& n, bool start, ExprId at_start, ExprId after) {
    const std::uint32_t copies = n.max == kUnbounded ? kUnbounded : n.max;
    if (copies > kMaxUnrolled)
      throw UnsupportedError(fmt::format("an anchor or look-ahead repeated up to {} times at byte {}",
                                         copies == kUnbounded ? "any number of" : std::to_string(copies), n.offset),
                             fmt::format("pattern '{}'", pattern_),
                             fmt::format("repeat it at most {} times", kMaxUnrolled));
    ExprId started = start ? at_start : after, later = after;
    const ExprId stop_start = started, stop_later = later;
    for (std::uint32_t i = copies; i-- > 0;) {
      ExprId from_start = start ? node(n.children[0], true, started, later) : kNothing;
      later = node(n.children[0], false, later, later);
      if (i >= n.min) {
        from_start = start ? pool_.any_of({stop_start, from_start}) : kNothing;
        later = pool_.any_of({stop_later, later});
      }
      started = start ? from_start : later;
    }
    return started;
  }

  ExpressionPool& pool_;
  std::string_view pattern_;
  const CodePointEncoder& encoder_;
  RegexTree tree_;
  ExprId any_;
  std::vector<ExprId> plain_;
};

}  // namespace

ExprId regex_expression(ExpressionPool& pool, std::string_view pattern, RegexMatch match,
                        const CodePointEncoder& encoder, const RegexSyntax& syntax) {
  return Builder(pool, pattern, encoder, syntax).build(match);
}

}  // namespace coreai::grammar
