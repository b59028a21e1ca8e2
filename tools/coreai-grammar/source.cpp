#include "coreai-grammar/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/base/utf8.h"
#include "coreai/grammar/token_bitmask.h"
#include "coreai/language/grammar_tokenizer.h"

namespace coreai::tools {
namespace {

constexpr std::size_t kBytes = 256;
constexpr std::size_t kMaxInput = std::size_t{64} << 20;
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kExtensions = {
    {{".json", "schema"}, {".gbnf", "ebnf"}, {".ebnf", "ebnf"}, {".lark", "lark"}, {".regex", "regex"}}};

std::string form_of(const GrammarOptions& options) {
  if (!options.form.empty()) return options.form;
  const std::string extension = std::filesystem::path(options.file).extension().string();
  for (const auto& [known, form] : kExtensions)
    if (extension == known) return std::string(form);
  throw CLI::ValidationError(
      "--as", fmt::format("the name '{}' does not tell what reads the grammar; give --as", options.file));
}

std::string read_standard_input() {
  std::string out;
  std::array<char, 65536> block;
  while (const std::size_t got = std::fread(block.data(), 1, block.size(), stdin)) {
    out.append(block.data(), got);
    if (out.size() > kMaxInput) throw InvalidArgumentError("more than 64 MiB", "standard input", "give a smaller text");
  }
  if (std::ferror(stdin) != 0) throw IoError("it could not be read", "standard input", errno);
  return out;
}

bool visible(std::size_t byte) {
  return byte > ' ' && byte < 0x7f;
}

std::string byte_name(std::size_t byte) {
  switch (byte) {
    case ' ':
      return "space";
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    case '\r':
      return "\\r";
    default:
      return visible(byte) ? fmt::format("'{}'", static_cast<char>(byte)) : fmt::format("\\x{:02X}", byte);
  }
}

// Letters, digits and other bytes do not share a range.
int byte_class(std::size_t byte) {
  if (byte >= '0' && byte <= '9') return 1;
  if (byte >= 'A' && byte <= 'Z') return 2;
  if (byte >= 'a' && byte <= 'z') return 3;
  if (visible(byte)) return 4;
  return byte < 0x80 ? 5 : 6;
}

std::string range_name(std::size_t first, std::size_t last) {
  if (first == 0xc2 && last == 0xf4) return "any character beyond ASCII";
  if (first == last) return byte_name(first);
  return byte_name(first) + (last == first + 1 ? "  " : "-") + byte_name(last);
}

grammar::JsonWhitespace whitespace_of(const GrammarOptions& options) {
  if (options.whitespace == "none") return grammar::JsonWhitespace::none();
  if (options.whitespace == "any") return grammar::JsonWhitespace::any();
  return {};
}

}  // namespace

void add_grammar_options(CLI::App& command, GrammarOptions& options) {
  command
      .add_option("--as", options.form,
                  "What reads the grammar; left out: by the file's name (.json: schema, .gbnf .ebnf: ebnf, .lark, "
                  ".regex)")
      ->check(CLI::IsMember({"schema", "ebnf", "regex", "lark", "structural-tag", "json"}))
      ->type_name("FORM");
  command.add_option("--tokenizer", options.tokenizer, "Folder with a tokenizer.json; left out: a token is a byte")
      ->type_name("FOLDER");
  command.add_option("--start", options.start, "First rule of an EBNF")->type_name("RULE")->capture_default_str();
  command.add_option("--whitespace", options.whitespace, "White space between the parts of JSON: none, bounded, any")
      ->check(CLI::IsMember({"none", "bounded", "any"}))
      ->type_name("HOW")
      ->capture_default_str();
  command.add_flag("--in-order", options.in_order, "Members come in the order of the schema");
  command.add_flag("--ignore-formats", options.ignore_formats, "`format` of a schema says nothing");
  command.add_flag("--lenient", options.lenient, "Leave out of a schema what cannot be enforced");
  command
      .add_option("--document", options.documents,
                  "A schema that references may lead to, by its URI or by the $id in it; may be given more than once")
      ->type_name("[URI=]FILE")
      ->allow_extra_args(false);
}

Vocabulary open_vocabulary(const GrammarOptions& options) {
  if (!options.tokenizer.empty()) {
    Tokenizer tokenizer = Tokenizer::from_directory(options.tokenizer);
    grammar::TokenizerInfo info = grammar_tokenizer(tokenizer);
    return {std::move(tokenizer), std::move(info)};
  }
  std::vector<std::string> bytes;
  bytes.reserve(kBytes + 1);
  for (std::size_t byte = 0; byte < kBytes; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back("<end>");
  return {std::nullopt,
          grammar::TokenizerInfo(bytes, {grammar::VocabularyKind::kRaw, {static_cast<std::int32_t>(kBytes)}, {}, 0})};
}

void take_texts(GrammarOptions& options, std::vector<std::string>& files) {
  if (options.form == "json" && !options.file.empty()) files.insert(files.begin(), std::exchange(options.file, {}));
  if (std::ranges::count(files, "-") + (options.file == "-" ? 1 : 0) > 1)
    throw CLI::ValidationError("-", "standard input can be read once only");
}

std::string read_input(const std::string& file) {
  return file == "-" ? read_standard_input() : read_text_file(file, kMaxInput);
}

GrammarText read_grammar(const GrammarOptions& options) {
  GrammarText out{options.file.empty() ? options.form : form_of(options), {}};
  if (out.form == "json" && !options.file.empty())
    throw CLI::ValidationError("--as", "json is JSON of any shape and needs no file; leave it out");
  if (out.form == "json") return out;
  if (options.file.empty()) throw CLI::ValidationError("grammar", "name the grammar's file, or - for standard input");
  out.text = read_input(options.file);
  // An editor's last line feed is no part of a pattern.
  if (out.form == "regex" && out.text.ends_with('\n')) out.text.pop_back();
  return out;
}

grammar::JsonSchemaOptions schema_options(const GrammarOptions& options) {
  grammar::JsonSchemaOptions out{whitespace_of(options),
                                 options.in_order ? grammar::PropertyOrder::kAsWritten : grammar::PropertyOrder::kAny,
                                 !options.ignore_formats, options.lenient};
  for (const std::string& one : options.documents) {
    const auto equals = one.rfind('=');
    const std::string file = equals == std::string::npos ? one : one.substr(equals + 1);
    if (!out.documents.emplace(one.substr(0, equals), read_input(file)).second)
      throw CLI::ValidationError("--document", fmt::format("{} is given twice", one.substr(0, equals)));
  }
  return out;
}

grammar::CompiledGrammar compile(grammar::GrammarCompiler& compiler, const GrammarText& source,
                                 const GrammarOptions& options) {
  const grammar::JsonSchemaOptions schema = schema_options(options);
  if (source.form == "schema") return compiler.compile_json_schema(source.text, schema);
  if (source.form == "ebnf") return compiler.compile_ebnf(source.text, options.start);
  if (source.form == "regex") return compiler.compile_regex(source.text);
  if (source.form == "lark") return compiler.compile_lark(source.text, schema);
  if (source.form == "structural-tag") return compiler.compile_structural_tag(source.text, schema);
  return compiler.compile_json(grammar::JsonRoot::kAny, whitespace_of(options));
}

std::string read_instance(const grammar::CompiledGrammar& grammar, const std::string& file) {
  std::string text = read_input(file);
  if (!text.ends_with('\n')) return text;
  grammar::GrammarMatcher matcher(grammar);
  if (!matcher.accept_bytes(text) || !matcher.can_terminate()) text.pop_back();
  return text;
}

std::size_t accept_prefix(grammar::GrammarMatcher& matcher, std::string_view text) {
  if (matcher.accept_bytes(text)) return text.size();
  std::size_t at = 0;
  while (at < text.size() && matcher.accept_bytes(text.substr(at, 1))) ++at;
  return at;
}

NextBytes next_bytes(const grammar::GrammarMatcher& matcher) {
  NextBytes out;
  out.end = matcher.can_terminate();
  out.forced = matcher.find_jump_forward_string();
  const grammar::TokenMask mask = matcher.next_token_mask();
  const auto allowed = [&](std::size_t byte) { return (mask[byte / 32] >> (byte % 32) & 1u) != 0; };
  for (std::size_t first = 0; first < kBytes; ++first) {
    if (!allowed(first)) continue;
    std::size_t last = first;
    while (last + 1 < kBytes && allowed(last + 1) && byte_class(last + 1) == byte_class(first)) ++last;
    out.ranges.push_back(range_name(first, last));
    first = last;
  }
  return out;
}

std::string NextBytes::to_string() const {
  if (!forced.empty()) return in_quotes(forced);
  std::string out;
  for (const std::string& range : ranges) out += (out.empty() ? "" : "  ") + range;
  if (end) out += out.empty() ? "nothing: the text ends" : "  or the end";
  return out;
}

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const auto point = next_code_point(text, at);
    if (!point) at = begin + 1;
    if (point && *point >= 0xa0)
      out += text.substr(begin, at - begin);
    else if (point && *point >= 0x7f)
      out += fmt::format("\\x{:02X}\\x{:02X}", 0xc2, static_cast<unsigned char>(text[at - 1]));
    else if (const auto byte = static_cast<unsigned char>(text[begin]); byte == ' ' || visible(byte))
      out += text[begin];
    else
      out += byte_name(byte);
  }
  return out + "'";
}

}  // namespace coreai::tools
