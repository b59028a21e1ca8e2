// Tokenizers for the tests of the text layer.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "scratch_folder.h"

namespace coreai::test {

// SmolLM2's first 512 tokens (byte-level).
inline std::filesystem::path tiny_tokenizer() {
  return std::filesystem::path(COREAI_FIXTURE_DIR) / "tiny_llm" / "tokenizer";
}

// A vocabulary in the manner of SentencePiece: a marker for spaces, byte tokens for what has no token.
inline std::string byte_fallback_tokenizer() {
  using Json = nlohmann::ordered_json;
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"<end_of_turn>", 3}};
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    vocab[std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">"] = 4 + byte;
  }
  int next = 260;
  for (const char* token : {"▁", "a", "b", "c", "▁a", "ab", "▁ab"}) vocab[token] = next++;
  Json added = Json::array();
  for (const char* token : {"<unk>", "<s>", "</s>", "<end_of_turn>"}) {
    added.push_back({{"id", vocab[token]},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const Json replace_back = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const Json begin = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const Json body = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json second = {{"Sequence", {{"id", "B"}, {"type_id", 0}}}};
  Json merges = Json::array({Json::array({"▁", "a"}), Json::array({"a", "b"}), Json::array({"▁a", "b"})});
  const Json prepend = {{"type", "Prepend"}, {"prepend", "▁"}};
  Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", Json::array({prepend, replace})}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", Json::array({begin, body})},
        {"pair", Json::array({begin, body, second})},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", Json::array({1})}, {"tokens", Json::array({"<s>"})}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders", Json::array({replace_back, Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}, strip})}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", "<unk>"},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", merges}}}};
  return json.dump();
}

}  // namespace coreai::test
