#include "coreai/grammar/tokenizer_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "coreai/base/error.h"
#include "coreai/grammar/token_bitmask.h"
#include "grammar/json_text.h"
#include "grammar/text_tokens.h"
#include "grammar/token_slice.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {
namespace {

constexpr std::size_t kMaxTokens = (std::size_t{1} << 24) - 2;

// The byte that GPT-2 writes as a code point, -1 for the others: printable Latin-1 stands for itself, the other 68
// bytes follow from U+0100 on in ascending order. Source: openai/gpt-2, encoder.py, bytes_to_unicode.
const std::array<std::int16_t, 0x144>& byte_of_code_point() {
  static const auto table = [] {
    std::array<std::int16_t, 0x144> made;
    made.fill(-1);
    std::size_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      made[itself ? static_cast<std::size_t>(byte) : next++] = static_cast<std::int16_t>(byte);
    }
    return made;
  }();
  return table;
}

// Two-byte UTF-8 is all that the byte-level alphabet needs.
bool append_byte_level(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t point = static_cast<unsigned char>(text[i]);
    if (point >= 0x80) {
      if ((point & 0xe0) != 0xc0 || i + 1 == text.size()) return false;
      point = ((point & 0x1f) << 6) | (static_cast<unsigned char>(text[++i]) & 0x3f);
    }
    if (point >= byte_of_code_point().size() || byte_of_code_point()[point] < 0) return false;
    out += static_cast<char>(byte_of_code_point()[point]);
  }
  return true;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void append_byte_fallback(std::string_view text, std::string& out) {
  if (text.size() == 6 && text.starts_with("<0x") && text[5] == '>' && hex_digit(text[3]) >= 0 &&
      hex_digit(text[4]) >= 0) {
    out += static_cast<char>(hex_digit(text[3]) * 16 + hex_digit(text[4]));
    return;
  }
  constexpr std::string_view kSpace = "\xe2\x96\x81";
  for (std::size_t i = 0; i < text.size();) {
    const bool space = text.substr(i).starts_with(kSpace);
    out += space ? ' ' : text[i];
    i += space ? kSpace.size() : 1;
  }
}

void append_bytes(std::string_view text, VocabularyKind kind, bool special, std::size_t id, std::string& out) {
  if (kind == VocabularyKind::kRaw || special) {
    out += text;
  } else if (kind == VocabularyKind::kByteFallback) {
    append_byte_fallback(text, out);
  } else if (!append_byte_level(text, out)) {
    throw InvalidArgumentError(fmt::format("token {} is not written in the byte-level alphabet: '{}'", id, text),
                               "TokenizerInfo", "list it in special_ids if it is an added token, or give its kind");
  }
}

// Every grammar of JSON text wants these.
void prepare_slices(SliceCache& slices) {
  ExpressionPool pool;
  slices.find(pool, JsonStringEncoder().encode(pool, CodePointSet::all()), true);
  slices.find(pool, json_blank(pool), true);
}

}  // namespace

TokenizerInfo::TokenizerInfo(std::span<const std::string> vocabulary, const TokenizerInfoOptions& options) {
  if (vocabulary.empty()) throw InvalidArgumentError("the vocabulary has no token", "TokenizerInfo");
  const std::size_t size = std::max(vocabulary.size(), options.vocab_size);
  if (size > kMaxTokens)
    throw InvalidArgumentError(fmt::format("a vocabulary of {} tokens; at most {} are possible", size, kMaxTokens),
                               "TokenizerInfo");
  auto data = std::make_shared<Data>();
  data->special.assign(size, false);
  data->end_ids = options.end_ids;
  std::sort(data->end_ids.begin(), data->end_ids.end());
  data->end_ids.erase(std::unique(data->end_ids.begin(), data->end_ids.end()), data->end_ids.end());
  for (const auto& ids : {options.special_ids, data->end_ids})
    for (const std::int32_t id : ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= size)
        throw InvalidArgumentError(fmt::format("special token {} of a vocabulary of {}", id, size), "TokenizerInfo");
      data->special[static_cast<std::size_t>(id)] = true;
    }

  data->bytes_end.reserve(size);
  for (std::size_t id = 0; id < size; ++id) {
    if (id < vocabulary.size()) append_bytes(vocabulary[id], options.kind, data->special[id], id, data->bytes);
    if (data->bytes.size() > UINT32_MAX) throw InvalidArgumentError("a vocabulary of over 4 GiB", "TokenizerInfo");
    data->bytes_end.push_back(static_cast<std::uint32_t>(data->bytes.size()));
  }
  data_ = data;
  std::vector<TokenTrie::Token> texts;
  texts.reserve(size);
  data->real.assign(bitmask_words(size), 0);
  data->every_token.assign(bitmask_words(size), 0);
  for (std::size_t i = 0; i < size; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const bool special = data->special[i], spelled = !special && !token_bytes(id).empty();
    if (special) data->special_ids.push_back(id);
    if (spelled) texts.push_back({token_bytes(id), id});
    const std::uint32_t bit = std::uint32_t{1} << (i % 32);
    if (special || spelled) data->real[i / 32] |= bit;
    if (spelled || is_end(id)) data->every_token[i / 32] |= bit;
  }
  data->trie = std::make_shared<const TokenTrie>(std::move(texts));
  data->longest_token = data->trie->depth();
  data->slices = std::make_shared<SliceCache>(*data->trie, size);
  prepare_slices(*data->slices);
  data->texts = std::make_shared<TextTokensCache>();
}

std::size_t TokenizerInfo::checked(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= vocab_size())
    throw InvalidArgumentError(fmt::format("token {} of a vocabulary of {}", id, vocab_size()), "TokenizerInfo");
  return static_cast<std::size_t>(id);
}

std::string_view TokenizerInfo::token_bytes(std::int32_t id) const {
  return data_->text(checked(id));
}

bool TokenizerInfo::is_special(std::int32_t id) const {
  return data_->special[checked(id)];
}

bool TokenizerInfo::is_end(std::int32_t id) const {
  return std::binary_search(data_->end_ids.begin(), data_->end_ids.end(), id);
}

std::size_t TokenizerInfo::memory_bytes() const {
  return data_->bytes.capacity() + data_->bytes_end.capacity() * 4 + data_->special.capacity() / 8 +
         data_->special_ids.capacity() * 4 + data_->real.capacity() * 8 + data_->trie->memory_bytes() +
         data_->slices->memory_bytes() + data_->texts->memory_bytes();
}

}  // namespace coreai::grammar
