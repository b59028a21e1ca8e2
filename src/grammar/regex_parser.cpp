#include "grammar/regex_parser.h"
#include <algorithm>

#include <fmt/format.h>

#include <optional>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

constexpr int kMaxDepth = 250;
constexpr std::uint32_t kEndOfText = UINT32_MAX;

const CodePointSet kDigits{{'0', '9'}};
const CodePointSet kWordCharacters{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// ECMA-262, WhiteSpace and LineTerminator.
const CodePointSet kSpaces{{9, 13},          {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                           {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const CodePointSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Parser {
 public:
  Parser(std::string_view pattern, const RegexSyntax& syntax) : pattern_(pattern), syntax_(syntax) { read(); }

  RegexTree parse() {
    choice();
    if (here_ != kEndOfText) malformed("a ')' that closes nothing");
    return std::move(tree_);
  }

 private:
  [[noreturn]] void malformed(const std::string& what) const {
    throw MalformedError(what, fmt::format("pattern '{}'", pattern_), at_, "see ECMA-262 for the syntax of patterns");
  }
  [[noreturn]] void unsupported(const std::string& what, const std::string& next_step) const {
    throw UnsupportedError(fmt::format("{} at byte {}", what, at_), fmt::format("pattern '{}'", pattern_), next_step);
  }

  // The code point at next_ becomes `here_`.
  void read() {
    at_ = next_;
    if (next_ >= pattern_.size()) {
      here_ = kEndOfText;
      return;
    }
    const auto point = next_code_point(pattern_, next_);
    if (!point) malformed("not UTF-8");
    here_ = *point;
  }
  bool take(std::uint32_t c) {
    if (here_ != c) return false;
    read();
    return true;
  }
  bool ahead(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void skip(std::size_t bytes) {
    next_ = at_ + bytes;
    read();
  }

  std::uint32_t add(RegexNode node) {
    for (const std::uint32_t child : node.children) node.assertions |= tree_.nodes[child].assertions;
    tree_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(tree_.nodes.size() - 1);
  }

  std::uint32_t choice() {
    if (++depth_ > kMaxDepth) unsupported(fmt::format("groups more than {} deep", kMaxDepth), "flatten the pattern");
    RegexNode node{.kind = RegexNode::Kind::kChoice, .offset = at_};
    do node.children.push_back(sequence());
    while (take('|'));
    --depth_;
    return add(std::move(node));
  }

  std::uint32_t sequence() {
    RegexNode node{.kind = RegexNode::Kind::kSequence, .offset = at_};
    while (here_ != kEndOfText && here_ != '|' && here_ != ')') node.children.push_back(term());
    return add(std::move(node));
  }

  std::uint32_t term() {
    const std::size_t offset = at_;
    if (take('^')) return add({.kind = RegexNode::Kind::kStart, .assertions = true, .offset = offset});
    if (take('$')) return add({.kind = RegexNode::Kind::kEnd, .assertions = true, .offset = offset});
    std::uint32_t item = 0;
    if (here_ == '(') {
      item = group();
      if (tree_.nodes[item].kind == RegexNode::Kind::kLookAhead) return item;
    } else {
      if (here_ == '*' || here_ == '+' || here_ == '?') malformed("a quantifier with nothing before it");
      item = add({.kind = RegexNode::Kind::kSet, .offset = offset, .set = any_case(atom())});
    }
    return quantified(item);
  }

  std::uint32_t group() {
    const std::size_t offset = at_;
    RegexNode look{.kind = RegexNode::Kind::kLookAhead, .assertions = true, .offset = offset};
    bool looks = false;
    if (ahead("(?=") || ahead("(?!")) {
      looks = true;
      look.negated = ahead("(?!");
      skip(3);
    } else if (ahead("(?<=") || ahead("(?<!")) {
      unsupported("look-behind", "write what precedes as part of the pattern");
    } else if (ahead("(?:")) {
      skip(3);
    } else if (ahead("(?<")) {
      const std::size_t close = pattern_.find('>', at_);
      if (close == std::string_view::npos || close == at_ + 3) malformed("a group name without an end");
      skip(close + 1 - at_);
    } else if (syntax_.only_line_feeds && ahead("(?")) {
      return flagged(offset);
    } else if (ahead("(?")) {
      unsupported("an inline flag or unknown group", "write both cases, as in [aA]");
    } else {
      skip(1);
    }
    const std::uint32_t inner = choice();
    if (!take(')')) malformed(fmt::format("the group that opens at byte {} is not closed", offset));
    if (!looks) return inner;
    look.children = {inner};
    return add(std::move(look));
  }

  // (?is-x:...), for the group alone.
  std::uint32_t flagged(std::size_t offset) {
    const RegexSyntax before = syntax_;
    bool on = true;
    for (skip(2); !take(':'); read()) {
      if (here_ == '-') {
        on = false;
      } else if (here_ == 'i') {
        syntax_.ignore_case = on;
      } else if (here_ == 's') {
        syntax_.dot_all = on;
      } else {
        unsupported("a flag other than i and s, or an unknown group", "write (?:...), (?i:...) or (?s:...)");
      }
    }
    const std::uint32_t inner = choice();
    if (!take(')')) malformed(fmt::format("the group that opens at byte {} is not closed", offset));
    syntax_ = before;
    return inner;
  }

  // With the other case of each letter where case says nothing.
  CodePointSet any_case(CodePointSet set) const {
    if (!syntax_.ignore_case) return set;
    if (single(set) && set.ranges()[0].first > 0x7f)
      unsupported("a letter beyond A to Z without regard to case", "write both cases, as in [éÉ]");
    for (std::uint32_t letter = 'A'; letter <= 'Z'; ++letter) {
      const std::uint32_t other = letter + ('a' - 'A');
      const auto holds = [&](std::uint32_t c) {
        return std::ranges::any_of(set.ranges(), [&](const auto& r) { return r.first <= c && c <= r.last; });
      };
      if (holds(letter) || holds(other)) {
        set.insert(letter, letter);
        set.insert(other, other);
      }
    }
    return set;
  }

  std::uint32_t quantified(std::uint32_t item) {
    const std::size_t offset = at_;
    std::uint32_t min = 0, max = kUnbounded;
    if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (!take('*')) {
      if (here_ != '{' || !bounds(min, max)) return item;
    }
    if (min > max) malformed(fmt::format("a repetition from {} to {} times", min, max));
    take('?');  // lazy: the same strings
    if (here_ == '*' || here_ == '+' || here_ == '?') malformed("a quantifier after a quantifier");
    return add({.kind = RegexNode::Kind::kRepeat, .min = min, .max = max, .offset = offset, .children = {item}});
  }

  // {n}, {n,}, {n,m}; anything else after '{' is text (Annex B).
  bool bounds(std::uint32_t& min, std::uint32_t& max) {
    std::size_t i = at_ + 1;
    const auto number = [&]() -> std::optional<std::uint32_t> {
      const std::size_t from = i;
      std::uint64_t value = 0;
      for (; i < pattern_.size() && pattern_[i] >= '0' && pattern_[i] <= '9'; ++i)
        value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(pattern_[i] - '0'), kUnbounded - 1);
      return i == from ? std::nullopt : std::optional(static_cast<std::uint32_t>(value));
    };
    const auto first = number();
    if (!first || i >= pattern_.size()) return false;
    std::optional<std::uint32_t> second = first;
    if (pattern_[i] == ',') {
      ++i;
      second = number();
      if (!second) second = kUnbounded;
    }
    if (i >= pattern_.size() || pattern_[i] != '}') return false;
    min = *first;
    max = *second;
    skip(i + 1 - at_);
    return true;
  }

  CodePointSet atom() {
    if (take('.')) {
      if (syntax_.dot_all) return CodePointSet::all();
      return syntax_.only_line_feeds ? CodePointSet{{'\n', '\n'}}.complement() : kLineEnds.complement();
    }
    if (here_ == '[') return bracket();
    if (here_ == '\\') return escape(false);
    const std::uint32_t c = here_;
    read();
    return {{c, c}};
  }

  CodePointSet bracket() {
    const std::size_t offset = at_;
    read();
    const bool negated = take('^');
    CodePointSet out;
    while (here_ != ']') {
      if (here_ == kEndOfText) malformed(fmt::format("the class that opens at byte {} is not closed", offset));
      const CodePointSet first = class_atom();
      if (here_ != '-' || pattern_.substr(next_).starts_with("]") || !single(first)) {
        out.insert(first);
        continue;
      }
      read();
      if (here_ == kEndOfText) malformed(fmt::format("the class that opens at byte {} is not closed", offset));
      const CodePointSet last = class_atom();
      if (!single(last)) {  // [a-\d]: three members (Annex B)
        out.insert(first);
        out.insert('-', '-');
        out.insert(last);
        continue;
      }
      if (first.ranges()[0].first > last.ranges()[0].first) malformed("a class range in descending order");
      out.insert(first.ranges()[0].first, last.ranges()[0].first);
    }
    read();
    out = any_case(std::move(out));
    return negated ? out.complement() : out;
  }
  static bool single(const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }
  CodePointSet class_atom() {
    if (here_ == '\\') return escape(true);
    const std::uint32_t c = here_;
    read();
    return {{c, c}};
  }

  CodePointSet escape(bool in_class) {
    read();
    const std::uint32_t c = here_;
    if (c == kEndOfText) malformed("a backslash at the end");
    const auto one = [](std::uint32_t point) { return CodePointSet{{point, point}}; };
    if (!in_class && (c == 'b' || c == 'B'))
      unsupported("a word boundary", "write the characters that may stand there");
    if (c >= '1' && c <= '9')
      in_class ? malformed("a back reference inside a class")
               : unsupported("a back reference", "no regular language holds it");
    if (c == 'k' && ahead("k<")) unsupported("a back reference", "no regular language holds it");
    if ((c == 'p' || c == 'P') && (ahead("p{") || ahead("P{")))
      unsupported("a Unicode property", "write the ranges, as in [\\u0041-\\u005A]");
    if (c == 'u' || c == 'x') return one(hex_escape());
    if (c == 'c') return one(control_escape());
    read();
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return kDigits.complement();
      case 'w':
        return kWordCharacters;
      case 'W':
        return kWordCharacters.complement();
      case 's':
        return kSpaces;
      case 'S':
        return kSpaces.complement();
      case 'b':
        return one(8);
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case 'r':
        return one('\r');
      case '0':
        if (here_ >= '0' && here_ <= '9') malformed("an octal escape");
        return one(0);
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
          malformed(fmt::format("the escape \\{} means nothing", static_cast<char>(c)));
        return one(c);
    }
  }

  std::optional<std::uint32_t> hex(std::size_t from, std::size_t digits) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char c = from + i < pattern_.size() ? pattern_[from + i] : '?';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    return value;
  }

  // \xHH, \uHHHH, \u{H...}; a pair of surrogates is one code point, a lone one stands for nothing that text can hold.
  std::uint32_t hex_escape() {
    if (here_ == 'x') {
      const auto value = hex(at_ + 1, 2);
      if (!value) malformed("\\x without two hexadecimal digits");
      skip(3);
      return *value;
    }
    if (ahead("u{")) {
      const std::size_t close = pattern_.find('}', at_);
      const std::size_t digits = close == std::string_view::npos ? 0 : close - at_ - 2;
      const auto value = digits == 0 || digits > 8 ? std::nullopt : hex(at_ + 2, digits);
      if (!value || *value > kMaxCodePoint) malformed("\\u{} without a code point");
      skip(close + 1 - at_);
      return *value;
    }
    const auto value = hex(at_ + 1, 4);
    if (!value) malformed("\\u without four hexadecimal digits");
    skip(5);
    if (*value < 0xd800 || *value > 0xdbff || !ahead("\\u")) return *value;
    const auto low = hex(at_ + 2, 4);
    if (!low || *low < 0xdc00 || *low > 0xdfff) return *value;
    skip(6);
    return 0x10000 + ((*value - 0xd800) << 10) + (*low - 0xdc00);
  }

  std::uint32_t control_escape() {
    read();
    const std::uint32_t c = here_;
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) malformed("\\c without a letter");
    read();
    return c % 32;
  }

  std::string_view pattern_;
  RegexSyntax syntax_;
  std::size_t at_ = 0, next_ = 0;  // of here_ and after it
  std::uint32_t here_ = kEndOfText;
  int depth_ = 0;
  RegexTree tree_;
};

}  // namespace

RegexTree parse_regex(std::string_view pattern, const RegexSyntax& syntax) {
  return Parser(pattern, syntax).parse();
}

}  // namespace coreai::grammar
