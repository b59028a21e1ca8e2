// Chat templates (Jinja, minijinja crate with Python compatibility) with limits: they come with a model, untrusted.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coreai {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  std::optional<bool> enable_thinking = {};  // passed to the template when set
  std::string tools_json = {};               // JSON array of tool descriptions; empty = none
  std::string extra_json = {};               // JSON object whose members become variables; empty = none
  std::string name = {};                     // of a named list of templates ("default", "tool_use"); empty = by tools
};

// Immutable and thread-safe.
class ChatTemplate {
 public:
  // `chat_template.jinja` wins over `chat_template` of `tokenizer_config.json` (a string or a named list). Nothing when
  // the folder has neither. Throws MalformedError when a template does not compile.
  static std::optional<ChatTemplate> from_directory(const std::filesystem::path& directory);
  static ChatTemplate from_source(std::string source, std::map<std::string, std::string> special_tokens = {});

  // Throws InvalidArgumentError with the template's own message (raise_exception), UnsupportedError when fuel or
  // recursion limits are hit.
  std::string render(const std::vector<ChatMessage>& messages, const ChatTemplateOptions& options = {}) const;
  // Messages as a JSON array, for content parts and tool calls.
  std::string render_json(std::string_view messages_json, const ChatTemplateOptions& options = {}) const;

  struct Impl;

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace coreai
