#include "coreai/language/text_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <optional>

#include "coreai/base/error.h"

namespace coreai {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

TextGeneration::TextGeneration(Generation generation, const Tokenizer& tokenizer, double load_ms)
    : generation_(std::move(generation)), detokenizer_(tokenizer), load_ms_(load_ms) {}

std::optional<TextPiece> TextGeneration::next() {
  const auto start = Clock::now();
  if (const auto made = generation_.next()) {
    tokens_.push_back(made->token);
    if (tokens_.size() == 1) first_ms_ = ms_since(start);
    TextPiece piece{detokenizer_.push(made->token), made->token};
    if (tokens_.size() > 1) later_ms_ += ms_since(start);
    return piece;
  }
  if (flushed_) return std::nullopt;
  flushed_ = true;
  std::string rest = detokenizer_.finish();
  if (rest.empty()) return std::nullopt;
  return TextPiece{std::move(rest), std::nullopt};
}

TextTimings TextGeneration::timings() const {
  const auto per_second = [](double tokens, double ms) { return ms > 0 ? tokens * 1000.0 / ms : 0.0; };
  TextTimings timings;
  timings.load_ms = load_ms_;
  timings.time_to_first_token_ms = first_ms_;
  if (tokens_.empty()) return timings;
  const auto& statistics = generation_.statistics();
  timings.prefill_tokens_per_second =
      per_second(static_cast<double>(statistics.prompt_tokens - statistics.reused_tokens), first_ms_);
  timings.decode_tokens_per_second = per_second(static_cast<double>(tokens_.size() - 1), later_ms_);
  return timings;
}

TextGenerator::TextGenerator(LanguageBundle bundle, Tokenizer tokenizer, std::optional<ChatTemplate> chat_template,
                             std::unique_ptr<SequentialEngine> engine)
    : bundle_(std::move(bundle)),
      tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      engine_(std::move(engine)) {}

TextGenerator TextGenerator::load(const std::filesystem::path& path, const SpecializationOptions& options) {
  const auto start = Clock::now();
  LanguageBundle bundle = LanguageBundle::open(path);
  bundle.bundle().require_kind({BundleKind::kLlm});
  const std::filesystem::path asset = bundle.model_path();
  const std::filesystem::path directory = bundle.tokenizer_directory();
  // The tokenizer is parsed beside the model: each takes about half of a warm load.
  auto pending_tokenizer = std::async(std::launch::async, [&] { return Tokenizer::from_directory(directory); });
  std::exception_ptr model_error;
  std::optional<InferenceFunction> function;
  try {
    const AIModel model = AIModel::load(asset, options);
    const std::vector<std::string> names = bundle.functions("main", model.function_names());
    function = model.load_function(names.empty() ? "main" : names.front());
    bundle.check_states(function->descriptor());
  } catch (...) {
    model_error = std::current_exception();
  }
  Tokenizer tokenizer = pending_tokenizer.get();  // its error comes first, whichever part fails sooner
  if (model_error) std::rethrow_exception(model_error);
  auto chat_template = ChatTemplate::from_directory(directory);
  std::vector<TokenId> end_tokens = tokenizer.end_ids();
  for (TokenId id : bundle.declared_end_tokens())
    if (std::find(end_tokens.begin(), end_tokens.end(), id) == end_tokens.end()) end_tokens.push_back(id);
  auto engine = SequentialEngine::create(
      *function, {.max_context_length = bundle.max_context_length(), .states = bundle.language().states});
  TextGenerator made(std::move(bundle), std::move(tokenizer), std::move(chat_template), std::move(engine));
  made.end_tokens_ = std::move(end_tokens);
  made.load_ms_ = ms_since(start);
  return made;
}

EncodedPrompt TextGenerator::encode(std::string_view prompt, const PromptOptions& options) const {
  EncodedPrompt encoded;
  if (options.raw || !template_) {
    if (!options.system.empty())
      throw InvalidArgumentError("a system text needs a chat template to go into", "prompt",
                                 options.raw ? "Leave out --raw, or write the system text into the prompt"
                                             : "This bundle has none (a base model?): write it into the prompt");
    if (!options.raw)
      encoded.warning = "the bundle has no chat template (a base model?); the prompt is continued as it is";
    encoded.ids = tokenizer_.encode(prompt, true);
    return encoded;
  }
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", std::string(prompt)});
  encoded.ids = tokenizer_.encode(template_->render(messages, options.chat), false);
  return encoded;
}

TextGeneration TextGenerator::generate(std::span<const TokenId> prompt, GenerationOptions options) {
  options.end_tokens.insert(options.end_tokens.end(), end_tokens_.begin(), end_tokens_.end());
  return TextGeneration(engine_->generate(prompt, options), tokenizer_, load_ms_);
}

}  // namespace coreai
