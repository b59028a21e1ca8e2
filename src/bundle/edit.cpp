#include "coreai/bundle/edit.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/base/staging_folder.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string text_of(const Json& metadata) {
  return metadata.dump(2) + "\n";
}

// Links are followed: the copy is whole wherever it goes.
void copy_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directory(to, error);
  if (!error) fs::copy(from, to, fs::copy_options::recursive, error);
  if (error)
    throw IoError("the folder cannot be copied", from.string(), error.value(), "Check the free space of the disk");
}

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

// What a decoder's signature tells of the facts in the language block; 0 where it does not.
struct DecoderFacts {
  std::int64_t vocab_size = 0, max_context_length = 0;
};

// Positions of "extend_<positions>_<tokens>"; 0 for other names.
std::int64_t positions_of_static(std::string_view name) {
  constexpr std::string_view kPrefix = "extend_";
  if (!name.starts_with(kPrefix)) return 0;
  std::int64_t value = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), value);
  return value;
}

DecoderFacts facts_of(const std::vector<FunctionDescriptor>& functions) {
  DecoderFacts facts;
  for (const FunctionDescriptor& function : functions) {
    for (const ValueDescriptor& output : function.outputs)
      if (contains_ignoring_case(output.name, "logit") && output.shape.rank() >= 2)
        facts.vocab_size = std::max(facts.vocab_size, output.shape[output.shape.rank() - 1]);
    facts.max_context_length = std::max(facts.max_context_length, positions_of_static(function.name));
    if (function.name != "main") continue;
    for (const ValueDescriptor& state : function.states)
      if (contains_ignoring_case(state.name, "cache") && state.shape.rank() >= 4)
        facts.max_context_length = std::max(facts.max_context_length, state.shape[state.shape.rank() - 2]);
  }
  return facts;
}

std::string dashed(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

std::int64_t required_count(std::optional<std::int64_t> given, std::int64_t found, const char* what) {
  const std::int64_t value = given.value_or(found);
  if (value > 0) return value;
  throw InvalidArgumentError(fmt::format("the decoder does not tell its {}", what), what,
                             fmt::format("Give it: --{} N, or NewBundle::{}", dashed(what), what));
}

Json language_block(const NewBundle& bundle, const fs::path& decoder) {
  const DecoderFacts facts = facts_of(AIModelAsset::open(decoder).summary().functions);
  Json block = Json::object();
  block["tokenizer"] = bundle.tokenizer_name.empty() ? "tokenizer" : bundle.tokenizer_name;
  block["vocab_size"] = required_count(bundle.vocab_size, facts.vocab_size, "vocab_size");
  block["max_context_length"] =
      required_count(bundle.max_context_length, facts.max_context_length, "max_context_length");
  block["embedded_tokenizer"] = true;
  block["function_map"] = {{"main", Json::array({"main"})}};
  return block;
}

Json metadata_of(const NewBundle& bundle, const std::string& name) {
  Json metadata = Json::object();
  metadata["metadata_version"] = "0.2";
  metadata["kind"] = bundle_kind_name(bundle.kind);
  metadata["name"] = name;
  metadata["assets"] = Json::object();
  for (const auto& [role, path] : bundle.assets) metadata["assets"][role] = path.filename().string();
  const auto decoder = bundle.assets.find("main");
  if ((bundle.kind == BundleKind::kLlm || bundle.kind == BundleKind::kVlm) && decoder != bundle.assets.end())
    metadata["language"] = language_block(bundle, decoder->second);
  for (const auto& [key, text] : bundle.blocks) {
    Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded())
      throw InvalidArgumentError(fmt::format("the block '{}' is not JSON", key), key, "Give a JSON object");
    metadata[key] = std::move(value);
  }
  metadata["compression"] = bundle.compression.empty() ? Json(nullptr) : Json(bundle.compression);
  metadata["compilation"] = {{"date", fmt::format("{:%Y-%m-%dT%H:%M:%S}+00:00", fmt::gmtime(std::time(nullptr)))},
                             {"targets", Json::array()}};
  return metadata;
}

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

RetargetResult retarget_bundle(const fs::path& bundle, const std::string& role, const std::string& asset) {
  if (role.empty()) throw InvalidArgumentError("the role has no name", "role");
  const ModelBundle opened = ModelBundle::open(bundle);
  const fs::path file = opened.path() / "metadata.json";
  const fs::path target = opened.resolve(asset, fmt::format("assets.{}", role));
  std::error_code ignored;
  if (!fs::is_directory(target, ignored))
    throw BundleError(BundleFault::kMissingAsset, fmt::format("assets.{}", role),
                      fs::exists(target, ignored) ? "an asset is a folder, this is a file" : "the asset is not there",
                      target.string(), "Copy the asset into the bundle first; it is named relative to the bundle");
  Json root = Json::parse(opened.raw());
  Json& assets = root["assets"];
  if (!assets.is_object()) assets = Json::object();
  RetargetResult result;
  if (const auto found = assets.find(role); found != assets.end() && found->is_string())
    result.previous = found->get<std::string>();
  result.current = without_slash(fs::path(asset).lexically_normal()).string();
  assets[role] = result.current;
  Json& compilation = root["compilation"];
  if (!compilation.is_object()) compilation = Json::object();
  Json& targets = compilation["targets"];
  if (!targets.is_array()) targets = Json::array();
  targets.push_back(result.current);
  write_file_atomically(file, text_of(root));
  return result;
}

void create_bundle(const NewBundle& bundle, const fs::path& folder) {
  const fs::path target = without_slash(folder);
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(target, ignored)))
    throw IoError("the bundle exists already", target.string(), EEXIST, "Remove it or choose another name");
  if (bundle.assets.empty()) throw InvalidArgumentError("a bundle needs an asset", "assets", "Name at least one");
  NewBundle plain = bundle;
  for (auto& [role, path] : plain.assets) {
    path = without_slash(path);
    AIModelAsset::open(path);  // hash and metadata
    for (const auto& [other, same] : bundle.assets)
      if (other != role && without_slash(same).filename() == path.filename() && without_slash(same) != path)
        throw InvalidArgumentError(fmt::format("the assets of '{}' and '{}' have the same name", role, other),
                                   path.string(), "Rename one of them");
  }
  if (plain.tokenizer && !fs::exists(*plain.tokenizer / "tokenizer.json", ignored))
    throw NotFoundError("there is no tokenizer.json", (*plain.tokenizer / "tokenizer.json").string(),
                        "Name the folder that holds it");
  const Json metadata = metadata_of(plain, bundle.name.empty() ? target.filename().string() : bundle.name);
  StagingFolder staging(target);
  for (const auto& [role, path] : plain.assets)
    if (!fs::exists(staging.path() / path.filename(), ignored)) copy_folder(path, staging.path() / path.filename());
  if (plain.tokenizer) copy_folder(*plain.tokenizer, staging.path() / "tokenizer");
  std::string text;
  try {
    text = text_of(metadata);
  } catch (const Json::type_error&) {
    throw InvalidArgumentError("a name is not UTF-8", target.string(), "Rename the folder or the asset");
  }
  ModelBundle::from_bytes(text, staging.path()).verify();
  write_file_atomically(staging.path() / "metadata.json", text);
  staging.publish();
}

}  // namespace coreai
