#include "grammar/structural_tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "coreai/base/error.h"
#include "grammar/ebnf_parser.h"
#include "grammar/free_text.h"
#include "grammar/json_document.h"
#include "grammar/json_text.h"
#include "grammar/lark_parser.h"
#include "grammar/regex.h"
#include "grammar/schema_machine.h"
#include "grammar/token_terminals.h"

namespace coreai::grammar {
namespace {

using Kind = JsonNode::Kind;
constexpr int kMaxDepth = 100;

void write_json(const JsonNode& node, std::string& out) {
  switch (node.kind) {
    case Kind::kNull:
      out += "null";
      return;
    case Kind::kBoolean:
      out += node.flag ? "true" : "false";
      return;
    case Kind::kNumber:
      out += node.text;
      return;
    case Kind::kString:
      out += '"' + json_escaped(node.text) + '"';
      return;
    case Kind::kArray:
    case Kind::kObject:
      out += node.is(Kind::kArray) ? '[' : '{';
      for (std::size_t i = 0; i < node.children.size(); ++i) {
        if (i > 0) out += ',';
        if (node.is(Kind::kObject)) out += '"' + json_escaped(node.keys[i]) + "\":";
        write_json(node.children[i], out);
      }
      out += node.is(Kind::kArray) ? ']' : '}';
  }
}

// A value of the document and where it stands.
struct Part {
  const JsonNode& node;
  std::string pointer;
};

// What ends the content around it. Content that could go on for ever stops at the first of them.
struct Ends {
  std::vector<std::string> texts;
  std::optional<TokenSet> tokens;
  AstId node = 0;
};

class Builder {
 public:
  Builder(const JsonSchemaOptions& options, const GrammarCompilerOptions& budget, GrammarAst& ast, ExpressionPool& pool,
          const TokenizerInfo& tokenizer)
      : options_(options), budget_(budget), ast_(ast), pool_(pool), tokenizer_(tokenizer) {}

  AstId document(const Part& part) {
    if (!part.node.is(Kind::kObject)) wrong(part.pointer, "a structural tag is an object");
    if (part.node.find("format") != nullptr) {
      only(part, {"type", "format"});
      if (part.node.find("type") != nullptr && text(part, "type") != "structural_tag")
        wrong(part.pointer + "/type", fmt::format("'{}' is not \"structural_tag\"", text(part, "type")));
      return format(field(part, "format"), nullptr);
    }
    return legacy(part);
  }
  std::vector<DroppedKeyword> take_dropped() { return std::move(dropped_); }

 private:
  [[noreturn]] static void wrong(std::string pointer, std::string what) {
    throw InvalidArgumentError(std::move(what), std::move(pointer));
  }
  [[noreturn]] static void unsupported(std::string pointer, std::string what) {
    throw UnsupportedError(std::move(what), std::move(pointer), "docs/grammar.md lists what structural tags may hold");
  }
  static void only(const Part& part, std::initializer_list<std::string_view> known) {
    for (const std::string& key : part.node.keys)
      if (std::ranges::find(known, key) == known.end())
        unsupported(fmt::format("{}/{}", part.pointer, key), fmt::format("the field \"{}\" is not read here", key));
  }
  static Part field(const Part& part, std::string_view key) {
    const JsonNode* found = part.node.find(key);
    if (found == nullptr) wrong(part.pointer, fmt::format("the field \"{}\" is missing", key));
    return {*found, fmt::format("{}/{}", part.pointer, key)};
  }
  static Part of_kind(Part part, Kind kind, std::string_view name) {
    if (!part.node.is(kind)) wrong(part.pointer, fmt::format("{} is wanted", name));
    return part;
  }
  static std::string text(const Part& part, std::string_view key) {
    return of_kind(field(part, key), Kind::kString, "a string").node.text;
  }
  static bool flag(const Part& part, std::string_view key, bool otherwise) {
    if (part.node.find(key) == nullptr) return otherwise;
    return of_kind(field(part, key), Kind::kBoolean, "true or false").node.flag;
  }
  static std::vector<Part> elements(const Part& part, std::string_view key, bool may_be_empty) {
    const Part list = of_kind(field(part, key), Kind::kArray, "an array");
    if (list.node.children.empty() && !may_be_empty) wrong(list.pointer, "an empty array means nothing here");
    std::vector<Part> out;
    out.reserve(list.node.children.size());
    for (std::size_t i = 0; i < list.node.children.size(); ++i)
      out.push_back({list.node.children[i], fmt::format("{}/{}", list.pointer, i)});
    return out;
  }
  static std::vector<std::string> texts(const Part& part, std::string_view key, bool required) {
    std::vector<std::string> out;
    if (part.node.find(key) == nullptr && !required) return out;
    for (const Part& element : elements(part, key, !required)) {
      if (of_kind(element, Kind::kString, "a string").node.text.empty()) wrong(element.pointer, "an empty text");
      out.push_back(element.node.text);
    }
    return out;
  }
  static std::optional<std::int64_t> integer(const Part& part) {
    std::int64_t value = 0;
    const std::string& written = part.node.text;
    const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value);
    const bool whole = part.node.is(Kind::kNumber) && error == std::errc() && end == written.data() + written.size();
    return whole ? std::optional(value) : std::nullopt;
  }
  static std::uint32_t count(const Part& part) {
    const auto value = integer(part);
    if (!value || *value < 0 || *value >= std::int64_t{kUnbounded}) wrong(part.pointer, "a number from 0 up is wanted");
    return static_cast<std::uint32_t>(*value);
  }

