// A language model's decoder: are its functions, inputs, outputs and states those of the contract, and do the lengths
// of the metadata fit them. Dynamic exports have one function; static ones extend_<positions>_<tokens> and others.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "bundle/audit_parts.h"
#include "bundle/states.h"
#include "bundle/static_names.h"
#include "coreai/base/ascii.h"

namespace coreai::audit {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

const ValueDescriptor* find_value(const std::vector<ValueDescriptor>& values, std::string_view part) {
  const auto found =
      std::ranges::find_if(values, [&](const ValueDescriptor& v) { return contains_ignoring_case(v.name, part); });
  return found == values.end() ? nullptr : &*found;
}

// Of a cache whose extents are all known.
std::optional<std::int64_t> fixed_positions(const ValueDescriptor& state) {
  const bool named = contains_ignoring_case(state.name, "cache") || contains_ignoring_case(state.name, "kv");
  const bool grows = std::ranges::find(state.shape, kDynamic) != state.shape.end();
  return named && !grows ? cache_positions(state) : std::nullopt;
}

std::string function_names(const LoadedAsset& asset) {
  std::string names;
  for (const FunctionDescriptor& function : asset.functions) {
    names += (names.empty() ? "" : ", ") + function.name;
    if (names.size() > 200) return names + ", ...";
  }
  return names.empty() ? "none" : names;
}

class LanguageAudit {
 public:
  LanguageAudit(const ModelBundle& bundle, const Json& root, const std::vector<LoadedAsset>& assets,
                const LoadedAsset& decoder, Findings& findings)
      : roles_(bundle.assets()),
        assets_(assets),
        decoder_(decoder),
        findings_(findings),
        metadata_(findings.root() / "metadata.json") {
    const auto found = root.find("language");
    if (found != root.end() && found->is_object()) language_ = *found;
    vocab_size_ = count_of(language_, "vocab_size").value_or(0);
    context_ = count_of(language_, "max_context_length").value_or(0);
    try {
      declared_ = metadata::read_states(metadata::Fields(language_, "language", metadata_.string()));
    } catch (const BundleError&) {
      declared_.clear();  // the reader of the block has said so
    }
  }

  void run() {
    if (decoder_.functions.empty()) return;  // reported with the asset
    const bool fixed = std::ranges::any_of(decoder_.functions, [](const FunctionDescriptor& function) {
      return sizes_behind(function.name, "extend").size() == 2;
    });
    check_function_map(fixed);
    if (fixed) {
      check_static();
    } else {
      check_dynamic();
    }
  }

 private:
  const FunctionDescriptor* find(std::string_view name) const { return find_function(decoder_, name); }

  // The functions of a role are those of its own asset where it has one, else the decoder's. Null for an asset that
  // was not read, which has been reported.
  const LoadedAsset* asset_of(std::string_view role) const {
    const auto found =
        std::ranges::find_if(assets_, [&](const LoadedAsset& asset) { return asset.report.role == role; });
    if (found == assets_.end()) return roles_.contains(std::string(role)) ? nullptr : &decoder_;
    return found->report.loaded ? &*found : nullptr;
  }

  void check_function_map(bool fixed) {
    const auto map = language_.find("function_map");
    if (map == language_.end() || !map->is_object()) return;
    for (const auto& [role, names] : map->items()) {
      const LoadedAsset* asset = asset_of(role);
      if (asset == nullptr || !names.is_array()) continue;  // the reader of the block has said so
      for (const Json& entry : names) {
        if (!entry.is_string()) continue;
        const std::string name = entry.get<std::string>();
        if (role == "main" && main_.empty()) main_ = name;
        if (find_function(*asset, name) != nullptr) continue;
        missing_main_ = missing_main_ || role == "main";
        if (fixed && role == "main" && name == "main") {
          findings_.add(AuditRule::kFunctionMapUnmatched, metadata_,
                        "function_map names \"main\"; the asset is a static export without such a function");
        } else {
          findings_.add(AuditRule::kFunctionMissing, metadata_,
                        fmt::format("function_map gives the role '{}' the function '{}'; the asset has: {}",
                                    excerpt(role), excerpt(name), function_names(*asset)));
        }
      }
    }
  }

  void check_dynamic() {
    const std::string name = main_.empty() ? "main" : main_;
    const FunctionDescriptor* function = find(name);
    if (function == nullptr) {
      if (!missing_main_)
        findings_.add(
            AuditRule::kFunctionMissing, decoder_.path,
            fmt::format("there is no function '{}'; the asset has: {}", excerpt(name), function_names(decoder_)));
      return;
    }
    const bool tokens = find_value(function->inputs, "input_ids") != nullptr ||
                        find_value(function->inputs, "inputs_embeds") != nullptr;
    const bool positions = find_value(function->inputs, "position") != nullptr;
    if (!tokens || !positions)
      findings_.add(AuditRule::kDecoderInputMissing, decoder_.path,
                    fmt::format("the function '{}' has no input called '{}'", name,
                                tokens ? "position_ids" : "input_ids' or 'inputs_embeds"));
    check_logits(*function);
    check_states(*function);
  }

