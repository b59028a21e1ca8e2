#include "coreai/text/chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "coreai/base/error.h"
#include "text/bridge_call.h"
#include "text/json_config.h"

namespace coreai {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTemplateFile = "chat_template.jinja";
constexpr std::string_view kMoreTemplatesFolder = "additional_chat_templates";
constexpr std::string_view kDefaultName = "default";
constexpr std::string_view kToolName = "tool_use";

// One compiled template.
class Compiled {
 public:
  Compiled(const std::string& source, const std::string& where) {
    coreai_bridge_bytes error{};
    text::check(coreai_bridge_template_new(source.data(), source.size(), &handle_, &error), error, "the chat template",
                where);
  }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() { coreai_bridge_template_free(handle_); }

  std::string render(const std::string& variables) const {
    coreai_bridge_bytes out{};
    coreai_bridge_bytes error{};
    text::check(coreai_bridge_template_render(handle_, variables.data(), variables.size(), &out, &error), error,
                "the chat template", "render");
    return text::take(out);
  }

 private:
  coreai_bridge_template* handle_ = nullptr;
};

Json parse_argument(std::string_view json, std::string_view name) {
  try {
    return Json::parse(json);
  } catch (const Json::parse_error& e) {
    throw InvalidArgumentError(fmt::format("not JSON: {}", e.what()), std::string(name), "pass valid JSON");
  }
}

}  // namespace

struct ChatTemplate::Impl {
  std::map<std::string, std::unique_ptr<const Compiled>, std::less<>> templates;
  std::map<std::string, std::string> special_tokens;

  void add(const std::string& name, const std::string& source, const std::string& where) {
    templates[name] = std::make_unique<const Compiled>(source, where);
  }

  const Compiled& choose(const std::string& name, bool with_tools) const {
    if (!name.empty()) {
      if (const auto found = templates.find(name); found != templates.end()) return *found->second;
    } else {
      if (with_tools) {
        if (const auto found = templates.find(kToolName); found != templates.end()) return *found->second;
      }
      if (const auto found = templates.find(kDefaultName); found != templates.end()) return *found->second;
      if (templates.size() == 1) return *templates.begin()->second;
    }
    std::vector<std::string_view> names;
    for (const auto& [key, unused] : templates) names.push_back(key);
    throw NotFoundError(fmt::format("there is no chat template '{}'", name.empty() ? kDefaultName : name),
                        "ChatTemplateOptions::name", fmt::format("choose one of: {}", fmt::join(names, ", ")));
  }
};

namespace {

// `chat_template` of tokenizer_config.json: a source, or a list of {"name", "template"}.
void add_from_config(ChatTemplate::Impl& impl, const Json& value, const std::string& where) {
  if (value.is_null()) return;
  if (value.is_string()) return impl.add(std::string(kDefaultName), value.get<std::string>(), where);
  if (!value.is_array()) {
    throw MalformedError(fmt::format("chat_template is neither a string nor a list but {}", value.type_name()), where,
                         0, "write the configuration again with the exporter");
  }
  for (const auto& item : value) {
    const auto name = item.is_object() ? item.find("name") : item.end();
    const auto source = item.is_object() ? item.find("template") : item.end();
    if (!item.is_object() || name == item.end() || source == item.end() || !name->is_string() || !source->is_string()) {
      throw MalformedError("an entry of the chat_template list lacks a name or a template", where, 0,
                           "write the configuration again with the exporter");
    }
    impl.add(name->get<std::string>(), source->get<std::string>(), where);
  }
}

void add_more_templates(ChatTemplate::Impl& impl, const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".jinja") continue;
    if (const auto source = text::read_text(entry.path())) {
      impl.add(entry.path().stem().string(), *source, entry.path().string());
    }
  }
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::from_directory(const std::filesystem::path& directory) {
  const auto config_path = directory / text::kTokenizerConfigFile;
  const Json config = text::read_object(config_path);
  auto impl = std::make_shared<Impl>();
  if (const auto source = text::read_text(directory / kTemplateFile)) {
    impl->add(std::string(kDefaultName), *source, (directory / kTemplateFile).string());
    add_more_templates(*impl, directory / kMoreTemplatesFolder);
  } else if (const auto found = config.find("chat_template"); found != config.end()) {
    add_from_config(*impl, *found, config_path.string());
  }
  if (impl->templates.empty()) return std::nullopt;
  impl->special_tokens = text::special_tokens_of(config);
  for (auto& [key, token] : text::special_tokens_of(text::read_object(directory / text::kSpecialTokensMapFile))) {
    impl->special_tokens.emplace(key, token);
  }
  ChatTemplate result;
  result.impl_ = std::move(impl);
  return result;
}

ChatTemplate ChatTemplate::from_source(std::string source, std::map<std::string, std::string> special_tokens) {
  auto impl = std::make_shared<Impl>();
  impl->add(std::string(kDefaultName), source, "chat template");
  impl->special_tokens = std::move(special_tokens);
  ChatTemplate result;
  result.impl_ = std::move(impl);
  return result;
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages, const ChatTemplateOptions& options) const {
  Json list = Json::array();
  for (const auto& message : messages) list.push_back(Json{{"role", message.role}, {"content", message.content}});
  try {
    return render_json(list.dump(), options);
  } catch (const Json::type_error& e) {
    throw InvalidArgumentError(fmt::format("a message is not valid UTF-8: {}", e.what()), "messages");
  }
}

std::string ChatTemplate::render_json(std::string_view messages_json, const ChatTemplateOptions& options) const {
  Json messages = parse_argument(messages_json, "messages");
  if (!messages.is_array()) {
    throw InvalidArgumentError(fmt::format("messages are {}, not a list", messages.type_name()), "messages");
  }
  Json variables = Json::object();
  for (const auto& [key, token] : impl_->special_tokens) variables[key] = token;
  variables["messages"] = std::move(messages);
  variables["documents"] = nullptr;
  variables["tools"] = options.tools_json.empty() ? Json(nullptr) : parse_argument(options.tools_json, "tools");
  variables["add_generation_prompt"] = options.add_generation_prompt;
  if (options.enable_thinking) variables["enable_thinking"] = *options.enable_thinking;
  if (!options.extra_json.empty()) {
    const Json extra = parse_argument(options.extra_json, "extra variables");
    if (!extra.is_object()) {
      throw InvalidArgumentError(fmt::format("extra variables are {}, not an object", extra.type_name()), "extra");
    }
    for (const auto& [key, value] : extra.items()) variables[key] = value;
  }
  const bool with_tools = variables["tools"].is_array() && !variables["tools"].empty();
  return impl_->choose(options.name, with_tools).render(variables.dump());
}

}  // namespace coreai
