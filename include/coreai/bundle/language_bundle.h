// A bundle of kind "llm": one decoder asset, a tokenizer folder, and the facts the graph does not hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/bundle/model_bundle.h"

namespace coreai {

// The `language` block of metadata.json.
struct LanguageConfiguration {
  std::string tokenizer;  // a folder of the bundle, or the hub name the tokenizer once came from
  std::int64_t vocab_size = 0;
  std::int64_t max_context_length = 0;  // positions
  bool embedded_tokenizer = true;       // read, but a tokenizer is looked for in the bundle whatever it says
  std::map<std::string, std::vector<std::string>> function_map;  // role to functions, for unconventional names
};

// Immutable.
class LanguageBundle {
 public:
  // Checks, in this order: those of ModelBundle, kind, assets.main, the language block. Throws BundleError, IoError.
  static LanguageBundle open(const std::filesystem::path& directory);
  static LanguageBundle from(ModelBundle bundle);

  const ModelBundle& bundle() const { return bundle_; }
  const std::string& name() const { return bundle_.name(); }
  const std::filesystem::path& path() const { return bundle_.path(); }
  const LanguageConfiguration& language() const { return language_; }
  std::int64_t vocab_size() const { return language_.vocab_size; }
  std::int64_t max_context_length() const { return language_.max_context_length; }

  // The decoder asset. Throws as ModelBundle::require_model.
  std::filesystem::path model_path() const { return bundle_.require_model("main"); }
  // Functions of a role: what function_map says, else the role itself.
  std::vector<std::string> functions(std::string_view role) const;
  // The first of them.
  std::string function(std::string_view role) const { return functions(role).front(); }

  // The folder that holds tokenizer.json: "tokenizer", else the folder that `language.tokenizer` names. Only ever
  // inside the bundle, never fetched. Throws BundleError (kMissingTokenizer) that names where it looked.
  std::filesystem::path tokenizer_directory() const;
  // End tokens that generation_config.json declares, in the tokenizer folder or the bundle; empty without the file.
  std::vector<std::int32_t> declared_end_tokens() const;

 private:
  explicit LanguageBundle(ModelBundle bundle) : bundle_(std::move(bundle)) {}
  ModelBundle bundle_;
  LanguageConfiguration language_;
};

}  // namespace coreai
