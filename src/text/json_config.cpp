#include "text/json_config.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "coreai/base/error.h"

namespace coreai::text {

namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 30;
constexpr int kMaxDepth = 64;
// Says again what tokenizer.json says of its added tokens: thousands of objects in some configurations.
constexpr std::string_view kUnused = "added_tokens_decoder";

}  // namespace

std::optional<std::string> read_text(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return std::nullopt;
  if (!std::filesystem::is_regular_file(status)) {
    const bool folder = std::filesystem::is_directory(status);
    throw IoError(folder ? "a folder, not a file" : "not a regular file", path.string(), folder ? EISDIR : EINVAL);
  }
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw IoError("cannot read the file", path.string(), error.value());
  if (size > kMaxFileBytes) {
    throw MalformedError(fmt::format("the file has {} bytes, more than a tokenizer's file may have", size),
                         path.string(), kMaxFileBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file) throw IoError("cannot read the file", path.string(), errno);
  return text;
}

nlohmann::ordered_json parse_object(std::string_view json, std::string_view where) {
  const auto filter = [](int depth, nlohmann::ordered_json::parse_event_t event, const nlohmann::ordered_json& key) {
    if (depth > kMaxDepth) throw std::length_error("nested too deeply");
    return depth != 1 || event != nlohmann::ordered_json::parse_event_t::key || key != kUnused;
  };
  nlohmann::ordered_json value;
  try {
    value = nlohmann::ordered_json::parse(json, filter);
  } catch (const nlohmann::ordered_json::parse_error& e) {
    throw MalformedError(fmt::format("the JSON does not parse: {}", e.what()), std::string(where), e.byte);
  } catch (const std::length_error& e) {
    throw MalformedError(fmt::format("the JSON does not parse: {}", e.what()), std::string(where), 0);
  }
  if (!value.is_object()) {
    throw MalformedError(fmt::format("expected a JSON object, found {}", value.type_name()), std::string(where), 0);
  }
  return value;
}

nlohmann::ordered_json read_object(const std::filesystem::path& path) {
  const auto text = read_text(path);
  return text ? parse_object(*text, path.string()) : nlohmann::ordered_json::object();
}

std::optional<std::string> token_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) {
    const auto content = value.find("content");
    if (content != value.end() && content->is_string()) return content->get<std::string>();
  }
  return std::nullopt;
}

std::map<std::string, std::string> special_tokens_of(const nlohmann::ordered_json& config) {
  std::map<std::string, std::string> tokens;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    if (auto text = token_text(value)) tokens.emplace(key, std::move(*text));
  }
  return tokens;
}

}  // namespace coreai::text
