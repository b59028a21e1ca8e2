// From a bundle on disk to a stream of text: bundle, tokenizer, chat template and engine in one place.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/bundle/language_bundle.h"
#include "coreai/language/inference_engine.h"
#include "coreai/runtime/specialization_options.h"
#include "coreai/text/chat_template.h"
#include "coreai/text/tokenizer.h"

namespace coreai {

struct PromptOptions {
  std::string system = {};  // text of a system message before the prompt; empty = none
  bool raw = false;         // encode the prompt as it is, without the chat template
  ChatTemplateOptions chat = {};
};

// A prompt ready for the engine.
struct EncodedPrompt {
  std::vector<TokenId> ids;
  std::string warning;  // what the caller should be told, a sentence; empty when all is as asked for
};

struct TextPiece {
  std::string text;              // what became final, valid UTF-8; may be empty
  std::optional<TokenId> token;  // nothing in the last piece, which only flushes held-back text
};

struct TextTimings {
  double load_ms = 0;                    // bundle opened until ready for a token, tokenizer included
  double time_to_first_token_ms = 0;     // first pull until the first token
  double prefill_tokens_per_second = 0;  // prompt tokens over the time to the first token
  double decode_tokens_per_second = 0;   // later tokens over their time, detokenisation included; 0 with one token
};

// Text of one run, pulled piece by piece. Move-only; dropping it ends the run. It may outlive its generator.
class TextGeneration {
 public:
  // The next piece; nothing when the run is over. Throws as Generation::next.
  std::optional<TextPiece> next();
  std::optional<StopReason> stop_reason() const { return generation_.stop_reason(); }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // so far, the end token included
  const GenerationStatistics& statistics() const { return generation_.statistics(); }
  TextTimings timings() const;
  void cancel() { generation_.cancel(); }

 private:
  friend class TextGenerator;
  TextGeneration(Generation generation, const Tokenizer& tokenizer, double load_ms);
  Generation generation_;
  StreamingDetokenizer detokenizer_;
  std::vector<TokenId> tokens_;
  double load_ms_ = 0, first_ms_ = 0, later_ms_ = 0;
  bool flushed_ = false;
};

// Not thread-safe: one run at a time. Nothing is ever read from the network.
class TextGenerator {
 public:
  // Throws BundleError, and as AIModel::load, Tokenizer::from_directory, ChatTemplate::from_directory and
  // SequentialEngine::create.
  static TextGenerator load(const std::filesystem::path& bundle, const SpecializationOptions& options = {});

  const LanguageBundle& bundle() const { return bundle_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_chat_template() const { return template_.has_value(); }
  InferenceEngine& engine() { return *engine_; }
  double load_ms() const { return load_ms_; }
  // Every token that ends an answer, as the tokenizer's files and generation_config.json declare them.
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }

  // One user turn as token ids. Without a chat template, or raw, the text is encoded as it is, with the tokenizer's own
  // begin token; a rendered template holds its special tokens already. Throws InvalidArgumentError when a system text
  // has no template to go into.
  EncodedPrompt encode(std::string_view prompt, const PromptOptions& options = {}) const;
  // `options.end_tokens` come on top of end_tokens(). Throws as InferenceEngine::generate.
  TextGeneration generate(std::span<const TokenId> prompt, GenerationOptions options);

 private:
  TextGenerator(LanguageBundle bundle, Tokenizer tokenizer, std::optional<ChatTemplate> chat_template,
                std::unique_ptr<SequentialEngine> engine);
  LanguageBundle bundle_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
  std::unique_ptr<SequentialEngine> engine_;
  std::vector<TokenId> end_tokens_;
  double load_ms_ = 0;
};

}  // namespace coreai
