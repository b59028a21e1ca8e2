#include "coreai/bundle/language_bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "bundle/metadata.h"
#include "bundle/vision_config.h"
#include "coreai/base/mapped_file.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using metadata::Fields;
using metadata::Json;
using metadata::malformed;
using metadata::quote;

constexpr std::size_t kGenerationConfigLimit = std::size_t{4} << 20;
constexpr std::array kStateKinds{StateKind::kKvCache, StateKind::kSlidingCache, StateKind::kFixed};

std::map<std::string, std::vector<std::string>> read_function_map(const Fields& language) {
  std::map<std::string, std::vector<std::string>> map;
  const Json* found = language.find("function_map");
  if (found == nullptr) return map;
  const auto wrong = [&] {
    return malformed("language.function_map", "'language.function_map' does not map roles to lists of function names",
                     language.where());
  };
  if (!found->is_object()) throw wrong();
  for (const auto& [role, names] : found->items()) {
    if (!names.is_array()) throw wrong();
    for (const auto& name : names) {
      if (!name.is_string() || name.get<std::string>().empty()) throw wrong();
      map[role].push_back(name.get<std::string>());
    }
  }
  return map;
}

std::vector<DeclaredState> read_states(const Fields& language) {
  std::vector<DeclaredState> states;
  const auto block = language.optional_object("states");
  if (!block) return states;
  for (const auto& [name, value] : block->json().items()) {
    const auto kind = std::find_if(kStateKinds.begin(), kStateKinds.end(), [&value](StateKind known) {
      return value.is_string() && value.get<std::string>() == state_kind_name(known);
    });
    if (kind == kStateKinds.end())
      throw malformed(block->path(name),
                      fmt::format("'{}' is {}, not a kind of state (known: kv_cache, sliding_cache, fixed)",
                                  block->path(name), metadata::shown(value)),
                      language.where());
    states.push_back({name, *kind});
  }
  return states;
}

LanguageConfiguration read_language(const Fields& fields) {
  LanguageConfiguration language;
  language.tokenizer = fields.text("tokenizer");
  language.vocab_size = fields.integer("vocab_size");
  language.max_context_length = fields.integer("max_context_length");
  language.embedded_tokenizer = fields.optional_flag("embedded_tokenizer").value_or(true);
  language.function_map = read_function_map(fields);
  language.states = read_states(fields);
  return language;
}

BundleError unfinished(std::string field, const std::string& what, const std::string& where) {
  return BundleError(BundleFault::kExportInProgress, std::move(field), "the bundle has no vision part yet: " + what,
                     where, "Wait for the export to end (it adds the vision part last), or run it again");
}

std::string listed(std::span<const std::string> names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + quote(name);
  return text.empty() ? "none" : text;
}

}  // namespace

std::string_view state_kind_name(StateKind kind) {
  switch (kind) {
    case StateKind::kKvCache:
      return "kv_cache";
    case StateKind::kSlidingCache:
      return "sliding_cache";
    case StateKind::kFixed:
      return "fixed";
  }
  return "unknown";
}

LanguageBundle LanguageBundle::open(const fs::path& directory) {
  return from(ModelBundle::open(directory));
}

LanguageBundle LanguageBundle::from(ModelBundle bundle) {
  metadata::require_kind(bundle, {BundleKind::kLlm, BundleKind::kVlm});
  metadata::require_role(bundle, "main", "the decoder's .aimodel");
  LanguageBundle made(std::move(bundle));
  const std::string where = metadata::where_of(made.bundle_);
  const Json root = metadata::parse(made.bundle_);
  const Fields fields(root, "", where);
  const Fields language = fields.object("language");
  made.language_ = read_language(language);
  const auto nested = language.optional_object("vision");
  if (made.kind() == BundleKind::kLlm) {
    if (nested || fields.find("vision") != nullptr)
      made.warnings_.push_back("the block 'vision' of a bundle of kind llm is not read: kind vlm has one");
    return made;
  }
  const auto top = fields.optional_object("vision");
  if (nested)
    made.warnings_.push_back(top ? "the block 'language.vision' is not read: the block 'vision' beside it counts"
                                 : "the block 'vision' lies inside 'language'; it belongs beside it, at the top level "
                                   "of metadata.json: other programs do not find it where it is");
  const auto& block = top ? top : nested;
  if (!block && !made.bundle_.assets().contains("vision"))
    throw unfinished("vision", "neither the block 'vision' nor 'assets.vision' is there", where);
  if (!block) throw metadata::missing("vision", where);
  made.vision_ = metadata::read_vision(*block);
  return made;
}

