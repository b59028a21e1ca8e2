// What a grammar needs to know of a tokenizer.
#pragma once

#include <cstddef>
#include <optional>

#include "coreai/grammar/tokenizer_info.h"
#include "coreai/text/tokenizer.h"

namespace coreai {

// The vocabulary of `tokenizer` with the bytes that its decoder makes of each token; special ids and end ids are the
// tokenizer's. `vocab_size`: logits per step where the model has more than the tokenizer has tokens. `kind`: how the
// vocabulary writes bytes; left out it is found by decoding tokens that only one kind writes so. Throws
// InvalidArgumentError: the tokens tell no kind, or their texts do not fit it (name the kind). Safe to call from any
// thread.
grammar::TokenizerInfo grammar_tokenizer(const Tokenizer& tokenizer, std::size_t vocab_size = 0,
                                         std::optional<grammar::VocabularyKind> kind = std::nullopt);

// The kind alone; nothing where the tokens do not tell.
std::optional<grammar::VocabularyKind> vocabulary_kind(const Tokenizer& tokenizer);

}  // namespace coreai
