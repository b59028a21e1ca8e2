#include "grammar/lark_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "coreai/base/error.h"
#include "grammar/json_document.h"
#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/schema_machine.h"
#include "grammar/token_terminals.h"

namespace coreai::grammar {
namespace {

using Kind = LarkNode::Kind;
constexpr int kMaxDepth = 100;

struct CommonTerminal {
  std::string_view name, pattern;
};
// What Lark's library common.lark calls so, as patterns.
constexpr CommonTerminal kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"_EXP", "[eE][+\\-]?[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+\\-]?(?:[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+\\-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z_0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "\\/\\/[^\\n]*"},
    {"C_COMMENT", "\\/\\*(?:[^*]|\\*+[^*\\/])*\\*+\\/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_white(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f';
}

// Without the white space and comments that the flag x allows.
std::string compact_pattern(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      out += c;
      out += pattern[++i];
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    if (!in_class && c == '#') return out;  // a pattern is one line
    if (in_class || !is_white(c)) out += c;
  }
  return out;
}

// Words, runs of white space, and every other character by itself.
std::vector<std::string> chunks_of(std::string_view text, bool by_character) {
  const auto kind = [](std::string_view c) {
    if (c.size() > 1 || is_letter(c[0]) || is_digit(c[0]) || c[0] == '_') return 'w';
    return is_white(c[0]) ? 's' : '.';
  };
  std::vector<std::string> out;
  char last = '.';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    next_code_point(text, at);
    const std::string_view c = text.substr(from, at - from);
    if (by_character || kind(c) == '.' || kind(c) != last) {
      out.emplace_back(c);
    } else {
      out.back() += c;
    }
    last = kind(c);
  }
  return out;
}

class Reader {
 public:
  Reader(std::string_view text, const JsonSchemaOptions& options, const GrammarCompilerOptions& budget,
         ExpressionPool& pool, const TokenizerInfo& tokenizer)
      : text_(text), options_(options), budget_(budget), pool_(pool), tokenizer_(tokenizer) {}

