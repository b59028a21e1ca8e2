// Times the grammar engine over the instances of JSON Schemas, one token after the other (walk.h), and checks every
// verdict. Prints one JSON object; exits 1 where a mask and the matcher disagree about a token of an instance, 3 where
// a schema takes longer than --limit (120 s).
//
//   --shared          one compiler for all schemas, as a service has it; without, the compiler is new for each and
//                     counts in the time to the first mask
//   --no-copy         read the shared mask instead of having it copied into a buffer
//   --whitespace N    most white space in a place (32), or "any", or "none"
//   --as-written      members in the order of `properties`
//   --rows FILE       a line of JSON for each schema; --slowest N: the steps that took longest, to stderr
#include "coreai/base/error.h"
#include "coreai/grammar/grammar_matcher.h"
#include "coreai/grammar/token_bitmask.h"
#include "walk.h"

namespace coreai::grammar {
namespace {

struct EngineOptions {
  bool shared = false, copy = true;
  JsonSchemaOptions schema{};
};

class Engine {
 public:
  Engine(const EngineOptions& options, TokenizerInfo tokenizer)
      : options_(options), tokenizer_(std::move(tokenizer)), buffer_(bitmask_words(tokenizer_.vocab_size())) {
    if (options_.shared) compiler_.emplace(tokenizer_);
  }

  void prepare() {
    mask_.reset();
    matcher_.reset();
    grammar_.reset();
    if (!options_.shared) compiler_.reset();
  }
  void compile(const std::string& schema) {
    if (!options_.shared) compiler_.emplace(tokenizer_);
    grammar_ = compiler_->compile_json_schema(schema, options_.schema);
    restart();
    mask();
  }
  static bool is_empty(const std::exception& thrown) {
    const auto* error = dynamic_cast<const InvalidArgumentError*>(&thrown);
    return error != nullptr && error->problem().starts_with("no value belongs");
  }
  void restart() { matcher_.emplace(*grammar_); }
  void mask() {
    if (options_.copy)
      matcher_->fill_next_token_bitmask(buffer_);
    else
      mask_ = matcher_->next_token_mask();
  }
  const std::uint32_t* words() const { return options_.copy ? buffer_.data() : mask_.get(); }
  bool accept(std::int32_t token) { return matcher_->accept_token(token); }
  bool can_end() const { return matcher_->can_terminate(); }
  std::size_t memory_bytes() const { return grammar_->memory_bytes(); }

 private:
  EngineOptions options_;
  TokenizerInfo tokenizer_;
  std::optional<GrammarCompiler> compiler_;
  std::optional<CompiledGrammar> grammar_;
  std::optional<GrammarMatcher> matcher_;
  std::vector<std::uint32_t> buffer_;
  TokenMask mask_;
};

std::optional<JsonWhitespace> whitespace(std::string_view text) {
  if (text == "any") return JsonWhitespace::any();
  if (text == "none") return JsonWhitespace::none();
  const auto value = grammar_bench::whole(text);
  if (!value || *value > UINT32_MAX) return std::nullopt;
  return JsonWhitespace{static_cast<std::uint32_t>(*value)};
}

grammar_bench::Taken set_own_option(EngineOptions& options, std::string_view name, std::string_view value) {
  using grammar_bench::Taken;
  if (name == "--whitespace") {
    const auto bound = whitespace(value);
    if (bound) options.schema.whitespace = *bound;
    return bound ? Taken::kValue : Taken::kUnknown;
  }
  if (name == "--shared")
    options.shared = true;
  else if (name == "--no-copy")
    options.copy = false;
  else if (name == "--as-written")
    options.schema.property_order = PropertyOrder::kAsWritten;
  else
    return Taken::kUnknown;
  return Taken::kFlag;
}

}  // namespace
}  // namespace coreai::grammar

int main(int argc, char** argv) {
  using namespace coreai::grammar;
  EngineOptions own;
  const auto options = grammar_bench::read_options(
      argc, argv, [&](std::string_view name, std::string_view value) { return set_own_option(own, name, value); });
  if (!options) {
    fmt::print(stderr, "usage: grammar_bench {} [--shared] [--no-copy] [--whitespace N|any|none] [--as-written]\n",
               grammar_bench::kCommonUsage);
    return 2;
  }
  try {
    const auto vocabulary = grammar_bench::read_vocabulary(options->vocabulary);
    Engine engine(own, TokenizerInfo(vocabulary.tokens, {.kind = VocabularyKind::kByteLevel,
                                                         .end_ids = vocabulary.end_ids,
                                                         .special_ids = vocabulary.special_ids}));
    return grammar_bench::measure(*options, vocabulary, engine);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
