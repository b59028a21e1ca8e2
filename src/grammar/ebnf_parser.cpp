#include "grammar/ebnf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "coreai/base/error.h"
#include "grammar/free_text.h"
#include "grammar/token_terminals.h"

namespace coreai::grammar {
namespace {

using Kind = AstNode::Kind;
constexpr int kMaxDepth = 250;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

class Parser {
 public:
  Parser(std::string_view text, GrammarAst& ast, ExpressionPool& pool, const TokenizerInfo& tokenizer)
      : text_(text), ast_(ast), pool_(pool), tokenizer_(tokenizer) {}

  AstId parse(std::string_view start) {
    for (skip_space(); at_ < text_.size(); skip_space()) definition();
    for (const auto& [name, rule] : rules_)
      if (!rule.defined) malformed(fmt::format("the rule '{}' is used but not defined", name), rule.first_use);
    const auto found = rules_.find(start);
    if (found == rules_.end()) malformed(fmt::format("there is no rule '{}' to start with", start), 0);
    return ast_.reference(found->second.index);
  }

 private:
  struct Rule {
    std::uint32_t index;
    bool defined;
    std::size_t first_use;
  };

  [[noreturn]] void malformed(const std::string& what, std::size_t offset) const {
    const std::string_view before = text_.substr(0, offset);
    const auto line = std::ranges::count(before, '\n') + 1;
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
    throw MalformedError(what, fmt::format("the grammar, line {} column {}", line, column), offset,
                         "rules read: name ::= \"text\" [a-z] other-rule ( ... | ... )*");
  }
  [[noreturn]] void malformed(const std::string& what) const { malformed(what, at_); }
  [[noreturn]] void unsupported(const std::string& what, const std::string& next_step) const {
    throw UnsupportedError(fmt::format("{} at byte {}", what, at_), "the grammar", next_step);
  }

  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool ahead(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!ahead(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip_space() {
    for (; at_ < text_.size(); ++at_) {
      if (here() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (at_ == text_.size()) return;
      } else if (here() != ' ' && here() != '\t' && here() != '\n' && here() != '\r') {
        return;
      }
    }
  }

  std::string_view name() {
    const std::size_t from = at_;
    while (is_name(here())) ++at_;
    if (at_ == from) malformed("a rule name is expected");
    return text_.substr(from, at_ - from);
  }
  std::uint32_t rule_index(std::string_view of, std::size_t offset, bool defines) {
    auto found = rules_.find(of);
    if (found == rules_.end())
      found = rules_.emplace(std::string(of), Rule{ast_.add_rule(std::string(of)), false, offset}).first;
    if (defines && found->second.defined) malformed(fmt::format("the rule '{}' is defined a second time", of), offset);
    found->second.defined |= defines;
    return found->second.index;
  }

  void definition() {
    const std::size_t offset = at_;
    const std::string_view defined = name();
    skip_space();
    if (here() == '[') unsupported(fmt::format("an option of the rule '{}'", defined), "leave it out");
    if (!take("::=")) malformed(fmt::format("'::=' is expected after the rule name '{}'", defined));
    const std::uint32_t rule = rule_index(defined, offset, true);
    ast_.rules()[rule].body = choice();
    skip_space();
    if (at_ < text_.size() && !is_name(here())) malformed(fmt::format("'{}' does not belong here", here()));
  }

  AstId choice() {
    if (++depth_ > kMaxDepth)
      unsupported(fmt::format("groups more than {} deep", kMaxDepth), "give the inner ones a rule");
    std::vector<AstId> choices;
    do choices.push_back(sequence());
    while (take("|"));
    --depth_;
    return ast_.choice(std::move(choices));
  }

  AstId sequence() {
    std::vector<AstId> parts;
    for (;;) {
      skip_space();
      if (at_ == text_.size() || here() == '|' || here() == ')' || begins_definition()) break;
      parts.push_back(repeated(item()));
    }
    return ast_.sequence(std::move(parts));
  }

  // A name followed by '::=' begins the next rule.
  bool begins_definition() {
    const std::size_t before = at_;
    while (is_name(here())) ++at_;
    bool begins = at_ > before;
    skip_space();
    begins = begins && ahead("::=");
    at_ = before;
    return begins;
  }

  AstId item() {
    if (here() == '"') return literal();
    if (here() == '[') return ast_.add({.kind = Kind::kSet, .set = char_class()});
    if (take(".")) return ast_.add({.kind = Kind::kSet, .set = CodePointSet::all()});
    if (ahead("(=")) unsupported("look-ahead", "leave it out: masks are exact without it");
    if (here() == '<' || here() == '!') return token_terminal();
    if (take("(")) {
      const std::size_t open = at_ - 1;
      const AstId inner = choice();
      if (!take(")")) malformed("the group is not closed", open);
      return inner;
    }
    if (!is_name(here())) malformed(fmt::format("'{}' begins no item", here()));
    const std::size_t offset = at_;
    const std::string_view used = name();
    if (here() == '(') return macro(used);
    return ast_.reference(rule_index(used, offset, false));
  }

  AstId tokens(const TokenSet& set) { return ast_.token_leaf(pool_, set.expression(pool_)); }

  // <[12]>, <text>, and all others than these behind '!'.
  AstId token_terminal() {
    const bool negated = take("!");
    const std::size_t open = at_;
    if (here() != '<') malformed("'<' is expected after '!'");
    const std::size_t close = text_.find(ahead("<[") ? "]>" : ">", at_);
    if (close == std::string_view::npos || text_.substr(at_, close - at_).find('\n') != std::string_view::npos)
      malformed("the token is not closed", open);
    at_ = close + (ahead("<[") ? 2 : 1);
    const TokenSet named = parse_token_terminal(tokenizer_, text_.substr(open, at_ - open));
    return tokens(negated ? named.others() : named);
  }

  AstId macro(std::string_view name) {
    if (name == "Token" || name == "ExcludeToken") {
      const TokenSet named = token_list();
      return tokens(name == "Token" ? named : named.others());
    }
    if (name == "TagDispatch") return dispatch(false);
    if (name == "TokenTagDispatch") return dispatch(true);
    unsupported(fmt::format("the macro '{}'", name), "write a rule");
  }

  void expect(std::string_view what) {
    skip_space();
    if (!take(what)) malformed(fmt::format("'{}' is expected", what));
    skip_space();
  }
  // ( 1, 2 ), also with a comma at the end.
  TokenSet token_list() {
    TokenSet out(tokenizer_);
    expect("(");
    while (!take(")")) {
      const auto id = number();
      if (!id) malformed("a token's number is expected");
      out.insert(std::int64_t{*id});
      if (!ahead(")")) expect(",");
    }
    return out;
  }
  std::vector<std::string> text_list() {
    std::vector<std::string> out;
    expect("(");
    while (!take(")")) {
      if (here() != '"') malformed("a text is expected");
      out.push_back(quoted());
      skip_space();
      if (!ahead(")")) expect(",");
    }
    return out;
  }

  // Free text or tokens, until one of the tags: ( ("tag", rule), ..., loop_after_dispatch=false, excludes=("text",) ).
  AstId dispatch(bool by_token) {
    struct Tag {
      std::string text;
      std::optional<TokenSet> token;
      AstId rule;
    };
    std::vector<Tag> tags;
    std::vector<std::string> excludes;
    TokenSet excluded(tokenizer_);
    bool loop = true;
    const std::size_t open = at_;
    expect("(");
    while (!take(")")) {
      const std::size_t offset = at_;
      if (take("(")) {
        skip_space();
        Tag& tag = tags.emplace_back();
        if (by_token) {
          const auto id = number();
          if (!id) malformed("a token's number is expected");
          tag.token.emplace(tokenizer_).insert(std::int64_t{*id});
        } else {
          if (here() != '"') malformed("a text is expected");
          tag.text = quoted();
          if (tag.text.empty()) malformed("an empty tag", offset);
        }
        expect(",");
        const std::size_t used = at_;
        tag.rule = ast_.reference(rule_index(name(), used, false));
        expect(")");
      } else {
        const std::string_view option = name();
        expect("=");
        if (option == "loop_after_dispatch") {
          loop = take("true");
          if (!loop && !take("false")) malformed("'true' or 'false' is expected");
        } else if (option == "excludes" && by_token) {
          excluded = token_list();
        } else if (option == "excludes") {
          excludes = text_list();
        } else {
          at_ = offset;
          unsupported(fmt::format("the option '{}'", option), "leave it out");
        }
      }
      skip_space();
      if (!ahead(")")) expect(",");
    }
    if (std::ranges::find(excludes, "") != excludes.end()) malformed("an empty text is excluded", open);
    const std::uint32_t rule = ast_.add_rule("free text");
    const auto then = [&](AstId content) { return loop ? ast_.sequence({content, ast_.reference(rule)}) : content; };
    if (by_token) {
      TokenSet special = excluded;
      std::vector<AstId> choices{ast_.empty_text()};
      for (const Tag& tag : tags) {
        choices.push_back(ast_.sequence({tokens(*tag.token), then(tag.rule)}));
        special.insert_all(*tag.token);
      }
      choices.push_back(ast_.sequence({tokens(special.others()), ast_.reference(rule)}));
      ast_.rules()[rule].body = ast_.choice(std::move(choices));
    } else {
      std::vector<FreeTextEnd> ends;
      ends.reserve(tags.size());
      for (const Tag& tag : tags) ends.push_back({tag.text, then(tag.rule)});
      define_free_text(ast_, pool_, rule, ends, excludes, true);
    }
    return ast_.reference(rule);
  }

  AstId repeated(AstId of) {
    for (;;) {
      std::uint32_t min = 0, max = kUnbounded;
      if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (!take("*")) {
        if (!take("{")) return of;
        bounds(min, max);
      }
      of = ast_.add({.kind = Kind::kRepeat, .min = min, .max = max, .children = {of}});
    }
  }

  std::optional<std::uint32_t> number() {
    skip_space();
    const std::size_t from = at_;
    std::uint64_t value = 0;
    for (; here() >= '0' && here() <= '9'; ++at_)
      value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(here() - '0'), kUnbounded - 1);
    const bool found = at_ > from;
    skip_space();
    return found ? std::optional(static_cast<std::uint32_t>(value)) : std::nullopt;
  }
  void bounds(std::uint32_t& min, std::uint32_t& max) {
    const std::size_t open = at_ - 1;
    const auto low = number();
    std::optional<std::uint32_t> high = low;
    if (take(",")) {
      high = number();
      if (!high) high = kUnbounded;
      if (!low && *high == kUnbounded) malformed("a repetition without a bound", open);
    }
    if (!high || !take("}")) malformed("a repetition reads {n}, {n,}, {n,m} or {,m}", open);
    min = low.value_or(0);
    max = *high;
    if (min > max) malformed(fmt::format("a repetition from {} to {} times", min, max), open);
  }

  AstId literal() { return ast_.literal(quoted()); }
  std::string quoted() {
    const std::size_t open = at_++;
    std::string bytes;
    while (here() != '"' || at_ == text_.size()) {
      if (at_ == text_.size() || here() == '\n') malformed("the text is not closed", open);
      append_utf8(character(), bytes);
    }
    ++at_;
    return bytes;
  }

  CodePointSet char_class() {
    const std::size_t open = at_++;
    const bool negated = take("^");
    CodePointSet out;
    while (here() != ']') {
      if (at_ >= text_.size()) malformed("the class is not closed", open);
      const std::size_t offset = at_;
      const std::uint32_t first = character();
      std::uint32_t last = first;
      if (here() == '-' && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        if (at_ >= text_.size()) malformed("the class is not closed", open);
        last = character();
      }
      if (first > last) malformed("a class range in descending order", offset);
      out.insert(first, last);
    }
    ++at_;
    return negated ? out.complement() : out;
  }

  // One code point, plain or escaped.
  std::uint32_t character() {
    if (here() == '\\') return escape();
    const auto point = next_code_point(text_, at_);
    if (!point) malformed("not UTF-8");
    return *point;
  }

  std::uint32_t escape() {
    const std::size_t offset = at_++;
    const char c = here();
    if (at_ < text_.size()) ++at_;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1b;
      case '0':
        return 0;
      case 'x':
        return code_point(2, offset);
      case 'u':
        if (take("{")) {
          const std::size_t close = text_.find('}', at_);
          const std::size_t digits = close == std::string_view::npos ? 0 : close - at_;
          if (digits == 0 || digits > 8) malformed("the escape means no code point", offset);
          const std::uint32_t point = code_point(digits, offset);
          ++at_;
          return point;
        }
        return code_point(4, offset);
      case 'U':
        return code_point(8, offset);
      default:
        break;
    }
    constexpr std::string_view kThemselves = "\\\"'[]()^-{}.*+?|/$<>!";
    if (c == '\0' || kThemselves.find(c) == std::string_view::npos) malformed("the escape means nothing", offset);
    return static_cast<unsigned char>(c);
  }
  std::uint32_t code_point(std::size_t digits, std::size_t offset) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const int digit = hex_digit(here());
      if (digit < 0) malformed(fmt::format("the escape needs {} hexadecimal digits", digits), offset);
      value = value * 16 + static_cast<std::uint64_t>(digit);
    }
    if (value > kMaxCodePoint || (value >= 0xd800 && value <= 0xdfff))
      malformed("the escape means no code point", offset);
    return static_cast<std::uint32_t>(value);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  GrammarAst& ast_;
  ExpressionPool& pool_;
  const TokenizerInfo& tokenizer_;
  std::map<std::string, Rule, std::less<>> rules_;
};

}  // namespace

AstId parse_ebnf(std::string_view text, std::string_view start, GrammarAst& ast, ExpressionPool& pool,
                 const TokenizerInfo& tokenizer) {
  return Parser(text, ast, pool, tokenizer).parse(start);
}

}  // namespace coreai::grammar