  // Says where in the structural tag an error of a part lies.
  template <typename Make>
  static auto within(const std::string& pointer, Make&& make) {
    const auto place = [&](const std::string& where) {
      return where.starts_with('#') ? pointer + where.substr(1) : pointer;
    };
    try {
      return make();
    } catch (const MalformedError& error) {
      throw MalformedError(error, pointer + ": " + error.where());
    } catch (const InvalidArgumentError& error) {
      throw InvalidArgumentError(error.problem(), place(error.where()), error.next_step());
    } catch (const UnsupportedError& error) {
      throw UnsupportedError(error.problem(), place(error.where()), error.next_step());
    }
  }

  TokenSet token(const Part& part) {
    return within(part.pointer, [&] {
      TokenSet out(tokenizer_);
      if (part.node.is(Kind::kString)) {
        out.insert(part.node.text);
      } else if (const auto id = integer(part)) {
        out.insert(*id);
      } else {
        wrong("", "a token's id or text is wanted");
      }
      return out;
    });
  }
  TokenSet tokens(const Part& part, std::string_view key) {
    TokenSet out(tokenizer_);
    if (part.node.find(key) == nullptr) return out;
    for (const Part& element : elements(part, key, true)) out.insert_all(token(element));
    return out;
  }
  TokenSet token_format(const Part& part) {
    only(part, {"type", "token"});
    if (text(part, "type") != "token") wrong(part.pointer, "a text or a token is wanted");
    return token(field(part, "token"));
  }
  AstId leaf(const TokenSet& set) { return ast_.token_leaf(pool_, set.expression(pool_)); }

  // The format and, where they are given, its ends.
  AstId format(const Part& part, const Ends* ends) {
    of_kind(part, Kind::kObject, "a format, which is an object,");
    if (++depth_ > kMaxDepth) unsupported(part.pointer, fmt::format("formats more than {} deep", kMaxDepth));
    const std::string type = text(part, "type");
    std::optional<AstId> ended = ends == nullptr ? std::nullopt : stopped(part, type, *ends);
    if (!ended) {
      ended = plain(part, type);
      if (ends != nullptr) ended = ast_.sequence({*ended, ends->node});
    }
    --depth_;
    return *ended;
  }

  AstId plain(const Part& part, const std::string& type) {
    if (type == "const_string") {
      only(part, {"type", "value"});
      return ast_.literal(text(part, "value"));
    }
    if (type == "json_schema") return schema(part);
    if (type == "regex") return regex(part);
    if (type == "grammar") return grammar(part);
    if (type == "any_text") return any_text(part, nullptr);
    if (type == "sequence" || type == "or") return list(part, type, nullptr);
    if (type == "optional" || type == "plus" || type == "star" || type == "repeat") return repeat(part, type);
    if (type == "tag") return tag(part);
    if (type == "triggered_tags") return triggered(part, nullptr);
    if (type == "dispatch") return dispatch(part, nullptr);
    if (type == "tags_with_separator") return separated(part);
    if (type == "token") return leaf(token_format(part));
    if (type == "exclude_token" || type == "any_tokens") return other_tokens(part, type, nullptr);
    if (type == "token_triggered_tags") return token_triggered(part, nullptr);
    if (type == "token_dispatch") return token_dispatch(part, nullptr);
    unsupported(part.pointer + "/type", fmt::format("the format \"{}\" is not built", type));
  }

