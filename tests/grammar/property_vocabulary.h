// Vocabularies that are hard on masks: JSON's signs joined in many ways, cut characters and escapes, long runs.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/grammar/tokenizer_info.h"

namespace coreai::grammar {

// clang-format off
constexpr const char* kJsonPieces[] = {
  "\",\"", "\":", "\": ", "\": \"", "\":\"", "\"},{\"", " \"", "{\"", "\n    \"", "{}", "[]", "[[", "]]", "}}", "},",
  "],", "[\"", "\"]", "\"}", "\",", ", \"", "\"\"", "\"\",", ": ", "{ ", " }", "\n}", ",\n", ": {\"", ": [",
  "{\"\":", "null", "true", "false", "tru", "true,", "null}", "\\", "\\\"", "\\\\", "\\u", "\\u0", "\\u00", "\\u006",
  "\\u0061", "\\uD83D", "\\uD83D\\", "\\uDE00", "\\n", "a\n", "\\n\\n", "a\\", "a\\u", "\\\",", "\\\\\"", "\\\"\"",
  "a\\n", "\\/", "//", "://", "-", "--", "-1", "1e", "e+", "1.5", ".5", "0.", "1,", "12,", "2]", "3}", "@", ".c",
  "a.b", "a@b.c", "12:", "T10:", "2024-", "-01-", "http://", "::", "ab\"", "b\"c", "abab", "aab", "bbbbbbb",
  "aaaaaaaaaaaa", "aaaaaaaaaaaaa", "abc\":", "abc\": ", "\"abc", "\"abc\"", " \"abc\"", "\"a\":1", ",\"b\":",
};
// clang-format on

inline std::vector<std::string> property_texts(const std::vector<std::string>& names, std::mt19937& random) {
  std::set<std::string> out;
  for (const char* text : kJsonPieces) out.insert(text);
  for (std::size_t count : {1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 31, 32, 33, 40})
    for (const char c : {' ', '\t', '\n', 'a', 'b', 'x', '0'}) out.insert(std::string(count, c));
  for (std::size_t count = 1; count <= 17; ++count) {
    out.insert("\n" + std::string(count, ' '));
    out.insert(std::string(count, ' ') + "\"");
    out.insert("," + std::string(count, ' '));
    out.insert(std::string(count, 'b') + "\"");
    out.insert(std::string(count, 'a') + "\",");
  }
  const std::vector<std::string> words{"a",    "b",    "ab",    "ba",    "abc",   "foo",  "bar", "the",  "name",
                                       "user", "Item", "hello", "world", "value", "type", "x-y", "id_1", "z9"};
  for (const std::string& word : words)
    for (const char* after : {"", "\"", ",", ":", "\",", "\":", "\": ", " ", " a", "-", ".", "\\", "\n"}) {
      out.insert(word + after);
      out.insert(" " + word + after);
      out.insert("\"" + word + after);
    }
  for (std::size_t length = 13; length <= 60; length += 1 + random() % 4) {
    std::string word;
    while (word.size() < length) word += "abcdefghijklmnopqrstuvwxyz-9"[random() % 28];
    out.insert(word);
    out.insert(word + "\"");
    out.insert("\"" + word);
    out.insert(word + "\"}" + std::string(random() % 4, ' '));
  }
  for (int i = 0; i < 120; ++i) {
    std::string digits = std::to_string(random() % (i < 40 ? 10 : i < 70 ? 100 : i < 100 ? 1000 : 10'000));
    out.insert(digits);
    if (i % 8 == 0) out.insert(digits + (i % 16 == 0 ? "," : "}"));
  }
  for (const char* character :
       {"\u00e9", "\u00df", "\u0416", "\u20ac", "\u4e2d", "\ud7ff", "\uffff", "\U0001f600", "\U0010ffff"}) {
    const std::string whole = character;
    for (std::size_t first = 0; first < whole.size(); ++first)
      for (std::size_t count = 1; first + count <= whole.size(); ++count) {
        const std::string cut = whole.substr(first, count);
        for (const std::string& text :
             {cut, "a" + cut, cut + "b", cut + "\"", "\"" + cut, cut + cut, cut + "\",", cut + "ab\"}"})
          out.insert(text);
      }
  }
  for (const char* bad : {"\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80"}) out.insert(bad);
  for (const std::string& name : names)
    for (std::size_t count = 1; count <= name.size(); ++count) {
      const std::string begin = name.substr(0, count);
      for (const std::string& text :
           {begin, "\"" + begin, begin + "\"", "\"" + begin + "\"", "{\"" + begin, ",\"" + begin,
            begin + "\":", begin + "\": \"", name.substr(count - 1), name.substr(count - 1) + "\":1"})
        out.insert(text);
    }
  return {out.begin(), out.end()};
}

inline std::string utf8_of(unsigned code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// GPT-2's writing: a printable character for each byte.
inline std::string byte_level(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const auto printable = [](unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
    unsigned code_point = byte;
    if (!printable(byte)) {
      code_point = 256;
      for (unsigned b = 0; b < byte; ++b) code_point += printable(b) ? 0 : 1;
    }
    out += utf8_of(code_point);
  }
  return out;
}

inline bool is_utf8(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[at]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xc2 ? 0
                               : lead < 0xe0 ? 2
                               : lead < 0xf0 ? 3
                               : lead < 0xf5 ? 4
                                             : 0;
    if (length == 0 || at + length > bytes.size()) return false;
    for (std::size_t i = 1; i < length; ++i)
      if ((static_cast<unsigned char>(bytes[at + i]) & 0xc0) != 0x80) return false;
    at += length;
  }
  return true;
}

// Ids 0 and 1 are special, 2 and the last end the text, 3 has no text.
inline std::vector<std::string> property_vocabulary(VocabularyKind kind, const std::vector<std::string>& names) {
  std::mt19937 random(1234);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::vector<std::string> vocabulary{"<s>", "a", "</s>", ""};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    vocabulary.push_back(kind == VocabularyKind::kRaw ? one
                         : kind == VocabularyKind::kByteLevel
                             ? byte_level(one)
                             : std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">");
  }
  std::vector<std::string> texts = property_texts(names, random);
  std::shuffle(texts.begin(), texts.end(), random);
  for (const std::string& text : texts) {
    if (kind == VocabularyKind::kByteLevel) {
      vocabulary.push_back(byte_level(text));
    } else if (kind == VocabularyKind::kRaw) {
      vocabulary.push_back(text);
    } else if (is_utf8(text)) {
      std::string written;
      for (const char c : text) written += c == ' ' ? std::string("\u2581") : std::string(1, c);
      vocabulary.push_back(written);
    }
  }
  vocabulary.emplace_back("ab");  // the same text twice
  vocabulary.emplace_back("<end>");
  return vocabulary;
}

// A tokenizer of its own, with slices of its own; the last ids are padding.
inline TokenizerInfo property_tokenizer(VocabularyKind kind, const std::vector<std::string>& vocabulary) {
  const auto last = static_cast<std::int32_t>(vocabulary.size()) - 1;
  return TokenizerInfo(
      vocabulary, {.kind = kind, .end_ids = {2, last}, .special_ids = {0, 1}, .vocab_size = vocabulary.size() + 5});
}

}  // namespace coreai::grammar
