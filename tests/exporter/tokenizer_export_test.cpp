#include "coreai/exporter/tokenizer_export.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coreai/base/error.h"
#include "exporter/gguf_bytes.h"

namespace coreai {
namespace {

using Json = nlohmann::ordered_json;

GgufFile fixture(const std::string& name) {
  return GgufFile::open(std::filesystem::path(COREAI_FIXTURE_DIR) / "gguf" / name);
}

// A byte-level vocabulary of three letters and one join; `pairs` more metadata follows.
GgufBytes bpe(std::uint64_t more, std::vector<std::string> tokens = {"a", "b", "c", "ab", "<end>"},
              std::vector<std::string> merges = {"a b"}) {
  GgufBytes out;
  out.header(0, 5 + more).pair("general.architecture", std::string_view("llama"));
  out.pair("tokenizer.ggml.model", std::string_view("gpt2")).pair("tokenizer.ggml.tokens", tokens);
  out.pair("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, 1, 3});
  out.pair("tokenizer.ggml.merges", merges);
  return out;
}

TEST(TokenizerExport, RebuildsByteLevelBpe) {
  const ExportedTokenizer out = rebuild_tokenizer(fixture("tiny_llama.gguf"));
  const Json json = Json::parse(out.tokenizer_json);
  EXPECT_EQ(out.vocab_size, 512u);
  EXPECT_EQ(json["model"]["type"], "BPE");
  EXPECT_EQ(json["model"]["vocab"].size(), 512u);
  EXPECT_EQ(json["model"]["vocab"]["<|im_end|>"], 2);
  EXPECT_EQ(json["model"]["merges"][0], (Json::array({"\u0120", "t"})));
  EXPECT_EQ(json["pre_tokenizer"]["pretokenizers"][0]["type"], "Digits");
  EXPECT_EQ(json["pre_tokenizer"]["pretokenizers"][1]["type"], "ByteLevel");
  EXPECT_TRUE(json["post_processor"].is_null());
  EXPECT_EQ(json["added_tokens"].size(), 17u);
  EXPECT_EQ(json["added_tokens"][1]["content"], "<|im_start|>");
  EXPECT_EQ(json["added_tokens"][1]["special"], true);
  EXPECT_EQ(out.end_ids, (std::vector<std::int64_t>{0, 2}));
  const Json config = Json::parse(out.tokenizer_config_json);
  EXPECT_EQ(config["eos_token"], "<|im_end|>");
  EXPECT_EQ(config["eos_token_id"], (Json::array({0, 2})));
  EXPECT_EQ(config["model_max_length"], 256);
  EXPECT_NE(out.chat_template.find("add_generation_prompt"), std::string::npos);
}

TEST(TokenizerExport, RebuildsSentencePieceFromScores) {
  const ExportedTokenizer out = rebuild_tokenizer(fixture("tiny_gemma3.gguf"));
  const Json json = Json::parse(out.tokenizer_json);
  EXPECT_EQ(json["model"]["byte_fallback"], true);
  EXPECT_EQ(json["model"]["fuse_unk"], true);
  EXPECT_EQ(json["model"]["unk_token"], "<unk>");
  EXPECT_EQ(json["normalizer"]["type"], "Replace");
  EXPECT_EQ(json["decoder"]["decoders"].size(), 3u);  // no Strip: no space is put in front
  // Best score first: "th", "he", "in", ...; then the longer left part of a piece with several splits.
  EXPECT_EQ(json["model"]["merges"][0], (Json::array({"t", "h"})));
  EXPECT_EQ(json["model"]["merges"][1], (Json::array({"h", "e"})));
  const Json post = json["post_processor"];
  EXPECT_EQ(post["single"][0]["SpecialToken"]["id"], "<bos>");
  EXPECT_EQ(post["special_tokens"]["<bos>"]["ids"], (Json::array({2})));
  EXPECT_EQ(out.end_ids, (std::vector<std::int64_t>{1, 5}));
  EXPECT_TRUE(out.chat_template.empty());
  bool found_spaces = false;
  for (const Json& token : json["added_tokens"])
    if (token["content"] == "  ") found_spaces = token["special"] == false;
  EXPECT_TRUE(found_spaces);
}

TEST(TokenizerExport, KnowsThePreTokenizersOfOtherFamilies) {
  const auto json = [](std::string_view pre) {
    return Json::parse(rebuild_tokenizer(bpe(1).pair("tokenizer.ggml.pre", pre).parse()).tokenizer_json);
  };
  EXPECT_EQ(json("gpt-2")["pre_tokenizer"]["use_regex"], true);
  EXPECT_EQ(json("default")["pre_tokenizer"]["type"], "ByteLevel");
  EXPECT_EQ(json("qwen2")["normalizer"]["type"], "NFC");
  const std::string rule = json("qwen2")["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  EXPECT_NE(rule.find(R"(?\p{L}+|\p{N}| ?)"), std::string::npos) << rule;
  GgufBytes llama3 = bpe(2);
  llama3.pair("tokenizer.ggml.pre", std::string_view("llama-bpe")).pair("tokenizer.ggml.bos_token_id", 4u);
  const Json three = Json::parse(rebuild_tokenizer(llama3.parse()).tokenizer_json);
  EXPECT_EQ(three["model"]["ignore_merges"], true);
  EXPECT_EQ(three["post_processor"]["single"][0]["SpecialToken"]["id"], "<end>");
  try {
    json("deepseek-r1-qwen");
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_NE(std::string(e.what()).find("deepseek-r1-qwen"), std::string::npos);
  }
}

TEST(TokenizerExport, RefusesTokensThatContradictEachOther) {
  const auto rebuild = [](const GgufBytes& bytes) { return rebuild_tokenizer(bytes.parse()); };
  EXPECT_THROW(rebuild(bpe(0, {"a", "b", "a", "ab", "<end>"})), MalformedError);           // twice the same text
  EXPECT_THROW(rebuild(bpe(0, {"a", "b", "\xff", "ab", "<end>"})), MalformedError);        // not UTF-8
  EXPECT_THROW(rebuild(bpe(0, {"a", "b", "\xed\xa0\x80", "ab", "x"})), MalformedError);    // a surrogate
  EXPECT_THROW(rebuild(bpe(0, {"a", "b"}, {})), MalformedError);                           // two tokens, five types
  EXPECT_THROW(rebuild(bpe(0, {"a", "b", "c", "ab", "<end>"}, {"a c"})), MalformedError);  // "ac" is no token
  EXPECT_THROW(rebuild(bpe(0, {"a", "b", "c", "ab", "<end>"}, {"ab"})), MalformedError);   // one part
  EXPECT_THROW(rebuild(bpe(1).pair("tokenizer.ggml.eos_token_id", 5u)), MalformedError);
  EXPECT_THROW(rebuild(bpe(1).pair("tokenizer.ggml.add_bos_token", true)), NotFoundError);  // no such token named
  EXPECT_NO_THROW(rebuild(bpe(1).pair("tokenizer.ggml.eos_token_id", 4u)));
  GgufBytes unigram;
  unigram.header(0, 3).pair("general.architecture", std::string_view("llama"));
  unigram.pair("tokenizer.ggml.model", std::string_view("t5"));
  unigram.pair("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  EXPECT_THROW(rebuild(unigram), UnsupportedError);
}

}  // namespace
}  // namespace coreai
