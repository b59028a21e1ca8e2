// What the grammar engine knows of a tokenizer: the bytes of every token, which are special, which end the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coreai::grammar {

class SliceCache;
class TextTokensCache;
class TokenTrie;

// How a vocabulary writes bytes.
enum class VocabularyKind {
  kRaw,           // the token's text is its bytes
  kByteFallback,  // SentencePiece: U+2581 is a space, "<0x0A>" one byte
  kByteLevel,     // GPT-2: each byte is one printable character
};

struct TokenizerInfoOptions {
  VocabularyKind kind;                      // no default: a wrong guess would mask the wrong tokens
  std::vector<std::int32_t> end_ids{};      // end the text; allowed where the grammar may end, never by their text
  std::vector<std::int32_t> special_ids{};  // never allowed by their text
  std::size_t vocab_size = 0;               // logits per step where it exceeds the vocabulary; the rest is padding
};

// Immutable and cheap to copy; all copies share the vocabulary. Safe to use from any thread.
class TokenizerInfo {
 public:
  // `vocabulary[id]` is the token's text in the vocabulary's own writing; an empty text is never allowed.
  // Throws InvalidArgumentError: an id out of range, a text that the kind cannot have, no token at all.
  TokenizerInfo(std::span<const std::string> vocabulary, const TokenizerInfoOptions& options);

  std::size_t vocab_size() const { return data_->bytes_end.size(); }
  // Bytes of a token; empty for padding and for tokens without text. Throws InvalidArgumentError: no such id.
  std::string_view token_bytes(std::int32_t id) const;
  bool is_special(std::int32_t id) const;  // end tokens included. Throws as token_bytes.
  const std::vector<std::int32_t>& end_ids() const { return data_->end_ids; }
  bool is_end(std::int32_t id) const;
  std::size_t longest_token() const { return data_->longest_token; }  // bytes
  std::size_t memory_bytes() const;

  // For the engine.
  const TokenTrie& trie() const { return *data_->trie; }
  // The mask of all tokens that have a text, and of those that end it.
  std::span<const std::uint32_t> every_token() const { return data_->every_token; }
  SliceCache& slices() const { return *data_->slices; }
  TextTokensCache& texts() const { return *data_->texts; }
  const std::vector<std::int32_t>& special_ids() const { return data_->special_ids; }  // end tokens included; ascending
  // One bit per token, as in a mask: those that have a text or are special.
  std::span<const std::uint32_t> real_tokens() const { return data_->real; }

 private:
  struct Data {
    std::string bytes;
    std::vector<std::uint32_t> bytes_end;  // of token id in `bytes`; it starts where the one before ends
    std::vector<bool> special;
    std::vector<std::int32_t> special_ids;
    std::vector<std::uint32_t> real;
    std::vector<std::int32_t> end_ids;  // ascending
    std::size_t longest_token = 0;
    std::vector<std::uint32_t> every_token;
    std::shared_ptr<const TokenTrie> trie;
    std::shared_ptr<SliceCache> slices;
    std::shared_ptr<TextTokensCache> texts;
    std::string_view text(std::size_t id) const {
      const std::size_t first = id == 0 ? 0 : bytes_end[id - 1];
      return std::string_view(bytes).substr(first, bytes_end[id] - first);
    }
  };
  std::size_t checked(std::int32_t id) const;
  std::shared_ptr<const Data> data_;
};

}  // namespace coreai::grammar
