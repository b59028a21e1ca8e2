// Rebuilds a Hugging Face tokenizer from the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coreai/exporter/gguf.h"

namespace coreai {

// The files of a bundle's `tokenizer/` folder.
struct ExportedTokenizer {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::string chat_template;  // empty when the checkpoint has none: a base model
  std::vector<std::int64_t> end_ids;
  std::uint64_t vocab_size = 0;
};

// `tokenizer.ggml.model` may be `gpt2` (byte-level BPE; pre-tokenizers smollm, llama-bpe, qwen2, gpt-2, default) or
// `llama` (SentencePiece BPE: merges are derived from the scores). Throws UnsupportedError that names another model or
// pre-tokenizer, NotFoundError for a missing key, MalformedError for tokens that contradict each other.
ExportedTokenizer rebuild_tokenizer(const GgufFile& file);

}  // namespace coreai
