// The small JSON files beside a tokenizer.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace coreai::text {

inline constexpr std::string_view kTokenizerFile = "tokenizer.json";
inline constexpr std::string_view kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr std::string_view kSpecialTokensMapFile = "special_tokens_map.json";
inline constexpr std::string_view kGenerationConfigFile = "generation_config.json";

// A whole file, or nothing when it does not exist. Throws IoError, and MalformedError beyond the limit of 1 GiB.
std::optional<std::string> read_text(const std::filesystem::path& path);
// A JSON object without its member "added_tokens_decoder". Throws MalformedError that names `where` for anything else,
// and for one nested deeper than 64.
nlohmann::ordered_json parse_object(std::string_view json, std::string_view where);
// The object in a file of a folder; an empty one when the file does not exist.
nlohmann::ordered_json read_object(const std::filesystem::path& path);

// A token as configs write it: a string, or an object with "content".
std::optional<std::string> token_text(const nlohmann::ordered_json& value);
// Members whose key ends in "_token" and whose value is a token.
std::map<std::string, std::string> special_tokens_of(const nlohmann::ordered_json& config);

}  // namespace coreai::text