  // Formats without an end of their own, and those that end with one.
  std::optional<AstId> stopped(const Part& part, const std::string& type, const Ends& ends) {
    if (type == "sequence" || type == "or") return list(part, type, &ends);
    if (!ends.texts.empty() && type == "any_text" && part.node.find("max_chars") == nullptr)
      return any_text(part, &ends);
    if (!ends.texts.empty() && type == "triggered_tags") return triggered(part, &ends);
    if (!ends.texts.empty() && type == "dispatch") return dispatch(part, &ends);
    if (!ends.tokens) return std::nullopt;
    if (type == "exclude_token" || type == "any_tokens")
      return ast_.sequence({other_tokens(part, type, &ends), ends.node});
    if (type == "token_triggered_tags") return token_triggered(part, &ends);
    if (type == "token_dispatch") return token_dispatch(part, &ends);
    return std::nullopt;
  }

  AstId schema(const Part& part) {
    only(part, {"type", "json_schema", "style", "any_order", "max_whitespace_cnt", "excludes"});
    if (part.node.find("style") != nullptr && text(part, "style") != "json")
      unsupported(part.pointer + "/style", fmt::format("arguments in the style \"{}\"", text(part, "style")));
    if (!texts(part, "excludes", false).empty())
      unsupported(part.pointer + "/excludes", "texts excluded from the strings of a schema");
    JsonSchemaOptions options = options_;
    if (part.node.find("any_order") != nullptr)
      options.property_order = flag(part, "any_order", false) ? PropertyOrder::kAny : PropertyOrder::kAsWritten;
    if (const JsonNode* max = part.node.find("max_whitespace_cnt"); max != nullptr && !max->is(Kind::kNull))
      options.whitespace.max = count(field(part, "max_whitespace_cnt"));
    return schema_leaf(field(part, "json_schema"), options);
  }

  AstId schema_leaf(const Part& part, const JsonSchemaOptions& options) {
    std::string written;
    if (part.node.is(Kind::kString)) {
      written = part.node.text;  // JSON as text
    } else {
      write_json(part.node, written);
    }
    const auto key = fmt::format("{}:{}:{}", options.whitespace.max, static_cast<int>(options.property_order), written);
    const auto found = schemas_.find(key);
    if (found != schemas_.end()) return found->second;
    return within(part.pointer, [&] {
      const auto machine = inner_schema(written, options, budget_, used_);
      for (DroppedKeyword& dropped : machine->take_dropped())
        dropped_.push_back({part.pointer + dropped.pointer.substr(1), std::move(dropped.reason)});
      return schemas_[key] = ast_.leaf(pool_, pool_.foreign(machine));
    });
  }

  AstId regex(const Part& part) {
    only(part, {"type", "pattern"});
    const Part pattern = of_kind(field(part, "pattern"), Kind::kString, "a string");
    return within(pattern.pointer, [&] {
      const ExprId e = regex_expression(pool_, pattern.node.text, RegexMatch::kWhole, Utf8Encoder());
      if (pool_.is_nothing(e)) wrong("", "no text matches the pattern");
      return ast_.leaf(pool_, e);
    });
  }

  AstId grammar(const Part& part) {
    only(part, {"type", "grammar", "syntax"});
    const Part written = of_kind(field(part, "grammar"), Kind::kString, "a string");
    const std::string syntax = part.node.find("syntax") == nullptr ? "ebnf" : text(part, "syntax");
    if (syntax != "ebnf" && syntax != "lark")
      unsupported(part.pointer + "/syntax", fmt::format("grammars in the syntax \"{}\"", syntax));
    return within(written.pointer, [&] {
      if (syntax == "ebnf") return parse_ebnf(written.node.text, "root", ast_, pool_, tokenizer_);
      return parse_lark(written.node.text, options_, budget_, ast_, pool_, tokenizer_, dropped_);
    });
  }

