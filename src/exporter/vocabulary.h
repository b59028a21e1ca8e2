// The tokens of a GGUF file, checked.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coreai/exporter/gguf.h"

namespace coreai {

// Values of `tokenizer.ggml.token_type`; SentencePiece's ModelProto.SentencePiece.Type has the same numbers.
enum class TokenKind : std::uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Vocabulary {
  std::vector<std::string_view> tokens;  // by id; distinct, valid UTF-8
  std::vector<TokenKind> kinds;
  std::unordered_map<std::string_view, std::uint32_t> ids;
  std::optional<std::uint32_t> bos, eos, unknown, padding;
  std::vector<std::uint32_t> end_ids;  // ascending: end of text, of turn, of message

  bool is_added(std::size_t id) const {  // recognised in the text before the model runs
    return kinds[id] == TokenKind::kControl || kinds[id] == TokenKind::kUserDefined || kinds[id] == TokenKind::kUnknown;
  }
};
Vocabulary read_vocabulary(const GgufFile& file);

using Merge = std::pair<std::string_view, std::string_view>;
// `tokenizer.ggml.merges`, best first. Throws when a part or the whole is not a token.
std::vector<Merge> read_merges(const GgufFile& file, const Vocabulary& vocabulary);
// SentencePiece BPE joins the neighbours whose joined piece has the best score. The same as ranked merges: every split
// of every ordinary piece into two pieces, by score of the whole.
std::vector<Merge> merges_from_scores(const GgufFile& file, const Vocabulary& vocabulary);

}  // namespace coreai
