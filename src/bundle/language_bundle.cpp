#include "coreai/bundle/language_bundle.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "coreai/base/mapped_file.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kGenerationConfigLimit = std::size_t{4} << 20;

BundleError malformed(std::string field, std::string what, const std::string& where) {
  return BundleError(BundleFault::kMalformedMetadata, std::move(field), std::move(what), where,
                     "Export the bundle again, or correct the file");
}

const Json& require(const Json& block, const char* key, const std::string& where) {
  const auto found = block.find(key);
  if (found != block.end() && !found->is_null()) return *found;
  throw BundleError(BundleFault::kMissingField, fmt::format("language.{}", key),
                    fmt::format("required field 'language.{}' is missing", key), where,
                    "Export the bundle again, or add the field");
}

// Token ids and positions are 32-bit integers in the graphs.
std::int64_t require_count(const Json& block, const char* key, const std::string& where) {
  const Json& value = require(block, key, where);
  const bool fits = value.is_number_integer() && value.get<std::int64_t>() > 0 &&
                    value.get<std::int64_t>() <= std::numeric_limits<std::int32_t>::max();
  if (fits) return value.get<std::int64_t>();
  throw malformed(fmt::format("language.{}", key),
                  fmt::format("'language.{}' is {}, not an integer from 1 to 2^31-1", key, value.dump()), where);
}

std::map<std::string, std::vector<std::string>> read_function_map(const Json& block, const std::string& where) {
  std::map<std::string, std::vector<std::string>> map;
  const auto found = block.find("function_map");
  if (found == block.end() || found->is_null()) return map;
  const auto wrong = [&] {
    return malformed("language.function_map", "'language.function_map' does not map roles to lists of function names",
                     where);
  };
  if (!found->is_object()) throw wrong();
  for (const auto& [role, names] : found->items()) {
    if (!names.is_array()) throw wrong();
    for (const auto& name : names) {
      if (!name.is_string()) throw wrong();
      map[role].push_back(name.get<std::string>());
    }
  }
  return map;
}

LanguageConfiguration read_language(const ModelBundle& bundle) {
  const std::string where = (bundle.path() / "metadata.json").string();
  const Json root = Json::parse(bundle.raw());
  const auto found = root.find("language");
  if (found == root.end() || found->is_null())
    throw BundleError(BundleFault::kMissingField, "language", "required field 'language' is missing", where,
                      "Export the bundle again, or add the block");
  if (!found->is_object()) throw malformed("language", "'language' is not an object", where);
  LanguageConfiguration language;
  const Json& tokenizer = require(*found, "tokenizer", where);
  if (!tokenizer.is_string()) throw malformed("language.tokenizer", "'language.tokenizer' is not a string", where);
  language.tokenizer = tokenizer.get<std::string>();
  language.vocab_size = require_count(*found, "vocab_size", where);
  language.max_context_length = require_count(*found, "max_context_length", where);
  const auto embedded = found->find("embedded_tokenizer");
  if (embedded != found->end() && !embedded->is_null()) {
    if (!embedded->is_boolean())
      throw malformed("language.embedded_tokenizer", "'language.embedded_tokenizer' is not true or false", where);
    language.embedded_tokenizer = embedded->get<bool>();
  }
  language.function_map = read_function_map(*found, where);
  return language;
}

}  // namespace

LanguageBundle LanguageBundle::open(const fs::path& directory) {
  return from(ModelBundle::open(directory));
}

LanguageBundle LanguageBundle::from(ModelBundle bundle) {
  const std::string where = (bundle.path() / "metadata.json").string();
  if (bundle.kind() != BundleKind::kLlm)
    throw BundleError(BundleFault::kKindMismatch, "kind",
                      fmt::format("expected bundle kind llm, got {}", bundle_kind_name(bundle.kind())), where,
                      "Use the program that runs bundles of that kind");
  if (!bundle.assets().contains("main"))
    throw BundleError(BundleFault::kMissingField, "assets.main", "required field 'assets.main' is missing", where,
                      "Name the decoder's .aimodel as \"main\" in \"assets\"");
  LanguageBundle made(std::move(bundle));
  made.language_ = read_language(made.bundle_);
  return made;
}

std::vector<std::string> LanguageBundle::functions(std::string_view role) const {
  const auto found = language_.function_map.find(std::string(role));
  if (found != language_.function_map.end() && !found->second.empty()) return found->second;
  return {std::string(role)};
}

fs::path LanguageBundle::tokenizer_directory() const {
  std::error_code ignored;
  const fs::path usual = bundle_.resolve("tokenizer", "tokenizer");
  if (fs::exists(usual / "tokenizer.json", ignored)) return usual;
  // A hub name such as "org/model" is no folder of the bundle, and a path that leaves it is refused by resolve().
  if (!language_.tokenizer.empty() && language_.tokenizer != "tokenizer") {
    const fs::path named = bundle_.resolve(language_.tokenizer, "language.tokenizer");
    if (fs::exists(named / "tokenizer.json", ignored)) return named;
  }
  throw BundleError(BundleFault::kMissingTokenizer, "language.tokenizer",
                    "the bundle has no tokenizer: this file is missing", (usual / "tokenizer.json").string(),
                    fmt::format("Copy tokenizer.json and tokenizer_config.json of '{}' there; nothing is ever "
                                "downloaded at run time",
                                language_.tokenizer));
}

std::vector<std::int32_t> LanguageBundle::declared_end_tokens() const {
  std::vector<std::int32_t> ids;
  std::error_code ignored;
  for (const fs::path& directory : {tokenizer_directory(), path()}) {
    const fs::path file = directory / "generation_config.json";
    if (!fs::exists(file, ignored)) continue;
    const Json root = Json::parse(read_text_file(file, kGenerationConfigLimit), nullptr, false);
    if (!root.is_object()) throw malformed("", "generation_config.json is not a JSON object", file.string());
    const auto found = root.find("eos_token_id");
    if (found == root.end() || found->is_null()) continue;
    for (const auto& id : found->is_array() ? *found : Json::array({*found})) {
      const bool fits = id.is_number_integer() && id.get<std::int64_t>() >= 0 &&
                        id.get<std::int64_t>() <= std::numeric_limits<std::int32_t>::max();
      if (!fits)
        throw malformed("eos_token_id", fmt::format("'eos_token_id' holds {}, not a token id", id.dump()),
                        file.string());
      ids.push_back(static_cast<std::int32_t>(id.get<std::int64_t>()));
    }
  }
  return ids;
}

}  // namespace coreai