  LarkSyntax read() {
    for (skip_lines(); at_ < text_.size(); skip_lines()) {
      if (here() == '%') {
        directive();
      } else {
        definition();
      }
      skip_space();
      if (at_ < text_.size() && here() != '\n') malformed(fmt::format("'{}' does not belong here", here()));
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void malformed(const std::string& what, std::size_t offset) const {
    throw MalformedError(what, lark_place(text_, offset), offset,
                         "definitions read: name: \"text\" /pattern/ other | ...");
  }
  [[noreturn]] void malformed(const std::string& what) const { malformed(what, at_); }
  [[noreturn]] void unsupported(const std::string& what, const std::string& next_step) const {
    throw UnsupportedError(what, lark_place(text_, at_), next_step);
  }

  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char next() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }
  bool ahead(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!ahead(what)) return false;
    at_ += what.size();
    return true;
  }
  void expect(std::string_view what) {
    skip_space();
    if (!take(what)) malformed(fmt::format("'{}' is expected", what));
    skip_space();
  }
  void skip_lines() {
    for (;; ++at_) {
      if (here() == '#' || ahead("//")) at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ >= text_.size() || !is_white(here())) return;
    }
  }
  // Inside brackets lines do not matter.
  void skip_space() {
    if (brackets_ > 0) return skip_lines();
    while (is_white(here()) && here() != '\n') ++at_;
    if (here() == '#' || ahead("//")) at_ = std::min(text_.find('\n', at_), text_.size());
  }

  std::string name() {
    const std::size_t from = at_;
    const auto belongs = [&](char c) {
      return is_letter(c) || c == '_' || (at_ > from && (is_digit(c) || (c == '-' && next() != '>')));
    };
    while (belongs(here())) ++at_;
    if (at_ == from) malformed("a name is expected");
    return std::string(text_.substr(from, at_ - from));
  }
  LarkId add(LarkNode node) {
    out_.nodes.push_back(std::move(node));
    return static_cast<LarkId>(out_.nodes.size() - 1);
  }
  LarkId text(ExprId expression, std::size_t offset) {
    return add({.kind = Kind::kText, .offset = offset, .expression = expression});
  }

  void define(const std::string& name, LarkDefinition definition) {
    const std::size_t offset = definition.offset;
    if (!out_.named.emplace(name, definition).second)
      malformed(fmt::format("'{}' is defined a second time", name), offset);
  }

  void definition() {
    if (here() == '?' || here() == '!') ++at_;  // for trees, which are not made here
    LarkDefinition made{.offset = at_};
    const std::string defined = name();
    if (here() == '{') unsupported(fmt::format("the template '{}'", defined), "write a rule for each use");
    if (here() == '.') unsupported(fmt::format("a priority of '{}'", defined), "leave it out: nothing is chosen by it");
    if (take("[")) attributes(made);
    skip_space();
    if (!take(":")) malformed(fmt::format("':' is expected after '{}'", defined));
    made.body = choice();
    define(defined, made);
  }

  void attributes(LarkDefinition& of) {
    ++brackets_;
    for (bool more = true; more;) {
      skip_space();
      const std::string option = name();
      skip_space();
      if (option == "lazy" && here() != '=') {
        of.lazy = true;
      } else if (option == "suffix" && take("=")) {
        skip_space();
        of.suffixed = true;
        of.suffix = atom();
      } else {
        unsupported(fmt::format("the option '{}' of a rule", option), "leave it out, or use lazy or suffix=\"...\"");
      }
      skip_space();
      more = take(",");
    }
    expect("]");
    --brackets_;
  }

  void directive() {
    const std::size_t offset = at_++;
    const std::string what = name();
    skip_space();
    if (what == "ignore") {
      out_.ignored.push_back(choice());
    } else if (what == "import") {
      import();
    } else if (what == "llguidance" || what == "grammar_options") {
      options();
    } else {
      at_ = offset;
      unsupported(fmt::format("'%{}'", what), "leave it out");
    }
  }

  void options() {
    const std::size_t offset = at_;
    const JsonNode given = parse_json_document(braced());
    for (std::size_t i = 0; i < given.keys.size(); ++i) {
      const JsonNode& value = given.children[i];
      const bool known = given.keys[i] == "allow_initial_skip" || given.keys[i] == "no_forcing";
      if (!known || !value.is(JsonNode::Kind::kBoolean)) {
        at_ = offset;
        unsupported(fmt::format("the option '{}'", given.keys[i]), "leave it out");
      }
      if (given.keys[i] == "allow_initial_skip") out_.initial_ignored = value.flag;
    }
  }

  void import() {
    const std::size_t offset = at_;
    if (name() != "common") {
      at_ = offset;
      unsupported("imports from other places than 'common'", "write the definitions here");
    }
    if (take(".")) {
      const std::size_t at = at_;
      const std::string imported = name();
      skip_space();
      std::string alias = imported;
      if (take("->")) {
        skip_space();
        alias = name();
      }
      return import_common(imported, alias, at);
    }
    expect("(");
    ++brackets_;
    do {
      skip_space();
      const std::size_t at = at_;
      const std::string imported = name();
      import_common(imported, imported, at);
      skip_space();
    } while (take(","));
    if (!take(")")) malformed("')' is expected");
    --brackets_;
  }
  void import_common(std::string_view imported, const std::string& alias, std::size_t offset) {
    const auto found = std::ranges::find(kCommon, imported, &CommonTerminal::name);
    if (found == std::end(kCommon)) malformed(fmt::format("'common' has no terminal '{}'", imported), offset);
    const ExprId e = regex_expression(pool_, found->pattern, RegexMatch::kWhole, Utf8Encoder());
    define(alias, {.body = text(e, offset), .offset = offset});
  }

  LarkId choice() {
    if (++depth_ > kMaxDepth)
      unsupported(fmt::format("groups more than {} deep", kMaxDepth), "give the inner ones a rule");
    LarkNode node{.kind = Kind::kChoice, .offset = at_};
    do {
      node.children.push_back(conjunction());
      continue_line();
    } while (take("|"));
    --depth_;
    return add(std::move(node));
  }
  // A line that begins with '|' goes on with the definition above.
  void continue_line() {
    skip_space();
    if (brackets_ > 0 || here() != '\n') return;
    const std::size_t before = at_;
    skip_lines();
    if (here() != '|') at_ = before;
  }

  LarkId conjunction() {
    LarkNode node{.kind = Kind::kAnd, .offset = at_};
    do node.children.push_back(sequence());
    while (take("&"));
    if (take("->")) {
      skip_space();
      name();
      skip_space();
    }
    return node.children.size() == 1 ? node.children[0] : add(std::move(node));
  }

  LarkId sequence() {
    LarkNode node{.kind = Kind::kSequence, .offset = at_};
    for (;;) {
      skip_space();
      if (at_ >= text_.size() || std::string_view("\n|&)]").find(here()) != std::string_view::npos || ahead("->"))
        break;
      node.children.push_back(expression());
    }
    return node.children.size() == 1 ? node.children[0] : add(std::move(node));
  }

  LarkId expression() {
    const std::size_t offset = at_;
    bool negated = false;
    for (; take("~"); skip_space()) negated = !negated;
    LarkId item = atom();
    if (negated) item = add({.kind = Kind::kNot, .offset = offset, .children = {item}});
    for (;;) {
      skip_space();
      std::uint32_t min = 0, max = kUnbounded;
      if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (!take("*") && !bounds(min, max)) {
        return item;
      }
      item = add({.kind = Kind::kRepeat, .min = min, .max = max, .offset = offset, .children = {item}});
    }
  }

  std::optional<std::uint32_t> number() {
    const std::size_t from = at_;
    std::uint64_t value = 0;
    for (; is_digit(here()); ++at_)
      value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(here() - '0'), kUnbounded - 1);
    return at_ == from ? std::nullopt : std::optional(static_cast<std::uint32_t>(value));
  }
  // ~n, ~n..m, {n}, {n,}, {,m}, {n,m}; false where there is none.
  bool bounds(std::uint32_t& min, std::uint32_t& max) {
    const std::size_t open = at_;
    std::optional<std::uint32_t> low, high;
    if (here() == '~') {
      ++at_;
      skip_space();
      low = high = number();
      if (!low) {  // it belongs to what comes next
        at_ = open;
        return false;
      }
      if (take("..")) high = number();
      if (!high) malformed("a repetition reads ~n or ~n..m", open);
    } else if (take("{")) {
      ++brackets_;
      skip_space();
      low = high = number();
      skip_space();
      if (take(",")) {
        skip_space();
        high = number();
        if (!low && !high) malformed("a repetition without a bound", open);
        if (!high) high = kUnbounded;
      }
      skip_space();
      if (!high || !take("}")) malformed("a repetition reads {n}, {n,}, {,m} or {n,m}", open);
      --brackets_;
    } else {
      return false;
    }
    min = low.value_or(0);
    max = *high;
    if (min > max) malformed(fmt::format("a repetition from {} to {} times", min, max), open);
    return true;
  }

  LarkId atom() {
    const std::size_t offset = at_;
    if (here() == '(' || here() == '[') {
      const bool optional = here() == '[';
      ++at_;
      ++brackets_;
      const LarkId inner = choice();
      if (!take(optional ? "]" : ")")) malformed("the group is not closed", offset);
      --brackets_;
      if (!optional) return inner;
      return add({.kind = Kind::kRepeat, .min = 0, .max = 1, .offset = offset, .children = {inner}});
    }
    if (here() == '"') return literal();
    if (here() == '/') return pattern();
    if (here() == '<') return token();
    if (take("%json")) return schema(offset);
    if (take("%regex")) return substring(offset);
    if (here() == '%') unsupported("a directive inside a definition other than %json and %regex", "write a rule");
    if (here() == '@') unsupported("a reference to another grammar", "write its rules here");
    if (!is_letter(here()) && here() != '_') malformed(fmt::format("'{}' begins no item", here()));
    std::string used = name();
    return add({.kind = Kind::kName, .offset = offset, .name = std::move(used)});
  }

  LarkId token() {
    const std::size_t open = at_;
    const bool by_id = ahead("<[");
    const std::size_t close = text_.find(by_id ? "]>" : ">", at_);
    if (close == std::string_view::npos || text_.substr(at_, close - at_).find('\n') != std::string_view::npos)
      malformed("the token is not closed", open);
    at_ = close + (by_id ? 2 : 1);
    const TokenSet set = parse_token_terminal(tokenizer_, text_.substr(open, at_ - open));
    return add({.kind = Kind::kTokens, .offset = open, .expression = set.expression(pool_)});
  }

  // "text", "text"i and "a".."z".
  LarkId literal() {
    const std::size_t open = at_;
    const std::string written = quoted();
    if (here() == 'i' && !is_letter(next())) {
      ++at_;
      ExprId out = kEmptyString;
      for (std::size_t i = written.size(); i-- > 0;) {
        const char c = written[i];
        if (static_cast<unsigned char>(c) > 0x7f) malformed("letters beyond A to Z without regard to case", open);
        ByteSet both = ByteSet::one(static_cast<std::uint8_t>(c));
        if (is_letter(c)) both.insert(static_cast<std::uint8_t>(c ^ 0x20));
        out = pool_.concat(pool_.bytes(both), out);
      }
      return text(out, open);
    }
    if (!ahead("..")) return text(pool_.literal(written), open);
    at_ += 2;
    if (here() != '"') malformed("a range reads \"a\"..\"z\"", open);
    const auto first = single(written), last = single(quoted());
    if (!first || !last || *first > *last) malformed("a range from one character to a later one is expected", open);
    return text(utf8_expression(pool_, {{*first, *last}}), open);
  }
  static std::optional<std::uint32_t> single(std::string_view of) {
    std::size_t at = 0;
    const auto point = next_code_point(of, at);
    return at == of.size() ? point : std::nullopt;
  }

  std::string quoted() {
    const std::size_t open = at_++;
    std::string out;
    while (here() != '"') {
      if (at_ >= text_.size() || here() == '\n') malformed("the text is not closed", open);
      if (here() == '\\') {
        append_utf8(escape(), out);
        continue;
      }
      const auto point = next_code_point(text_, at_);
      if (!point) malformed("not UTF-8");
      append_utf8(*point, out);
    }
    ++at_;
    return out;
  }

  std::uint32_t escape() {
    const std::size_t offset = at_++;
    const char c = here();
    if (at_ < text_.size()) ++at_;
    constexpr std::string_view kLetters = "nrtbfva0", kMeant("\n\r\t\b\f\v\a\0", 8);
    if (const auto found = kLetters.find(c); c != '\0' && found != std::string_view::npos)
      return static_cast<unsigned char>(kMeant[found]);
    if (c == 'x') return hex(2, offset);
    if (c == 'U') return hex(8, offset);
    if (c == 'u') {
      const std::uint32_t high = hex(4, offset, true);
      if (high < 0xd800 || high > 0xdfff) return high;
      if (high > 0xdbff || !take("\\u")) malformed("the escape means no code point", offset);
      const std::uint32_t low = hex(4, offset, true);
      if (low < 0xdc00 || low > 0xdfff) malformed("the escape means no code point", offset);
      return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    if (std::string_view("\\\"'/<>").find(c) == std::string_view::npos || c == '\0')
      malformed("the escape means nothing", offset);
    return static_cast<unsigned char>(c);
  }
  std::uint32_t hex(int digits, std::size_t offset, bool surrogates = false) {
    std::uint64_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = here();
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) malformed(fmt::format("the escape needs {} hexadecimal digits", digits), offset);
      value = value * 16 + static_cast<std::uint64_t>(digit);
    }
    if (value > kMaxCodePoint || (!surrogates && value >= kFirstSurrogate && value <= kLastSurrogate))
      malformed("the escape means no code point", offset);
    return static_cast<std::uint32_t>(value);
  }

  LarkId pattern() {
    const std::size_t open = at_++;
    for (; here() != '/'; ++at_) {
      if (here() == '\\') ++at_;
      if (at_ >= text_.size() || here() == '\n') malformed("the pattern is not closed", open);
    }
    std::string written(text_.substr(open + 1, at_ - open - 1));
    if (written.empty()) malformed("an empty pattern", open);
    ++at_;
    RegexSyntax syntax{.only_line_feeds = true};
    for (; is_letter(here()); ++at_) {
      if (here() == 'i') {
        syntax.ignore_case = true;
      } else if (here() == 's') {
        syntax.dot_all = true;
      } else if (here() == 'x') {
        written = compact_pattern(written);
      } else if (here() != 'u') {
        unsupported(fmt::format("the flag '{}' of a pattern", here()), "leave it out");
      }
    }
    try {
      return text(regex_expression(pool_, written, RegexMatch::kWhole, Utf8Encoder(), syntax), open);
    } catch (const MalformedError& error) {
      throw MalformedError(error.problem(), lark_place(text_, open) + ", " + error.where(), open + 1 + error.offset(),
                           error.next_step());
    }
  }

  // The JSON object that comes next, as text.
  std::string_view braced() {
    skip_lines();
    const std::size_t open = at_;
    if (here() != '{') malformed("an object of JSON is expected");
    int depth = 0;
    bool in_text = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = here();
      if (in_text && c == '\\') {
        ++at_;
      } else if (c == '"') {
        in_text = !in_text;
      } else if (!in_text && c == '{') {
        ++depth;
      } else if (!in_text && c == '}' && --depth == 0) {
        ++at_;
        return text_.substr(open, at_ - open);
      }
    }
    at_ = open;
    malformed("the object of JSON is not closed");
  }

  LarkId schema(std::size_t offset) {
    const std::string_view written = braced();
    const auto start = static_cast<std::size_t>(written.data() - text_.data());
    const auto place = [&](const std::string& where) {
      return fmt::format("{}, {}", lark_place(text_, offset), where);
    };
    try {
      const auto machine = inner_schema(written, options_, budget_, used_);
      for (DroppedKeyword& dropped : machine->take_dropped())
        out_.dropped.push_back({std::move(dropped.pointer), place(dropped.reason)});
      const ExprId e = pool_.foreign(machine);
      return add({.kind = Kind::kForeign, .offset = offset, .expression = e});
    } catch (const MalformedError& error) {
      throw MalformedError(error.problem(), place(error.where()), start + error.offset(), error.next_step());
    } catch (const InvalidArgumentError& error) {
      throw InvalidArgumentError(error.problem(), place(error.where()), error.next_step());
    } catch (const UnsupportedError& error) {
      throw UnsupportedError(error.problem(), place(error.where()), error.next_step());
    }
  }

  // Neighbouring pieces of a text: {"substring_chunks": [...]}, {"substring_words": "..."} or {"substring_chars":
  // "..."}.
  LarkId substring(std::size_t offset) {
    const std::string_view written = braced();
    const auto start = static_cast<std::size_t>(written.data() - text_.data());
    std::optional<JsonNode> parsed;
    try {
      parsed = parse_json_document(written);
    } catch (const MalformedError& error) {
      throw MalformedError(error.problem(), lark_place(text_, offset), start + error.offset(), error.next_step());
    }
    const JsonNode& given = *parsed;
    std::vector<std::string> chunks;
    const bool one = given.keys.size() == 1;
    if (one && given.keys[0] == "substring_chunks" && given.children[0].is(JsonNode::Kind::kArray)) {
      chunks.reserve(given.children[0].children.size());
      for (const JsonNode& chunk : given.children[0].children) {
        if (!chunk.is(JsonNode::Kind::kString)) malformed("\"substring_chunks\" is a list of texts", offset);
        chunks.push_back(chunk.text);
      }
    } else if (one && (given.keys[0] == "substring_words" || given.keys[0] == "substring_chars") &&
               given.children[0].is(JsonNode::Kind::kString)) {
      chunks = chunks_of(given.children[0].text, given.keys[0] == "substring_chars");
    } else {
      at_ = offset;
      unsupported("a %regex other than substring_chunks, substring_words or substring_chars", "write a pattern");
    }
    std::vector<ExprId> from{kEmptyString};
    from.reserve(chunks.size() + 1);
    for (std::size_t i = chunks.size(); i-- > 0;)
      from.push_back(pool_.optional(pool_.concat(pool_.literal(chunks[i]), from.back())));
    return text(pool_.any_of(from), offset);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int brackets_ = 0, depth_ = 0;
  std::size_t used_ = 0;  // expressions of the schemas so far: together they have one budget to be compiled in
  const JsonSchemaOptions& options_;
  const GrammarCompilerOptions& budget_;
  ExpressionPool& pool_;
  const TokenizerInfo& tokenizer_;
  LarkSyntax out_;
};

}  // namespace

std::string lark_place(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  return fmt::format("the grammar, line {} column {}", line,
                     newline == std::string_view::npos ? offset + 1 : offset - newline);
}

bool is_lark_terminal(std::string_view name) {
  const std::size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

LarkSyntax read_lark(std::string_view text, const JsonSchemaOptions& options, const GrammarCompilerOptions& budget,
                     ExpressionPool& pool, const TokenizerInfo& tokenizer) {
  return Reader(text, options, budget, pool, tokenizer).read();
}

}  // namespace coreai::grammar
