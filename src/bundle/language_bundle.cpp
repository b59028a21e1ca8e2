#include "coreai/bundle/language_bundle.h"

#include <fmt/format.h>

#include <algorithm>

#include "bundle/generation_config.h"
#include "bundle/metadata.h"
#include "bundle/places.h"
#include "bundle/states.h"
#include "bundle/vision_config.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using metadata::Fields;
using metadata::Json;
using metadata::malformed;
using metadata::quote;

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

LanguageConfiguration read_language(const Fields& fields) {
  LanguageConfiguration language;
  language.tokenizer = fields.text("tokenizer");
  language.vocab_size = fields.integer("vocab_size");
  language.max_context_length = fields.integer("max_context_length");
  language.embedded_tokenizer = fields.optional_flag("embedded_tokenizer").value_or(true);
  language.function_map = read_function_map(fields);
  language.states = metadata::read_states(fields);
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

LanguageBundle LanguageBundle::open(const fs::path& directory) {
  return from(ModelBundle::open(directory));
}

LanguageBundle LanguageBundle::from(ModelBundle bundle) {
  bundle.require_kind({BundleKind::kLlm, BundleKind::kVlm});
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
  const auto found = metadata::state_problems(language_.states, function, metadata::where_of(bundle_));
  if (!found.empty()) throw BundleError(found.front());
}

fs::path LanguageBundle::tokenizer_directory() const {
  return places::language_tokenizer(path(), language_.tokenizer);
}

std::vector<std::int32_t> LanguageBundle::declared_end_tokens() const {
  std::vector<std::int32_t> ids;
  for (const fs::path& directory : {tokenizer_directory(), path()}) {
    const auto declared = metadata::read_end_tokens(directory);
    ids.insert(ids.end(), declared.begin(), declared.end());
  }
  return ids;
}

}  // namespace coreai