  AstId any_text(const Part& part, const Ends* ends) {
    only(part, {"type", "excludes", "max_chars", "max_tokens"});
    const std::vector<std::string> excludes = texts(part, "excludes", false);
    for (const std::string_view key : {"max_tokens", "max_chars"}) {
      const JsonNode* found = part.node.find(key);
      if (found == nullptr || found->is(Kind::kNull)) continue;
      if (key == "max_tokens" || !excludes.empty())
        unsupported(fmt::format("{}/{}", part.pointer, key), "a bound on free text that looks for other texts");
      return ast_.leaf(pool_, pool_.repeat(utf8_expression(pool_, CodePointSet::all()), 0, count(field(part, key))));
    }
    std::string key;  // tags often have the same end
    for (const auto& list : {excludes, ends == nullptr ? std::vector<std::string>() : ends->texts}) {
      for (const std::string& text : list) key += fmt::format("{}:{}", text.size(), text);
      key += ';';
    }
    const auto [known, added] = any_texts_.try_emplace(std::move(key), 0);
    if (!added) return ast_.reference(known->second);
    const std::uint32_t rule = ast_.add_rule("any text");
    known->second = rule;
    define_free_text(ast_, pool_, rule, with_ends({}, ends), excludes, ends == nullptr);
    return ast_.reference(rule);
  }
  std::vector<FreeTextEnd> with_ends(std::vector<FreeTextEnd> triggers, const Ends* ends) {
    if (ends == nullptr) return triggers;
    for (const std::string& text : ends->texts) triggers.push_back({text, ast_.empty_text()});
    return triggers;
  }

  AstId list(const Part& part, const std::string& type, const Ends* ends) {
    only(part, {"type", "elements"});
    const std::vector<Part> parts = elements(part, "elements", false);
    std::vector<AstId> out;
    out.reserve(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i)
      out.push_back(format(parts[i], type == "or" || i + 1 == parts.size() ? ends : nullptr));
    return type == "or" ? ast_.choice(std::move(out)) : ast_.sequence(std::move(out));
  }

  AstId repeat(const Part& part, const std::string& type) {
    std::uint32_t min = type == "plus" ? 1 : 0, max = type == "optional" ? 1 : kUnbounded;
    if (type == "repeat") {
      only(part, {"type", "content", "min", "max"});
      min = count(field(part, "min"));
      const Part most = field(part, "max");
      if (integer(most) != -1) max = count(most);
      if (min > max) wrong(part.pointer, fmt::format("a repetition from {} to {} times", min, max));
    } else {
      only(part, {"type", "content"});
    }
    const AstId content = format(field(part, "content"), nullptr);
    return ast_.add({.kind = AstNode::Kind::kRepeat, .min = min, .max = max, .children = {content}});
  }

  AstId tag(const Part& part) {
    const AstId rest = tag_rest(part);
    const Part begin = field(part, "begin");
    if (begin.node.is(Kind::kString)) return ast_.sequence({ast_.literal(begin.node.text), rest});
    return ast_.sequence({leaf(token_format(of_kind(begin, Kind::kObject, "a text or a token"))), rest});
  }
  // Content and end.
  AstId tag_rest(const Part& part) {
    of_kind(part, Kind::kObject, "a tag");
    only(part, {"type", "begin", "content", "end"});
    if (part.node.find("type") != nullptr && text(part, "type") != "tag") wrong(part.pointer, "a tag is wanted");
    const Ends ends = ends_of(part);
    return format(field(part, "content"), &ends);
  }

  Ends ends_of(const Part& part) {
    const Part end = field(part, "end");
    Ends out;
    std::vector<AstId> choices;
    if (end.node.is(Kind::kObject)) {
      out.tokens = token_format(end);
      choices.push_back(leaf(*out.tokens));
    } else if (end.node.is(Kind::kString)) {
      out.texts.push_back(end.node.text);
    } else {
      for (const Part& element : elements(part, "end", false))
        out.texts.push_back(of_kind(element, Kind::kString, "a string").node.text);
    }
    for (const std::string& text : out.texts) choices.push_back(ast_.literal(text));
    out.node = ast_.choice(std::move(choices));
    if (std::ranges::find(out.texts, "") != out.texts.end()) out.texts.clear();  // it may end anywhere
    return out;
  }

  // What comes after a tag: more free text, or nothing but the ends.
  AstId after_tag(bool loop, std::uint32_t rule, const Ends* ends) {
    if (loop) return ast_.reference(rule);
    return ends == nullptr ? ast_.empty_text() : ends->node;
  }

