#include "llm-runner/options.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "coreai/base/error.h"

namespace coreai::tools {

void add_options(CLI::App& app, LlmRunnerOptions& o) {
  add_common_options(app, o.common);
  app.add_option("--model", o.model,
                 "Model bundle: the folder with metadata.json, or its name, looked for in --model-path, else in "
                 "COREAI_MODEL_PATH, else in ., ./exports and ~/.coreai-models")
      ->required()
      ->type_name("DIR|NAME");
  app.add_option("--model-path", o.model_path, "Folders that a name is looked for in, separated by ':'")
      ->type_name("DIRS");
  app.add_option("--precision", o.precision,
                 "Arithmetic: faithful (two exact 8-bit digits per activation), exact (three), strict (as the file "
                 "says, op by op), fast (one digit)")
      ->check(CLI::IsMember({"faithful", "exact", "strict", "fast"}))
      ->capture_default_str();
  auto* input = app.add_option_group("prompt", "What to answer; exactly one");
  input->add_option("--prompt", o.prompt, "The prompt")->type_name("TEXT");
  input->add_option("--prompt-file", o.prompt_file, "Read the prompt from a file, or from standard input with -")
      ->type_name("FILE");
  input->add_option("--prompt-ids", o.prompt_ids, "The prompt as token ids, such as 1,2,3; no template, no tokenizer")
      ->type_name("IDS");
  input->require_option(1);
  app.add_option("--system", o.system, "System message for the chat template")->type_name("TEXT");
  app.add_flag("--raw", o.raw, "Continue the prompt as it is, without the chat template");
  app.add_option("--max-tokens", o.max_tokens, "Tokens to generate at most")->check(at_least(0))->capture_default_str();
  app.add_option("--temperature", o.sampling.temperature, "0 = greedy, the most likely token each time")
      ->capture_default_str();
  app.add_option("--top-k", o.sampling.top_k, "Choose among the k most likely tokens; 0 = all")->capture_default_str();
  app.add_option("--top-p", o.sampling.top_p, "Choose among the most likely tokens of this total probability")
      ->capture_default_str();
  app.add_option("--min-p", o.sampling.min_p, "Leave out tokens below this share of the best one's probability")
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Same seed, same answer; default: one is drawn and told");
  app.add_flag("--json", o.json, "Print one JSON object at the end instead of streaming the text");
  app.add_option(
         "--logits", o.logits_file,
         "Generate nothing; write the logits of every prompt position to a NumPy file, f32 [tokens, vocabulary]")
      ->type_name("FILE.npy");
}

void check_options(const LlmRunnerOptions& o) {
  try {
    o.sampling.validate();
  } catch (const InvalidArgumentError& error) {
    throw CLI::ValidationError(error.problem());
  }
  if (o.prompt_ids && (o.raw || !o.system.empty()))
    throw CLI::ValidationError("--prompt-ids takes the ids as they are: --raw and --system do not go with it");
  if (o.prompt_ids) {
    try {
      (void)parse_ids(*o.prompt_ids);
    } catch (const InvalidArgumentError& error) {
      throw CLI::ValidationError(error.what());
    }
  }
  if (o.raw && !o.system.empty()) throw CLI::ValidationError("--system needs the chat template that --raw leaves out");
}

std::vector<TokenId> parse_ids(const std::string& text) {
  std::vector<TokenId> ids;
  const auto is_separator = [](char c) { return c == ',' || c == ' ' || c == '[' || c == ']' || c == '\n'; };
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p != end;) {
    if (is_separator(*p)) {
      ++p;
      continue;
    }
    TokenId id = 0;
    const auto [next, error] = std::from_chars(p, end, id);
    if (error != std::errc() || (next != end && !is_separator(*next)))
      throw InvalidArgumentError(fmt::format("no token id at character {} of \"{}\"", p - text.data() + 1, text),
                                 "--prompt-ids", "Write ids as 1,2,3");
    ids.push_back(id);
    p = next;
  }
  return ids;
}

}  // namespace coreai::tools
