#include "coreai/bundle/edit.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "bundle/json_edit.h"
#include "bundle/places.h"
#include "bundle/static_names.h"
#include "coreai/asset/asset.h"
#include "coreai/base/ascii.h"
#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"
#include "coreai/base/staging_folder.h"
#include "coreai/bundle/open_bundle.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;
using metadata::Json;

// A folder of its own: files by their content, whatever links to them.
void copy_entries(const fs::path& from, const fs::path& to) {
  fs::create_directory(to);
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path there = to / entry.path().filename();
    if (entry.is_regular_file()) {
      fs::copy_file(entry.path(), there);
    } else if (entry.is_directory() && !entry.is_symlink()) {
      copy_entries(entry.path(), there);
    } else {
      throw InvalidArgumentError("neither a file nor a folder, nor a link to a file: it cannot be copied",
                                 entry.path().string(), "Remove it, or copy what it stands for in its place");
    }
  }
}

void copy_folder(const fs::path& from, const fs::path& to) {
  try {
    copy_entries(from, to);
  } catch (const fs::filesystem_error& error) {
    const bool full = error.code() == std::errc::no_space_on_device;
    throw IoError("the folder cannot be copied", error.path1().string(), error.code().value(),
                  full ? "Make space on the disk" : "Check that it can be read");
  }
}

// What a decoder's signature tells of the facts in the language block; 0 where it does not.
struct DecoderFacts {
  std::int64_t vocab_size = 0, max_context_length = 0;
};