  struct TextTag {
    std::string begin, pointer;
    AstId rest;
  };
  AstId triggered(const Part& part, const Ends* ends) {
    only(part, {"type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes"});
    std::vector<TextTag> tags;
    for (const Part& element : elements(part, "tags", false))
      tags.push_back({text(of_kind(element, Kind::kObject, "a tag"), "begin"), element.pointer, tag_rest(element)});
    const std::uint32_t rule = ast_.add_rule("triggered tags");
    const AstId after = after_tag(!flag(part, "stop_after_first", false), rule, ends);
    define_triggered(rule, part, tags, after, ends);
    if (!flag(part, "at_least_one", false)) return ast_.reference(rule);
    std::vector<AstId> whole;
    whole.reserve(tags.size());
    for (const TextTag& tag : tags) whole.push_back(ast_.sequence({ast_.literal(tag.begin), tag.rest, after}));
    return ast_.choice(std::move(whole));
  }

  // Free text until a trigger of `part`, then the rest of a tag that begins with it.
  void define_triggered(std::uint32_t rule, const Part& part, const std::vector<TextTag>& tags, AstId after,
                        const Ends* ends) {
    std::vector<FreeTextEnd> starts;
    std::vector<bool> found(tags.size());
    for (const std::string& trigger : texts(part, "triggers", true)) {
      std::vector<AstId> choices;
      for (std::size_t i = 0; i < tags.size(); ++i) {
        if (!tags[i].begin.starts_with(trigger)) continue;
        choices.push_back(ast_.sequence({ast_.literal(tags[i].begin.substr(trigger.size())), tags[i].rest, after}));
        found[i] = true;
      }
      if (choices.empty()) wrong(part.pointer + "/triggers", fmt::format("no tag begins with '{}'", trigger));
      starts.push_back({trigger, ast_.choice(std::move(choices))});
    }
    for (std::size_t i = 0; i < tags.size(); ++i)
      if (!found[i]) wrong(tags[i].pointer + "/begin", fmt::format("no trigger begins the tag '{}'", tags[i].begin));
    define_free_text(ast_, pool_, rule, with_ends(std::move(starts), ends), texts(part, "excludes", false),
                     ends == nullptr);
  }

  AstId dispatch(const Part& part, const Ends* ends) {
    only(part, {"type", "rules", "loop", "excludes"});
    const std::uint32_t rule = ast_.add_rule("dispatch");
    const AstId after = after_tag(flag(part, "loop", true), rule, ends);
    std::vector<FreeTextEnd> starts;
    for (const auto& [pattern, content] : pairs(part)) {
      const std::string& trigger = of_kind(pattern, Kind::kString, "a string").node.text;
      if (trigger.empty()) wrong(pattern.pointer, "an empty text");
      starts.push_back({trigger, ast_.sequence({format(content, nullptr), after})});
    }
    define_free_text(ast_, pool_, rule, with_ends(std::move(starts), ends), texts(part, "excludes", false),
                     ends == nullptr);
    return ast_.reference(rule);
  }
  static std::vector<std::pair<Part, Part>> pairs(const Part& part) {
    std::vector<std::pair<Part, Part>> out;
    for (const Part& rule : elements(part, "rules", false)) {
      if (of_kind(rule, Kind::kArray, "a pair").node.children.size() != 2) wrong(rule.pointer, "a pair is wanted");
      out.emplace_back(Part{rule.node.children[0], rule.pointer + "/0"},
                       Part{rule.node.children[1], rule.pointer + "/1"});
    }
    return out;
  }

  AstId separated(const Part& part) {
    only(part, {"type", "tags", "separator", "at_least_one", "stop_after_first"});
    std::vector<AstId> tags;
    for (const Part& element : elements(part, "tags", false)) tags.push_back(tag(element));
    const AstId one = ast_.choice(std::move(tags));
    AstId out = one;
    if (const std::string separator = text(part, "separator"); !flag(part, "stop_after_first", false)) {
      const AstId next = ast_.sequence({ast_.literal(separator), one});
      out = ast_.sequence(
          {one, ast_.add({.kind = AstNode::Kind::kRepeat, .min = 0, .max = kUnbounded, .children = {next}})});
    }
    return flag(part, "at_least_one", false) ? out : ast_.choice({ast_.empty_text(), out});
  }

  AstId other_tokens(const Part& part, const std::string& type, const Ends* ends) {
    only(part, {"type", "exclude_tokens"});
    TokenSet excluded = tokens(part, "exclude_tokens");
    if (ends != nullptr) excluded.insert_all(*ends->tokens);
    const AstId one = leaf(excluded.others());
    if (type == "exclude_token") return one;
    return ast_.add({.kind = AstNode::Kind::kRepeat, .min = 0, .max = kUnbounded, .children = {one}});
  }

