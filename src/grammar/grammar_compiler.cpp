#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>

#include "coreai/grammar/compiled_grammar.h"
#include "grammar/compiled_grammar_data.h"
#include "grammar/ebnf_parser.h"
#include "grammar/expression_machine.h"
#include "grammar/json_text.h"
#include "grammar/lark_parser.h"
#include "grammar/regex.h"
#include "grammar/schema_machine.h"
#include "grammar/structural_tag.h"

namespace coreai::grammar {
namespace {

std::atomic<std::uint64_t> next_grammar_id = 1;

std::string options_key(const JsonSchemaOptions& options) {
  std::string key = fmt::format("{}:{}:{}:{}:{}:", options.whitespace.max, static_cast<int>(options.property_order),
                                options.assert_formats, options.lenient, options.documents.size());
  for (const auto& [uri, text] : options.documents)
    key += fmt::format("{}:{}:{}{}", uri.size(), text.size(), uri, text);
  return key;
}

}  // namespace

const TokenizerInfo& CompiledGrammar::tokenizer() const {
  return data_->tokenizer;
}
const std::vector<DroppedKeyword>& CompiledGrammar::dropped() const {
  return data_->dropped;
}
std::size_t CompiledGrammar::memory_bytes() const {
  return data_->machine->memory_bytes();
}

struct GrammarCompiler::State {
  TokenizerInfo tokenizer;
  GrammarCompilerOptions options;
  std::shared_ptr<MaskCache> masks;
  std::mutex mutex;
  std::map<std::string, CompiledGrammar, std::less<>> kept;  // by front end and text
  std::list<std::string> order;                              // keys of `kept`, newest first

  std::unique_ptr<ExpressionPool> new_pool() const {
    return std::make_unique<ExpressionPool>(options.max_expressions, options.max_search_steps);
  }

  // Tokens may be terminals of these.
  std::unique_ptr<Machine> machine_of(GrammarAst& ast, AstId root, std::unique_ptr<ExpressionPool> pool) const {
    remove_left_recursion(ast, options.max_expressions);
    const ExprId language = grammar_expression(*pool, ast, root);
    return std::make_unique<ExpressionMachine>(std::move(pool), language, ast.names_tokens());
  }

  // Compiling runs without the lock: a hard grammar does not hold up the others.
  template <typename Make>
  CompiledGrammar find_or_make(std::string key, Make&& make) {
    {
      const std::lock_guard lock(mutex);
      if (const auto found = kept.find(key); found != kept.end()) return found->second;
    }
    std::vector<DroppedKeyword> dropped;
    auto data = std::make_shared<CompiledGrammar::Data>(tokenizer, make(dropped), masks, next_grammar_id.fetch_add(1));
    data->dropped = std::move(dropped);
    CompiledGrammar made(std::move(data));
    const std::lock_guard lock(mutex);
    if (options.max_cached_grammars == 0) return made;
    const auto [at, added] = kept.emplace(key, made);
    if (!added) return at->second;
    order.push_front(std::move(key));
    if (order.size() > options.max_cached_grammars) {
      kept.erase(order.back());
      order.pop_back();
    }
    return made;
  }
};

GrammarCompiler::GrammarCompiler(TokenizerInfo tokenizer, const GrammarCompilerOptions& options)
    : state_(new State{std::move(tokenizer),
                       options,
                       std::make_shared<MaskCache>(options.mask_cache_bytes, options.check_masks_every),
                       {},
                       {},
                       {}}) {}
GrammarCompiler::~GrammarCompiler() = default;
GrammarCompiler::GrammarCompiler(GrammarCompiler&&) noexcept = default;
GrammarCompiler& GrammarCompiler::operator=(GrammarCompiler&&) noexcept = default;

CompiledGrammar GrammarCompiler::compile_regex(std::string_view pattern, RegexMatch match) {
  return state_->find_or_make(fmt::format("regex:{}:{}", static_cast<int>(match), pattern),
                              [&](auto&) -> std::unique_ptr<Machine> {
                                auto pool = state_->new_pool();
                                const ExprId language = regex_expression(*pool, pattern, match, Utf8Encoder());
                                return std::make_unique<ExpressionMachine>(std::move(pool), language);
                              });
}

CompiledGrammar GrammarCompiler::compile_ebnf(std::string_view text, std::string_view start) {
  std::string key = fmt::format("ebnf:{}:{}", start, text);
  return state_->find_or_make(std::move(key), [&](auto&) -> std::unique_ptr<Machine> {
    GrammarAst ast;
    auto pool = state_->new_pool();
    const AstId root = parse_ebnf(text, start, ast, *pool, state_->tokenizer);
    return state_->machine_of(ast, root, std::move(pool));
  });
}

CompiledGrammar GrammarCompiler::compile_lark(std::string_view text, const JsonSchemaOptions& options) {
  return state_->find_or_make("lark:" + options_key(options) + std::string(text), [&](auto& dropped) {
    GrammarAst ast;
    auto pool = state_->new_pool();
    const AstId root = parse_lark(text, options, state_->options, ast, *pool, state_->tokenizer, dropped);
    return state_->machine_of(ast, root, std::move(pool));
  });
}

CompiledGrammar GrammarCompiler::compile_structural_tag(std::string_view json, const JsonSchemaOptions& options) {
  return state_->find_or_make("tag:" + options_key(options) + std::string(json), [&](auto& dropped) {
    GrammarAst ast;
    auto pool = state_->new_pool();
    StructuralTag tag = parse_structural_tag(json, options, state_->options, ast, *pool, state_->tokenizer);
    dropped = std::move(tag.dropped);
    return state_->machine_of(ast, tag.start, std::move(pool));
  });
}

CompiledGrammar GrammarCompiler::compile_json(JsonRoot root, JsonWhitespace whitespace) {
  std::string key = fmt::format("json:{}:{}", static_cast<int>(root), whitespace.max);
  return state_->find_or_make(std::move(key), [&](auto&) -> std::unique_ptr<Machine> {
    auto pool = state_->new_pool();
    const ExprId language = json_value(*pool, root, pool->repeat(json_blank(*pool), 0, whitespace.max));
    return std::make_unique<ExpressionMachine>(std::move(pool), language);
  });
}

CompiledGrammar GrammarCompiler::compile_json_schema(std::string_view schema, const JsonSchemaOptions& options) {
  std::string key = "schema:" + options_key(options) + std::string(schema);
  return state_->find_or_make(std::move(key), [&](auto& dropped) -> std::unique_ptr<Machine> {
    auto machine = std::make_unique<SchemaMachine>(
        schema, options, new_json_pool(state_->options.max_expressions, state_->options.max_search_steps));
    dropped = machine->take_dropped();
    return machine;
  });
}

const TokenizerInfo& GrammarCompiler::tokenizer() const {
  return state_->tokenizer;
}
std::size_t GrammarCompiler::mask_memory_bytes() const {
  return state_->masks->memory_bytes();
}

void GrammarCompiler::clear_cache() {
  const std::lock_guard lock(state_->mutex);
  state_->kept.clear();
  state_->order.clear();
  state_->masks->clear();
}

}  // namespace coreai::grammar
