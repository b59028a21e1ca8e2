#include "coreai/language/grammar_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coreai/base/error.h"

namespace coreai {
namespace {

using grammar::VocabularyKind;

constexpr std::string_view kMetaspace = "\xe2\x96\x81";
// Letters of the byte-level alphabet for space and line feed, with what they stand for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kByteLevelLetters = {
    {{"\xc4\xa0", " "}, {"\xc4\x8a", "\n"}}};
constexpr std::size_t kRawSamples = 64;
constexpr std::size_t kMaxHoles = 65'536;

// What the decoder appends for `token` behind a text: a text's first token may lose its space.
std::optional<std::string> decoded_behind(const Tokenizer& tokenizer, TokenId first, TokenId token) {
  const std::array<TokenId, 2> both = {first, token};
  const std::string head = tokenizer.decode(std::span(both).first(1), false);
  const std::string whole = tokenizer.decode(both, false);
  if (!whole.starts_with(head)) return std::nullopt;
  return whole.substr(head.size());
}

// A token of ASCII letters and digits, which all kinds write as they are.
std::optional<TokenId> plain_token(const Tokenizer& tokenizer) {
  for (const char* text : {"a", "e", "A", "0", "1", "the", "in"}) {
    const auto id = tokenizer.token_to_id(text);
    if (id && !tokenizer.is_special(*id)) return id;
  }
  return std::nullopt;
}

bool stands_for(const Tokenizer& tokenizer, TokenId first, std::string_view token, std::string_view bytes) {
  const auto id = tokenizer.token_to_id(token);
  return id && decoded_behind(tokenizer, first, *id) == bytes;
}

bool byte_level(const Tokenizer& tokenizer, TokenId first) {
  for (const auto& [letter, bytes] : kByteLevelLetters)
    if (!stands_for(tokenizer, first, letter, bytes)) return false;
  return true;
}

bool byte_fallback(const Tokenizer& tokenizer, TokenId first) {
  return stands_for(tokenizer, first, kMetaspace, " ") &&
         (!tokenizer.token_to_id("<0x0A>") || stands_for(tokenizer, first, "<0x0A>", "\n"));
}

// Tokens all over the vocabulary come out as they are written, nothing between them.
bool raw(const Tokenizer& tokenizer, TokenId first) {
  const std::size_t step = std::max<std::size_t>(1, tokenizer.vocab_size() / kRawSamples);
  for (std::size_t id = 0; id < tokenizer.vocab_size(); id += step) {
    const auto token = static_cast<TokenId>(id);
    const auto text = tokenizer.id_to_token(token);
    if (!text || tokenizer.is_special(token)) continue;
    if (decoded_behind(tokenizer, first, token) != *text) return false;
  }
  return true;
}

// A token as the vocabulary of its kind would write these bytes; only added tokens need it, which byte-level decoders
// pass on as they are where a character is not of the alphabet.
bool in_byte_level_alphabet(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c <= ' ' || c == 0x7f) return false;
    if (c < 0x80) continue;
    if (i + 1 == text.size() || (c & 0xe0u) != 0xc0u) return false;
    const unsigned point = (c & 0x1fu) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3fu);
    if (point < 0xa1 || point == 0xad || point > 0x143) return false;
  }
  return true;
}

std::string in_byte_level(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    unsigned point = byte;
    if (byte <= ' ') point = 0x100u + byte;
    if (byte >= 0x7f && byte <= 0xa0) point = 0x121u + (byte - 0x7fu);
    if (byte == 0xad) point = 0x143;
    if (point < 0x80) {
      out += static_cast<char>(point);
    } else {
      out += static_cast<char>(0xc0u | point >> 6);
      out += static_cast<char>(0x80u | (point & 0x3fu));
    }
  }
  return out;
}

}  // namespace

std::optional<VocabularyKind> vocabulary_kind(const Tokenizer& tokenizer) {
  const auto first = plain_token(tokenizer);
  if (!first) return std::nullopt;
  if (byte_level(tokenizer, *first)) return VocabularyKind::kByteLevel;
  if (byte_fallback(tokenizer, *first)) return VocabularyKind::kByteFallback;
  if (raw(tokenizer, *first)) return VocabularyKind::kRaw;
  return std::nullopt;
}

grammar::TokenizerInfo grammar_tokenizer(const Tokenizer& tokenizer, std::size_t vocab_size,
                                         std::optional<VocabularyKind> kind) {
  if (!kind) kind = vocabulary_kind(tokenizer);
  if (!kind)
    throw InvalidArgumentError(
        "the tokenizer's decoder is neither byte-level nor SentencePiece's, and does not join tokens as they are",
        "tokenizer.json", "give the kind of the vocabulary, if one of these describes its tokens");
  // Ids may have holes.
  std::vector<std::string> vocabulary;
  grammar::TokenizerInfoOptions options{*kind, tokenizer.end_ids(), {}, vocab_size};
  const std::size_t count = tokenizer.vocab_size();
  std::size_t found = 0;
  for (std::size_t id = 0; found < count && id < 4 * count + kMaxHoles; ++id) {
    const auto token = static_cast<TokenId>(id);
    auto text = tokenizer.id_to_token(token);
    found += text ? 1 : 0;
    vocabulary.push_back(std::move(text).value_or(""));
    if (tokenizer.is_special(token))
      options.special_ids.push_back(token);
    else if (*kind == VocabularyKind::kByteLevel && !in_byte_level_alphabet(vocabulary.back()))
      vocabulary.back() = in_byte_level(vocabulary.back());
  }
  return {vocabulary, options};
}

}  // namespace coreai
