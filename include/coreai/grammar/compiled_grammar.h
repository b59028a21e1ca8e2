// A grammar ready to be matched, for one vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/grammar/tokenizer_info.h"

namespace coreai::grammar {

// Tokens that may come next, one bit each (coreai/grammar/token_bitmask.h). Read-only and shared by all sessions.
using TokenMask = std::shared_ptr<const std::uint32_t[]>;

// A part of a schema that the lenient mode left out.
struct DroppedKeyword {
  std::string pointer;  // JSON pointer of the keyword, from "#"
  std::string reason;
};

// A handle; copies share the grammar. Safe to use from any thread.
class CompiledGrammar {
 public:
  const TokenizerInfo& tokenizer() const;
  // Bytes of this grammar alone, masks left out: it grows with the text that it meets, within the work budget.
  std::size_t memory_bytes() const;
  // What a schema compiled in the lenient mode does not enforce.
  const std::vector<DroppedKeyword>& dropped() const;

 private:
  friend class GrammarCompiler;
  friend class GrammarMatcher;
  struct Data;
  explicit CompiledGrammar(std::shared_ptr<Data> data) : data_(std::move(data)) {}
  std::shared_ptr<Data> data_;
};

struct GrammarCompilerOptions {
  std::size_t mask_cache_bytes = 64u << 20;  // masks of all grammars of the compiler; the longest unused go first
  std::size_t max_cached_grammars = 256;     // compiled grammars kept for the same text
  std::size_t max_expressions = 4'000'000;   // work budget of one grammar, 28 bytes each and up
  std::size_t max_search_steps = 200'000;    // states that one question of emptiness may visit
  // 0: never; n: every n-th mask that is made is compared with a walk token by token, and a difference, a bug of ours,
  // throws InternalError.
  std::uint32_t check_masks_every = 0;
};

enum class RegexMatch {
  kWhole,   // the pattern is the whole text
  kSearch,  // the text holds a match, as `pattern` of JSON Schema means it
};

enum class JsonRoot { kAny, kObject, kArray };

// White space between the parts of JSON text: at most so many of space, tab, line feed and carriage return in a place.
// Without a bound a model can go on with white space for ever.
struct JsonWhitespace {
  std::uint32_t max = 32;
  static constexpr JsonWhitespace none() { return {0}; }
  static constexpr JsonWhitespace any() { return {UINT32_MAX}; }
};

enum class PropertyOrder {
  kAny,        // as JSON Schema has it
  kAsWritten,  // members that `properties` names come in its order; others anywhere between
};

struct JsonSchemaOptions {
  JsonWhitespace whitespace{};
  PropertyOrder property_order = PropertyOrder::kAny;
  bool assert_formats = true;  // false: `format` says nothing
  bool lenient = false;        // leave out what cannot be enforced, and list it: the result may accept more,
                               // or less where that stood under `not`, `oneOf` or `if`
  // Documents that references may lead to, JSON texts by their URI (what `$ref` gives when resolved against the `$id`s
  // around it). Nothing is ever fetched. A document is read when a reference needs it.
  std::map<std::string, std::string> documents{};
};

// Compiles grammars for one vocabulary and keeps them by their text. Safe to use from any thread.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(TokenizerInfo tokenizer, const GrammarCompilerOptions& options = {});
  ~GrammarCompiler();
  GrammarCompiler(GrammarCompiler&&) noexcept;
  GrammarCompiler& operator=(GrammarCompiler&&) noexcept;

  // A regular expression of ECMA-262 (`u` flag). Throws MalformedError (offset: byte of the
  // pattern), UnsupportedError (not regular, or beyond the work budget), InvalidArgumentError (no text matches).
  CompiledGrammar compile_regex(std::string_view pattern, RegexMatch match = RegexMatch::kWhole);

  // A grammar in the EBNF of llama.cpp and xgrammar; left recursion and empty rules are welcome, tokens may be
  // terminals. Throws MalformedError (offset: byte of the text), UnsupportedError (look-ahead, other macros than those
  // for tags and tokens; or beyond the work budget), InvalidArgumentError (no text belongs to `start`, or no such
  // token).
  CompiledGrammar compile_ebnf(std::string_view text, std::string_view start = "root");

  // JSON text (RFC 8259) of any shape, in every way in which it may be written; nothing before or after the value.
  CompiledGrammar compile_json(JsonRoot root = JsonRoot::kAny, JsonWhitespace whitespace = {});

  // JSON text that a JSON Schema accepts (drafts 4 to 2020-12; docs/grammar.md says what is enforced). A member
  // that the schema names comes once; others may come again. Throws
  // MalformedError (no JSON), InvalidArgumentError (no schema, or no value belongs to it; where: JSON pointer),
  // UnsupportedError (a keyword that is not enforced, or beyond the work budget; where: JSON pointer).
  CompiledGrammar compile_json_schema(std::string_view schema, const JsonSchemaOptions& options = {});

  // A grammar in the dialect of Lark that llguidance and xgrammar read (docs/grammar.md), from the rule `start`; it
  // holds all texts that can be derived. `options` are for %json. Throws MalformedError (offset: byte of the text),
  // UnsupportedError (what is not built, or beyond the work budget), InvalidArgumentError (no text belongs to it, no
  // such token, a schema without a value).
  CompiledGrammar compile_lark(std::string_view text, const JsonSchemaOptions& options = {});

  // Free text, fixed texts, schemas, patterns and grammars in a row, in each other or behind a trigger, as the JSON of
  // xgrammar's structural tags says it (docs/grammar.md lists the formats). `options` are for the schemas inside.
  // Throws MalformedError (no JSON, or a broken part), InvalidArgumentError (where: JSON pointer) and UnsupportedError
  // (a format or field that is not built, or beyond the work budget; where: JSON pointer).
  CompiledGrammar compile_structural_tag(std::string_view json, const JsonSchemaOptions& options = {});

  const TokenizerInfo& tokenizer() const;
  std::size_t mask_memory_bytes() const;
  void clear_cache();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace coreai::grammar
