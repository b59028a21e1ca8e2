// The checks of an audit, each over what earlier ones found. All report into a list of findings; none throws for
// what is in the bundle.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coreai/asset/asset.h"
#include "coreai/bundle/audit.h"
#include "coreai/bundle/model_bundle.h"
#include "coreai/bundle/pipeline_descriptor.h"

namespace coreai::audit {

using Json = nlohmann::ordered_json;

// Findings of one check. Paths are made relative to the bundle's folder.
class Findings {
 public:
  explicit Findings(std::filesystem::path root) : root_(std::move(root)) {}
  // An empty `fix` stands for the rule's.
  void add(AuditRule rule, const std::filesystem::path& path, std::string_view sentence, std::string_view fix = {});
  void add(const BundleError& error);
  void append(Findings other);
  bool has(AuditRule rule) const;
  std::vector<Finding> take() { return std::move(list_); }
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
  std::vector<Finding> list_;
};

// Text of a file in a sentence: one line, at most 80 bytes.
std::string excerpt(std::string_view text);

// A whole number of a block, where it is one that the block's reader takes: nothing else is held against anything.
std::optional<std::int64_t> count_of(const Json& block, const char* key, std::int64_t low = 1);

// The rule that an error of the bundle readers stands for.
AuditRule rule_of(const BundleError& error);

// metadata.json: nothing when no bundle can be made of it. `root` gets the JSON when it parses, else an empty object.
// Throws the BundleErrors that say that there is no bundle.
std::optional<ModelBundle> audit_metadata(Json& root, Findings& findings);

// An asset whose files were read. `functions` is empty when the program could not be read.
struct LoadedAsset {
  AuditedAsset report;
  std::filesystem::path path;
  std::vector<FunctionDescriptor> functions;
};
// Hash, metadata and program of one folder.
LoadedAsset audit_asset(const std::filesystem::path& path, const std::string& role, Findings& findings);
// Every declared asset, and those of a pipeline that are found by their names.
std::vector<LoadedAsset> audit_assets(const ModelBundle& bundle, Findings& findings);

// Roles, and the blocks of metadata.json that belong to the kind.
void audit_kind(const ModelBundle& bundle, const Json& root, const std::vector<LoadedAsset>& assets,
                Findings& findings);
// Parts that a pipeline cannot do without, as its reader says.
void audit_parts(const PipelineDescriptor& pipeline, Findings& findings);
// Functions, states and lengths of a language model's decoder, when it was read.
void audit_language(const ModelBundle& bundle, const Json& root, const std::vector<LoadedAsset>& assets,
                    Findings& findings);
// Null when the asset has none of that name.
const FunctionDescriptor* find_function(const LoadedAsset& asset, std::string_view name);

// What a tokenizer is held against.
struct TokenizerQuestion {
  std::filesystem::path folder;            // tokenizer/ or processor/
  bool chat = false;                       // answers end and templates are rendered
  std::optional<std::int64_t> vocab_size;  // of the model
};
void audit_tokenizer(const TokenizerQuestion& question, Findings& findings);

// The metadata's `compression` against what the weights of all assets are stored as.
void audit_compression(const Json& root, const std::vector<LoadedAsset>& assets, Findings& findings);

// Everything in the folder, whoever declares it: entries of `declared` are known. Returns the bytes of all files.
struct FilesQuestion {
  bool declarations_known = false;  // else nothing counts as undeclared
  std::vector<std::filesystem::path> declared;
};
std::uint64_t audit_files(const FilesQuestion& question, Findings& findings);

// Weights of a program as they are stored.
WeightMeasure measure_weights(const ir::Module& module);

}  // namespace coreai::audit
