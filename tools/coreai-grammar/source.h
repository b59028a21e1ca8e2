// Where a grammar, its vocabulary and the texts come from, the same for all subcommands.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/tool.h"
#include "coreai/grammar/compiled_grammar.h"
#include "coreai/grammar/grammar_matcher.h"
#include "coreai/text/tokenizer.h"

namespace coreai::tools {

struct GrammarOptions {
  std::string file;  // empty: none is needed (`json`)
  std::string form;  // --as; empty: by the file's extension
  std::string tokenizer, start = "root", whitespace = "bounded";
  std::vector<std::string> documents;  // FILE or URI=FILE
  bool lenient = false, in_order = false, ignore_formats = false;
};

void add_grammar_options(CLI::App& command, GrammarOptions& options);

// A vocabulary: that of a tokenizer.json, or one token per byte and an end token behind them.
struct Vocabulary {
  std::optional<Tokenizer> tokenizer;
  grammar::TokenizerInfo info;
};
Vocabulary open_vocabulary(const GrammarOptions& options);

// A grammar's text, and what reads it. Throws CLI::ValidationError where nothing tells the front end.
struct GrammarText {
  std::string form, text;
};
GrammarText read_grammar(const GrammarOptions& options);
// Reads the documents that references may lead to.
grammar::JsonSchemaOptions schema_options(const GrammarOptions& options);
grammar::CompiledGrammar compile(grammar::GrammarCompiler& compiler, const GrammarText& source,
                                 const GrammarOptions& options);

// Of commands that take a grammar and texts: with `--as json` the first file is a text as well. Throws
// CLI::ValidationError where standard input is named twice.
void take_texts(GrammarOptions& options, std::vector<std::string>& files);

// A whole file; "-" is standard input. Throws NotFoundError or IoError.
std::string read_input(const std::string& file);
// A text in a file. Its last line feed, which editors add, is left out where the grammar does not want it.
std::string read_instance(const grammar::CompiledGrammar& grammar, const std::string& file);

// Bytes of the text that the grammar accepts before the first that it does not; the matcher stands behind them.
std::size_t accept_prefix(grammar::GrammarMatcher& matcher, std::string_view text);

// What may come next, for a reader: characters and ranges of bytes, the forced text, the end.
struct NextBytes {
  std::vector<std::string> ranges;
  std::string forced;
  bool end = false;
  std::string to_string() const;
};
// `matcher` is of a vocabulary of bytes.
NextBytes next_bytes(const grammar::GrammarMatcher& matcher);
// Text between quotation marks, with escapes for what cannot be seen.
std::string in_quotes(std::string_view text);

}  // namespace coreai::tools
