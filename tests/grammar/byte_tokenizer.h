// A vocabulary of the 256 bytes alone.
#pragma once

#include <string>
#include <vector>

#include "coreai/grammar/grammar_matcher.h"

namespace coreai::grammar {

inline TokenizerInfo bytes_only() {
  std::vector<std::string> vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  return TokenizerInfo(vocabulary, {.kind = VocabularyKind::kRaw});
}

// Whether `text` as a whole belongs to the grammar.
inline bool matches(const CompiledGrammar& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  return matcher.accept_bytes(text) && matcher.can_terminate();
}

}  // namespace coreai::grammar
