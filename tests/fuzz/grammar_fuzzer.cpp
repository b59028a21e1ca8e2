// Grammars and texts from anywhere: a typed error or a matcher whose masks agree with what it accepts.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "coreai/grammar/grammar_matcher.h"
#include "typed_errors.h"

namespace {

using namespace coreai::grammar;

const TokenizerInfo& tokenizer() {
  static const TokenizerInfo info = [] {
    std::vector<std::string> vocabulary;
    for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"ab", "{\"", "12", "\xc3\xa9", "</s>", "<think>"}) vocabulary.emplace_back(text);
    return TokenizerInfo(vocabulary, {.kind = VocabularyKind::kRaw, .end_ids = {260}, .special_ids = {261}});
  }();
  return info;
}

void follow(const CompiledGrammar& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  for (std::size_t i = 0; i < text.size() && i < 16; ++i) {
    const TokenMask mask = matcher.next_token_mask();
    bool some = false;
    for (std::int32_t id = 0; id < 262; ++id) {
      const bool allowed = (mask[static_cast<std::size_t>(id) / 32] >> (id % 32)) & 1u;
      if (allowed != matcher.fork().accept_token(id)) std::abort();
      some |= allowed;
    }
    if (!some) std::abort();
    if (!matcher.accept_token(static_cast<unsigned char>(text[i]))) return;
    matcher.rollback(1);
    if (matcher.next_token_mask() != mask) std::abort();
    matcher.accept_token(static_cast<unsigned char>(text[i]));
  }
}

}  // namespace

// The first byte chooses the front end; the grammar ends at the first zero byte, what follows is the text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = std::min(all.find('\0'), all.size());
  const std::string_view text = cut == all.size() ? "" : all.substr(cut + 1);
  GrammarCompiler compiler(
      tokenizer(),
      {.max_cached_grammars = 0, .max_expressions = 20'000, .max_search_steps = 500, .check_masks_every = 1});
  const std::string_view grammar = all.substr(0, cut);
  coreai::fuzz::expect_typed_errors([&] {
    switch (data[0] % 5) {
      case 0:
        return follow(compiler.compile_regex(grammar), text);
      case 1:
        return follow(compiler.compile_ebnf(grammar), text);
      case 2:
        return follow(compiler.compile_json_schema(grammar), text);
      case 3:
        return follow(compiler.compile_structural_tag(grammar), text);
      default:
        return follow(compiler.compile_lark(grammar), text);
    }
  });
  return 0;
}