  struct TokenRule {
    TokenSet token;
    AstId content;  // with the token
  };
  // Any tokens but those excluded, until one of the rules.
  void define_free_tokens(std::uint32_t rule, const std::vector<TokenRule>& rules, TokenSet excluded, bool loop,
                          const Ends* ends) {
    std::vector<AstId> choices{ends == nullptr ? ast_.empty_text() : ends->node};
    if (ends != nullptr) excluded.insert_all(*ends->tokens);
    for (const TokenRule& one : rules) {
      choices.push_back(ast_.sequence({one.content, after_tag(loop, rule, ends)}));
      excluded.insert_all(one.token);
    }
    choices.push_back(ast_.sequence({leaf(excluded.others()), ast_.reference(rule)}));
    ast_.rules()[rule].body = ast_.choice(std::move(choices));
  }

  AstId token_triggered(const Part& part, const Ends* ends) {
    only(part, {"type", "trigger_tokens", "tags", "exclude_tokens", "at_least_one", "stop_after_first"});
    TokenSet excluded = tokens(part, "exclude_tokens");
    excluded.insert_all(tokens(part, "trigger_tokens"));
    const bool loop = !flag(part, "stop_after_first", false);
    const std::uint32_t rule = ast_.add_rule("token-triggered tags");
    std::vector<TokenRule> rules;
    std::vector<AstId> whole;
    for (const Part& element : elements(part, "tags", false)) {
      const Part begin = of_kind(field(element, "begin"), Kind::kObject, "a token");
      const TokenSet token = token_format(begin);
      if (!tokens(part, "trigger_tokens").contains(token)) wrong(begin.pointer, "no trigger begins the tag");
      rules.push_back({token, tag(element)});
      whole.push_back(ast_.sequence({rules.back().content, after_tag(loop, rule, ends)}));
    }
    define_free_tokens(rule, rules, std::move(excluded), loop, ends);
    return flag(part, "at_least_one", false) ? ast_.choice(std::move(whole)) : ast_.reference(rule);
  }

  AstId token_dispatch(const Part& part, const Ends* ends) {
    only(part, {"type", "rules", "loop", "exclude_tokens"});
    const std::uint32_t rule = ast_.add_rule("token dispatch");
    std::vector<TokenRule> rules;
    for (const auto& [pattern, content] : pairs(part)) {
      const TokenSet set = token(pattern);
      rules.push_back({set, ast_.sequence({leaf(set), format(content, nullptr)})});
    }
    define_free_tokens(rule, rules, tokens(part, "exclude_tokens"), flag(part, "loop", true), ends);
    return ast_.reference(rule);
  }

  // The older form: {"structures": [{"begin", "schema", "end"}], "triggers": [...]}.
  AstId legacy(const Part& part) {
    only(part, {"type", "structures", "triggers"});
    const std::uint32_t rule = ast_.add_rule("triggered tags");
    std::vector<TextTag> tags;
    for (const Part& element : elements(part, "structures", false)) {
      only(of_kind(element, Kind::kObject, "a structure"), {"begin", "schema", "end"});
      const AstId content = schema_leaf(field(element, "schema"), options_);
      tags.push_back(
          {text(element, "begin"), element.pointer, ast_.sequence({content, ast_.literal(text(element, "end"))})});
    }
    define_triggered(rule, part, tags, ast_.reference(rule), nullptr);
    return ast_.reference(rule);
  }

  const JsonSchemaOptions& options_;
  const GrammarCompilerOptions& budget_;
  GrammarAst& ast_;
  ExpressionPool& pool_;
  const TokenizerInfo& tokenizer_;
  std::vector<DroppedKeyword> dropped_;
  std::map<std::string, AstId> schemas_;            // by options and text
  std::map<std::string, std::uint32_t> any_texts_;  // rules by the texts that they look for
  int depth_ = 0;
  std::size_t used_ = 0;  // expressions of the schemas so far: together they have one budget to be compiled in
};

}  // namespace

StructuralTag parse_structural_tag(std::string_view json, const JsonSchemaOptions& options,
                                   const GrammarCompilerOptions& budget, GrammarAst& ast, ExpressionPool& pool,
                                   const TokenizerInfo& tokenizer) {
  const JsonNode root = parse_json_document(json);
  Builder builder(options, budget, ast, pool, tokenizer);
  const AstId start = builder.document({root, "#"});
  return {start, builder.take_dropped()};
}

}  // namespace coreai::grammar
