// Forms of tokenizer.json: the documentation of Hugging Face's tokenizers; pre-tokenizers by the names that
// llama.cpp's converter writes.
#include "coreai/exporter/tokenizer_export.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "exporter/vocabulary.h"

namespace coreai {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpaceMark = "\u2581";  // stands for a space in SentencePiece

// Splitting rules of Llama 3 and Qwen 2: they differ in how many digits stay together.
std::string split_rule(std::string_view digits) {
  return fmt::format(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      digits);
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json split_then_bytes(std::string_view digits) {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", split_rule(digits)}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

// Everything around the model itself.
struct Pipeline {
  Json normalizer, pre_tokenizer, decoder;
  std::optional<std::string> unknown;
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
  bool add_bos = false, add_eos = false;
};

Pipeline byte_level_pipeline(const GgufFile& file) {
  Pipeline out;
  const std::string_view pre = file.find_string("tokenizer.ggml.pre").value_or("default");
  if (pre == "smollm") {
    const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
    out.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", {digits, byte_level(true)}}};
  } else if (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3") {
    out.pre_tokenizer = split_then_bytes(R"(\p{N}{1,3})");
    out.ignore_merges = true;  // a word that is a token is never split
    out.add_bos = true;
  } else if (pre == "qwen2") {
    out.pre_tokenizer = split_then_bytes(R"(\p{N})");
    out.normalizer = {{"type", "NFC"}};
  } else if (pre == "gpt-2" || pre == "default") {
    out.pre_tokenizer = byte_level(true);
  } else {
    throw UnsupportedError(fmt::format("the pre-tokenizer '{}'", pre), file.where(),
                           "smollm, llama-bpe, qwen2, gpt-2 and default are known");
  }
  out.decoder = byte_level(true);
  return out;
}

Json replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

void check_bytes(const GgufFile& file, const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = fmt::format("<0x{:02X}>", byte);
    const auto it = vocabulary.ids.find(text);
    if (it == vocabulary.ids.end() || vocabulary.kinds[it->second] != TokenKind::kByte)
      throw MalformedError(fmt::format("the vocabulary has byte tokens but no '{}'", text), file.where(), 0);
  }
}

Pipeline sentencepiece_pipeline(const GgufFile& file, const Vocabulary& vocabulary) {
  if (file.find("tokenizer.ggml.precompiled_charsmap"))
    throw UnsupportedError("a tokenizer with a compiled character map", file.where(),
                           "Only SentencePiece models without normalisation are known");
  if (file.find_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false))
    throw UnsupportedError("a tokenizer that removes extra whitespace", file.where());
  Pipeline out;
  const bool prefix = file.find_bool("tokenizer.ggml.add_space_prefix").value_or(true);
  Json spaces = replace(" ", kSpaceMark);
  out.normalizer = std::move(spaces);
  if (prefix) {
    const Json prepend = {{"type", "Prepend"}, {"prepend", kSpaceMark}};
    out.normalizer = {{"type", "Sequence"}, {"normalizers", {prepend, replace(" ", kSpaceMark)}}};
  }
  Json decoders = {replace(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  out.decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  for (const TokenKind kind : vocabulary.kinds) out.byte_fallback = out.byte_fallback || kind == TokenKind::kByte;
  if (out.byte_fallback) check_bytes(file, vocabulary);
  if (vocabulary.unknown) out.unknown = std::string(vocabulary.tokens[*vocabulary.unknown]);
  out.fuse_unknown = true;
  out.add_bos = true;
  return out;
}

// Puts the begin and end tokens around one text, or around two.
Json post_processor(const GgufFile& file, const Vocabulary& vocabulary, const Pipeline& pipeline) {
  Json single = Json::array(), pair = Json::array(), special = Json::object();
  const auto token = [&](std::optional<std::uint32_t> id, const char* key, int type_id, Json& list) {
    if (!id) throw NotFoundError(fmt::format("the tokenizer adds a token that '{}' must name", key), file.where());
    const std::string text(vocabulary.tokens[*id]);
    list.push_back({{"SpecialToken", {{"id", text}, {"type_id", type_id}}}});
    special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  };
  const auto around = [&](const char* name, int type_id, Json& list) {
    if (pipeline.add_bos) token(vocabulary.bos, "tokenizer.ggml.bos_token_id", type_id, list);
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type_id}}}});
    if (pipeline.add_eos) token(vocabulary.eos, "tokenizer.ggml.eos_token_id", type_id, list);
  };
  around("A", 0, single);
  around("A", 0, pair);
  around("B", 1, pair);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

