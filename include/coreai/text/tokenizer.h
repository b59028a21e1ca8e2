// Text to token ids and back, by a `tokenizer.json` (Hugging Face `tokenizers` crate behind a C ABI).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coreai {

using TokenId = std::int32_t;

// Immutable and thread-safe.
class Tokenizer {
 public:
  // Reads `tokenizer.json` and, when there, `tokenizer_config.json` of a folder. Throws NotFoundError that names the
  // missing file, MalformedError for one that does not parse.
  static Tokenizer from_directory(const std::filesystem::path& directory);
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view config_json = {});

  // `add_special_tokens` runs the post-processor (for example a begin token). Special tokens in the text are
  // recognised.
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens = true) const;
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = true) const;

  std::size_t vocab_size() const;  // added tokens included
  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(TokenId id) const;
  // Of tokenizer_config.json: eos_token, bos_token, ...; the ids that end a generation (eos_token and, where given,
  // every id of "eos_token_id" / "eos_token_ids" and end-of-turn tokens).
  std::optional<TokenId> bos_id() const;
  std::vector<TokenId> end_ids() const;
  std::optional<std::string> special_token(std::string_view key) const;  // "bos_token", "eos_token", "pad_token", ...
  bool is_special(TokenId id) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// Turns a growing list of tokens into text that only ever grows and is valid UTF-8 at every point: bytes of a character
// that is not complete yet, and text that a later token could change, are held back.
class StreamingDetokenizer {
 public:
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  std::string push(TokenId id);  // the text that became final; may be empty
  std::string finish();          // what was held back; incomplete characters as U+FFFD

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::vector<TokenId> pending_;
  std::size_t emitted_ = 0;
};

}  // namespace coreai