  void check_logits(const FunctionDescriptor& function) {
    const ValueDescriptor* logits = find_value(function.outputs, "logit");
    if (logits == nullptr) {
      findings_.add(AuditRule::kLogitsMissing, decoder_.path,
                    fmt::format("the function '{}' has no output with 'logit' in its name", function.name));
      return;
    }
    const std::size_t rank = logits->shape.rank();
    if (rank == 0 || vocab_size_ == 0) return;
    const std::int64_t last = logits->shape[rank - 1];
    if (last == vocab_size_ || last == kDynamic) return;
    findings_.add(AuditRule::kLogitsVocabulary, metadata_,
                  fmt::format("language.vocab_size is {}, the output '{}' of '{}' is {}", vocab_size_, logits->name,
                              function.name, logits->type_name));
  }

  void check_states(const FunctionDescriptor& function) {
    if (function.states.empty()) {
      findings_.add(AuditRule::kStateMissing, decoder_.path,
                    fmt::format("the function '{}' has no states", function.name));
      return;
    }
    check_declared_states(function);
    std::int64_t least = kUnbounded;
    for (const ValueDescriptor& state : function.states) {
      const bool sliding = std::ranges::any_of(declared_, [&](const DeclaredState& declared) {
        return declared.name == state.name && declared.kind == StateKind::kSlidingCache;
      });
      if (const auto positions = fixed_positions(state); positions && !sliding) least = std::min(least, *positions);
    }
    if (least == kUnbounded || context_ == 0 || least == context_) return;
    const bool exceeds = context_ > least;
    findings_.add(exceeds ? AuditRule::kContextExceedsStates : AuditRule::kContextBelowStates, metadata_,
                  fmt::format("language.max_context_length is {}, the caches of '{}' hold {} positions", context_,
                              function.name, least));
  }

  // `language.states`, as the runtime holds it against the function that it loads.
  void check_declared_states(const FunctionDescriptor& function) {
    for (const BundleError& error : metadata::state_problems(declared_, function, metadata_.string()))
      findings_.add(error);
  }

  void require(const std::string& name, std::string_view why) {
    if (find(name) == nullptr)
      findings_.add(AuditRule::kStaticFunctionMissing, decoder_.path,
                    fmt::format("there is no function '{}', which {} needs", name, why));
  }

  void check_static() {
    std::int64_t longest = 0;
    require("load_embeddings", "a static export");
    for (const FunctionDescriptor& function : decoder_.functions) {
      const auto sizes = sizes_behind(function.name, "extend");
      if (sizes.size() != 2) continue;
      longest = std::max(longest, sizes[0]);
      require(fmt::format("gather_embeddings_{}", sizes[1]), function.name);
      require(fmt::format("prompt_opt_{}_{}", sizes[0], sizes[1]), function.name);
      check_static_states(function, sizes[0]);
    }
    // One function stands for all: they are traced from one.
    const auto first = std::ranges::find_if(decoder_.functions, [](const FunctionDescriptor& function) {
      return sizes_behind(function.name, "extend").size() == 2;
    });
    check_logits(*first);
    check_declared_states(*first);
    if (context_ == 0 || context_ == longest) return;
    const bool exceeds = context_ > longest;
    findings_.add(
        exceeds ? AuditRule::kContextExceedsFunctions : AuditRule::kContextBelowFunctions, metadata_,
        fmt::format("language.max_context_length is {}, the longest function is for {} positions", context_, longest));
  }

  void check_static_states(const FunctionDescriptor& function, std::int64_t positions) {
    for (const ValueDescriptor& state : function.states) {
      const std::size_t rank = state.shape.rank();
      if (rank == 0 || state.shape[rank - 1] == positions) continue;
      findings_.add(AuditRule::kStaticStateMismatch, decoder_.path,
                    fmt::format("the state '{}' of '{}' is {}, without {} positions", state.name, function.name,
                                state.type_name, positions));
      return;
    }
    if (function.states.empty())
      findings_.add(AuditRule::kStateMissing, decoder_.path,
                    fmt::format("the function '{}' has no states", function.name));
  }

  const std::map<std::string, std::string>& roles_;
  const std::vector<LoadedAsset>& assets_;
  const LoadedAsset& decoder_;
  Findings& findings_;
  std::filesystem::path metadata_;
  Json language_ = Json::object();
  std::int64_t vocab_size_ = 0, context_ = 0;
  std::string main_;
  bool missing_main_ = false;
  std::vector<DeclaredState> declared_;
};

}  // namespace

const FunctionDescriptor* find_function(const LoadedAsset& asset, std::string_view name) {
  const auto found = std::ranges::find(asset.functions, name, &FunctionDescriptor::name);
  return found == asset.functions.end() ? nullptr : &*found;
}

void audit_language(const ModelBundle& bundle, const Json& root, const std::vector<LoadedAsset>& assets,
                    Findings& findings) {
  for (const LoadedAsset& asset : assets)
    if (asset.report.role == "main" && asset.report.loaded) LanguageAudit(bundle, root, assets, asset, findings).run();
}

}  // namespace coreai::audit