Json added_tokens(const Vocabulary& vocabulary) {
  Json list = Json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.is_added(id)) continue;
    list.push_back({{"id", id},
                    {"content", vocabulary.tokens[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", vocabulary.kinds[id] != TokenKind::kUserDefined}});
  }
  return list;
}

std::string json_text(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\') return Json(text).dump();
  return fmt::format("\"{}\"", text);
}

// Vocabulary and merges are written as text: a JSON object of 262144 members is slow to build.
std::string model_text(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const Pipeline& pipeline) {
  std::string out = fmt::format(
      R"({{"type":"BPE","dropout":null,"unk_token":{},"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":{},"byte_fallback":{},"ignore_merges":{},"vocab":{{)",
      pipeline.unknown ? json_text(*pipeline.unknown) : "null", pipeline.fuse_unknown, pipeline.byte_fallback,
      pipeline.ignore_merges);
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    fmt::format_to(std::back_inserter(out), "{}\n{}:{}", id == 0 ? "" : ",", json_text(vocabulary.tokens[id]), id);
  out += "},\"merges\":[";
  for (std::size_t i = 0; i < merges.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}\n[{},{}]", i == 0 ? "" : ",", json_text(merges[i].first),
                   json_text(merges[i].second));
  out += "]}";
  return out;
}

std::string tokenizer_text(const GgufFile& file, const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                           const Pipeline& pipeline) {
  const Json post = pipeline.add_bos || pipeline.add_eos ? post_processor(file, vocabulary, pipeline) : Json(nullptr);
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":{},"normalizer":{},"pre_tokenizer":{},)"
      R"("post_processor":{},"decoder":{},"model":{}}})"
      "\n",
      added_tokens(vocabulary).dump(), pipeline.normalizer.dump(), pipeline.pre_tokenizer.dump(), post.dump(),
      pipeline.decoder.dump(), model_text(vocabulary, merges, pipeline));
}

std::string config_text(const GgufFile& file, const Vocabulary& vocabulary, const Pipeline& pipeline) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"add_bos_token", pipeline.add_bos},
                 {"add_eos_token", pipeline.add_eos},
                 {"clean_up_tokenization_spaces", false}};
  const auto name = [&](const char* key, std::optional<std::uint32_t> id) {
    if (id) config[key] = vocabulary.tokens[*id];
  };
  name("bos_token", vocabulary.bos);
  name("eos_token", vocabulary.eos);
  name("unk_token", vocabulary.unknown);
  name("pad_token", vocabulary.padding);
  config["eos_token_id"] = vocabulary.end_ids;
  const std::string context = fmt::format("{}.context_length", file.require_string("general.architecture"));
  if (const auto length = file.find_unsigned(context)) config["model_max_length"] = *length;
  return config.dump(2) + "\n";
}

}  // namespace

ExportedTokenizer rebuild_tokenizer(const GgufFile& file) {
  const std::string_view model = file.require_string("tokenizer.ggml.model");
  const Vocabulary vocabulary = read_vocabulary(file);
  Pipeline pipeline;
  std::vector<Merge> merges;
  if (model == "gpt2") {
    pipeline = byte_level_pipeline(file);
    merges = read_merges(file, vocabulary);
  } else if (model == "llama") {
    pipeline = sentencepiece_pipeline(file, vocabulary);
    merges = merges_from_scores(file, vocabulary);
  } else {
    throw UnsupportedError(fmt::format("the tokenizer model '{}'", model), file.where(),
                           "gpt2 (byte-level BPE) and llama (SentencePiece BPE) are known");
  }
  pipeline.add_bos = file.find_bool("tokenizer.ggml.add_bos_token").value_or(pipeline.add_bos);
  pipeline.add_eos = file.find_bool("tokenizer.ggml.add_eos_token").value_or(pipeline.add_eos);
  ExportedTokenizer out;
  out.tokenizer_json = tokenizer_text(file, vocabulary, merges, pipeline);
  out.tokenizer_config_json = config_text(file, vocabulary, pipeline);
  out.chat_template = file.find_string("tokenizer.chat_template").value_or("");
  out.end_ids.assign(vocabulary.end_ids.begin(), vocabulary.end_ids.end());
  out.vocab_size = vocabulary.tokens.size();
  return out;
}

}  // namespace coreai