std::vector<BundleError> LanguageBundle::problems() const {
  std::vector<BundleError> found = bundle_.problems();
  if (kind() != BundleKind::kVlm) return found;
  const std::string where = metadata::where_of(bundle_);
  if (!bundle_.assets().contains("vision"))
    found.push_back(unfinished("assets.vision", "'assets.vision' is missing", where));
  if (!bundle_.assets().contains("embedding")) found.push_back(metadata::missing("assets.embedding", where));
  return found;
}

void LanguageBundle::verify() const {
  const auto found = problems();
  if (!found.empty()) throw BundleError(found.front());
}

std::vector<std::string> LanguageBundle::functions(std::string_view role) const {
  const auto found = language_.function_map.find(std::string(role));
  if (found != language_.function_map.end() && !found->second.empty()) return found->second;
  return {std::string(role)};
}

std::vector<std::string> LanguageBundle::functions(std::string_view role,
                                                   std::span<const std::string> available) const {
  const auto has = [&](std::string_view name) {
    return std::find(available.begin(), available.end(), name) != available.end();
  };
  const auto mapped = language_.function_map.find(std::string(role));
  if (mapped != language_.function_map.end() && !mapped->second.empty()) {
    const auto& names = mapped->second;
    const bool usual = names.size() == 1 && names.front() == role;
    for (const auto& name : names) {
      if (has(name) || usual) continue;
      const std::string field = fmt::format("language.function_map.{}", role);
      throw BundleError(BundleFault::kMissingFunction, field,
                        fmt::format("'{}' names the function {}, which the asset does not have", field, quote(name)),
                        metadata::where_of(bundle_), fmt::format("Name functions of the asset: {}", listed(available)));
    }
    if (!usual || has(role)) return names;
  }
  if (has(role)) return {std::string(role)};
  std::vector<std::string> found;
  for (const auto& name : available)
    if (name.starts_with(std::string(role) + "_")) found.push_back(name);
  return found;
}

void LanguageBundle::check_states(const FunctionDescriptor& function) const {
  if (language_.states.empty()) return;
  std::vector<std::string> names;
  names.reserve(function.states.size());
  for (const auto& state : function.states) names.push_back(state.name);
  for (const auto& declared : language_.states) {
    if (std::find(names.begin(), names.end(), declared.name) != names.end()) continue;
    throw BundleError(BundleFault::kMissingFunction, "language.states." + declared.name,
                      fmt::format("'language.states' declares {}, which function '{}' does not have",
                                  quote(declared.name), function.name),
                      metadata::where_of(bundle_), fmt::format("Name the states of the function: {}", listed(names)));
  }
  for (const auto& name : names) {
    const bool declared = std::any_of(language_.states.begin(), language_.states.end(),
                                      [&name](const DeclaredState& state) { return state.name == name; });
    if (declared) continue;
    throw BundleError(BundleFault::kInconsistent, "language.states",
                      fmt::format("'language.states' leaves out {} of function '{}'", quote(name), function.name),
                      metadata::where_of(bundle_), "Declare every state of the function, or none");
  }
}

fs::path LanguageBundle::tokenizer_directory() const {
  std::error_code ignored;
  fs::path usual = bundle_.resolve("tokenizer", "tokenizer");
  if (fs::exists(usual, ignored) && !fs::is_directory(usual, ignored))
    throw BundleError(BundleFault::kNotAFolder, "tokenizer", "'tokenizer' is a file, not a folder", usual.string(),
                      "Make it a folder with tokenizer.json and tokenizer_config.json");
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
    const Json root =
        metadata::parse(read_text_file(file, kGenerationConfigLimit), "generation_config.json", file.string());
    const auto found = root.find("eos_token_id");
    if (found == root.end() || found->is_null()) continue;
    for (const auto& id : found->is_array() ? *found : Json::array({*found})) {
      if (!metadata::is_integer(id, 0, std::numeric_limits<std::int32_t>::max()))
        throw malformed("eos_token_id", fmt::format("'eos_token_id' holds {}, not a token id", metadata::shown(id)),
                        file.string());
      ids.push_back(static_cast<std::int32_t>(id.get<std::int64_t>()));
    }
  }
  return ids;
}

}  // namespace coreai