DecoderFacts facts_of(const std::vector<FunctionDescriptor>& functions) {
  DecoderFacts facts;
  for (const FunctionDescriptor& function : functions) {
    for (const ValueDescriptor& output : function.outputs)
      if (contains_ignoring_case(output.name, "logit") && output.shape.rank() >= 2)
        facts.vocab_size = std::max(facts.vocab_size, output.shape[output.shape.rank() - 1]);
    const auto sizes = sizes_behind(function.name, "extend");
    if (sizes.size() == 2) facts.max_context_length = std::max(facts.max_context_length, sizes[0]);
    if (function.name != "main") continue;
    for (const ValueDescriptor& state : function.states)
      if (contains_ignoring_case(state.name, "cache"))
        facts.max_context_length = std::max(facts.max_context_length, cache_positions(state).value_or(0));
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

bool is_language(BundleKind kind) {
  return kind == BundleKind::kLlm || kind == BundleKind::kVlm;
}

// The text of metadata.json. Blocks stand last, byte for byte.
std::string metadata_of(const NewBundle& bundle, const std::string& name) {
  Json root = Json::object();
  root["metadata_version"] = "0.2";
  root["kind"] = bundle_kind_name(bundle.kind);
  root["name"] = name;
  root["assets"] = Json::object();
  for (const auto& [role, path] : bundle.assets) root["assets"][role] = path.filename().string();
  const auto decoder = bundle.assets.find("main");
  if (is_language(bundle.kind) && decoder != bundle.assets.end())
    root["language"] = language_block(bundle, decoder->second);
  root["compression"] = bundle.compression.empty() ? Json(nullptr) : Json(bundle.compression);
  root["compilation"] = {{"date", fmt::format("{:%Y-%m-%dT%H:%M:%S}+00:00", fmt::gmtime(std::time(nullptr)))},
                         {"targets", Json::array()}};
  std::string text = metadata::json_text(root) + "\n";
  for (const auto& [key, block] : bundle.blocks) {
    if (root.contains(key))
      throw InvalidArgumentError(fmt::format("the block '{}' is written by itself", key), key,
                                 "Leave the block out; options say what stands in it");
    metadata::parse(block, fmt::format("the block '{}'", key), key);
    const std::size_t begin = block.find('{');
    text = metadata::with_member(std::move(text), std::array{key}, block.substr(begin, block.rfind('}') + 1 - begin));
  }
  return text;
}

// A copy of a folder into itself would never end.
void refuse_inside(const fs::path& target, const fs::path& source) {
  std::error_code error;
  const fs::path parent = fs::weakly_canonical(fs::absolute(target).parent_path(), error);
  if (!error && places::inside(parent, fs::canonical(source, error)) && !error)
    throw InvalidArgumentError("the new bundle would lie in a folder that is copied into it", target.string(),
                               fmt::format("Choose a place outside {}", source.string()));
}

void check_assets(const NewBundle& bundle, const fs::path& target) {
  if (bundle.assets.empty()) throw InvalidArgumentError("a bundle needs an asset", "assets", "Name at least one");
  for (const auto& [role, path] : bundle.assets) {
    AIModelAsset::open(path);  // hash and metadata
    refuse_inside(target, path);
    for (const auto& [other, same] : bundle.assets)
      if (other != role && same.filename() == path.filename() && same != path)
        throw InvalidArgumentError(fmt::format("the assets of '{}' and '{}' have the same name", role, other),
                                   path.string(), "Rename one of them");
  }
}

void check_tokenizer(const NewBundle& bundle, const fs::path& target) {
  std::error_code ignored;
  if (!bundle.tokenizer && is_language(bundle.kind))
    throw InvalidArgumentError(fmt::format("a bundle of kind {} needs a tokenizer", bundle_kind_name(bundle.kind)),
                               "tokenizer", "Name its folder: --tokenizer DIR, or NewBundle::tokenizer");
  if (!bundle.tokenizer) return;
  if (!fs::exists(*bundle.tokenizer / "tokenizer.json", ignored))
    throw NotFoundError("there is no tokenizer.json", (*bundle.tokenizer / "tokenizer.json").string(),
                        "Name the folder that holds it");
  refuse_inside(target, *bundle.tokenizer);
}

// Paths as people write them.
NewBundle with_plain_paths(NewBundle bundle) {
  const auto plain = [](const fs::path& path) { return places::without_slash(expand_home(path)); };
  for (auto& [role, path] : bundle.assets) path = plain(path);
  if (bundle.tokenizer) bundle.tokenizer = plain(*bundle.tokenizer);
  return bundle;
}

// The asset that a role is to name. Returns whether it is a compiled one, of which only the folder is asked for.
bool check_target(const ModelBundle& bundle, const std::string& role, const std::string& asset) {
  const std::string field = fmt::format("assets.{}", role);
  const fs::path target = places::without_slash(bundle.resolve(asset, field).lexically_normal());
  std::error_code ignored;
  const bool compiled = target.extension() == ".aimodelc";
  if (!compiled && target.extension() != ".aimodel")
    throw InvalidArgumentError(fmt::format("{} is not the name of an asset", metadata::quote(asset)), field,
                               "Name an .aimodel folder of the bundle, or an .aimodelc for an Apple device");
  if (!fs::is_directory(target, ignored))
    throw BundleError(BundleFault::kMissingAsset, field,
                      fs::exists(target, ignored) ? "an asset is a folder, this is a file" : "the asset is not there",
                      target.string(), "Copy the asset into the bundle first; it is named relative to the bundle");
  if (!compiled) AIModelAsset::open(target, HashCheck::kSkip);
  return compiled;
}

}  // namespace

RetargetResult retarget_bundle(const fs::path& bundle, const std::string& role, const std::string& asset) {
  if (role.empty()) throw InvalidArgumentError("the role has no name", "role");
  const ModelBundle opened = ModelBundle::open(bundle);
  RetargetResult result;
  result.compiled = check_target(opened, role, asset);
  if (const auto found = opened.assets().find(role); found != opened.assets().end()) result.previous = found->second;
  result.current = places::without_slash(fs::path(asset).lexically_normal()).string();
  const std::string name = metadata::json_text(result.current);
  std::string text = metadata::with_member(opened.raw(), std::array<std::string, 2>{"assets", role}, name);
  text = metadata::with_element(std::move(text), std::array<std::string, 2>{"compilation", "targets"}, name);
  COREAI_INVARIANT(ModelBundle::from_bytes(text, opened.path()).assets().at(role) == result.current);
  const fs::path file = opened.path() / "metadata.json";
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  write_file_atomically(error ? file : real, text);
  return result;
}

void create_bundle(const NewBundle& given, const fs::path& folder) {
  const NewBundle bundle = with_plain_paths(given);
  const fs::path target = places::without_slash(expand_home(folder));
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(target, ignored)))
    throw IoError("the bundle exists already", target.string(), EEXIST, "Remove it or choose another name");
  check_assets(bundle, target);
  check_tokenizer(bundle, target);
  const std::string text = metadata_of(bundle, bundle.name.empty() ? target.filename().string() : bundle.name);
  open_bundle(ModelBundle::from_bytes(text, target));  // throws what its kind lacks, before anything is copied
  StagingFolder staging(target);
  for (const auto& [role, path] : bundle.assets)
    if (!fs::exists(staging.path() / path.filename(), ignored)) copy_folder(path, staging.path() / path.filename());
  if (bundle.tokenizer) copy_folder(*bundle.tokenizer, staging.path() / "tokenizer");
  for (const BundleError& error : problems(open_bundle(ModelBundle::from_bytes(text, staging.path()))))
    throw BundleError(error.fault(), error.field(), error.problem(), (target / "metadata.json").string(),
                      error.next_step());
  write_file_atomically(staging.path() / "metadata.json", text);
  staging.publish();
}

}  // namespace coreai
