// Bundles of kinds "llm" and "vlm": a decoder asset, a tokenizer folder, the facts the graph does not hold, and for
// "vlm" the assets and the block of its vision part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/asset/asset.h"
#include "coreai/bundle/model_bundle.h"
#include "coreai/bundle/vision_config.h"

namespace coreai {

// What a state holds: a cache with a row per position, a cache of the last positions only, or a fixed block that every
// step rewrites (recurrent models).
enum class StateKind { kKvCache, kSlidingCache, kFixed };
std::string_view state_kind_name(StateKind kind);  // as metadata.json spells it

struct DeclaredState {
  std::string name;  // of the function's state
  StateKind kind = StateKind::kKvCache;
};
// Positions that a cache [layers, batch, heads, positions, channels], or one of a single layer, holds: its last extent
// but one, kDynamic where it grows. Nothing for another rank.
std::optional<std::int64_t> cache_positions(const ValueDescriptor& state);
// Why a state of that shape cannot be of that kind; empty where it can. Caches have one unknown extent or their
// positions last but one of four or five; other states have no unknown extent.
std::string state_kind_conflict(const ValueDescriptor& state, StateKind kind);

// The `language` block of metadata.json.
struct LanguageConfiguration {
  std::string tokenizer;  // a folder of the bundle, or the hub name the tokenizer once came from
  std::int64_t vocab_size = 0;
  std::int64_t max_context_length = 0;  // positions
  bool embedded_tokenizer = true;       // read, but a tokenizer is looked for in the bundle whatever it says
  std::map<std::string, std::vector<std::string>> function_map;  // role to functions, for unconventional names
  std::vector<DeclaredState> states;                             // in the order of the file; empty when absent
};

// Immutable.
class LanguageBundle {
 public:
  // Checks, in this order: those of ModelBundle, kind, assets.main, the language block, for "vlm" the vision block.
  // Throws BundleError, IoError.
  static LanguageBundle open(const std::filesystem::path& directory);
  static LanguageBundle from(ModelBundle bundle);

  const ModelBundle& bundle() const { return bundle_; }
  BundleKind kind() const { return bundle_.kind(); }
  const std::string& name() const { return bundle_.name(); }
  const std::filesystem::path& path() const { return bundle_.path(); }
  const LanguageConfiguration& language() const { return language_; }
  std::int64_t vocab_size() const { return language_.vocab_size; }
  std::int64_t max_context_length() const { return language_.max_context_length; }
  // Of kind "vlm"; nothing for "llm".
  const std::optional<VisionConfig>& vision() const { return vision_; }
  // What was accepted although it should be written differently, one sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // The decoder asset. Throws as ModelBundle::require_model.
  std::filesystem::path model_path() const { return bundle_.require_model("main"); }
  // The declared assets, and for "vlm" that `embedding` and `vision` are declared: a bundle without its vision part is
  // an export in progress. Throws BundleError, the first of problems().
  void verify() const;
  std::vector<BundleError> problems() const;

  // Functions of a role: what function_map says, else the role itself.
  std::vector<std::string> functions(std::string_view role) const;
  // The first of them.
  std::string function(std::string_view role) const { return functions(role).front(); }
  // Functions of a role among those an asset has. function_map decides; exporters write {"main": ["main"]} into every
  // bundle, so that entry counts only where there is a "main". Without an entry: the function called like the role,
  // else those called "<role>_...", in the asset's order; empty when there are none. Throws BundleError
  // (kMissingFunction) when the map names a function that the asset does not have.
  std::vector<std::string> functions(std::string_view role, std::span<const std::string> available) const;
  // `language.states` against the states of a function: every declared state is there and can be what it is declared
  // as, every state is declared. Nothing to check when none is declared. Throws BundleError (kMissingFunction,
  // kInconsistent).
  void check_states(const FunctionDescriptor& function) const;

  // The folder that holds tokenizer.json: "tokenizer", else the folder that `language.tokenizer` names. Only ever
  // inside the bundle, never fetched. Throws BundleError (kMissingTokenizer, kNotAFolder) that names where it looked.
  std::filesystem::path tokenizer_directory() const;
  // End tokens that generation_config.json declares, in the tokenizer folder or the bundle; empty without the file.
  std::vector<std::int32_t> declared_end_tokens() const;

 private:
  explicit LanguageBundle(ModelBundle bundle) : bundle_(std::move(bundle)) {}
  ModelBundle bundle_;
  LanguageConfiguration language_;
  std::optional<VisionConfig> vision_;
  std::vector<std::string> warnings_;
};

}  // namespace coreai
