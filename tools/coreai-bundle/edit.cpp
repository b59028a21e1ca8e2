// coreai-bundle retarget and new: change a bundle's metadata, put a bundle together.
#include "coreai/bundle/edit.h"

#include <fmt/format.h>

#include <memory>

#include "coreai-bundle/commands.h"
#include "coreai/base/error.h"
#include "coreai/base/mapped_file.h"

namespace coreai::tools {
namespace {

struct RetargetOptions {
  std::string bundle, role = "main", asset;
};

struct NewOptions {
  std::string bundle, kind = "llm", name, tokenizer, tokenizer_name, compression;
  std::vector<std::string> assets, blocks;
  std::optional<std::int64_t> vocab_size, max_context_length;
};

int retarget(const RetargetOptions& options) {
  const RetargetResult result = retarget_bundle(options.bundle, options.role, options.asset);
  print(fmt::format("{}: {} -> {}\n", printable(options.role),
                    result.previous.empty() ? "nothing" : printable(result.previous), printable(result.current)));
  if (result.compiled)
    print_warning(fmt::format("'{}' is compiled for an Apple device: the bundle runs only there", result.current));
  return kDone;
}

// "name=path", both there; `form` as the help writes it.
std::pair<std::string, std::string> name_and_path(const std::string& text, const char* option, const char* form) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw CLI::ValidationError(option, fmt::format("'{}' is not {}", text, form));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

int make(const NewOptions& options) {
  NewBundle bundle;
  bundle.kind = bundle_kind_from_name(options.kind).value();
  bundle.name = options.name;
  for (const std::string& text : options.assets) {
    const bool alone = text.find('=') == std::string::npos;
    const auto [role, path] = name_and_path(alone ? "main=" + text : text, "--asset", "[ROLE=]PATH");
    if (!bundle.assets.emplace(role, path).second)
      throw CLI::ValidationError("--asset", fmt::format("the role '{}' is given twice", role));
  }
  for (const std::string& text : options.blocks) {
    const auto [key, path] = name_and_path(text, "--block", "KEY=FILE");
    if (!bundle.blocks.emplace(key, read_text_file(expand_home(path))).second)
      throw CLI::ValidationError("--block", fmt::format("the block '{}' is given twice", key));
  }
  if (!options.tokenizer.empty()) bundle.tokenizer = options.tokenizer;
  bundle.tokenizer_name = options.tokenizer_name;
  bundle.vocab_size = options.vocab_size;
  bundle.max_context_length = options.max_context_length;
  bundle.compression = options.compression;
  create_bundle(bundle, options.bundle);
  print(fmt::format("{}\n", printable(options.bundle)));
  return kDone;
}

}  // namespace

Command add_retarget(CLI::App& app) {
  auto options = std::make_shared<RetargetOptions>();
  CLI::App* command = app.add_subcommand(
      "retarget", "Makes a role name another asset of the bundle; every other byte of metadata.json stays");
  command->add_option("bundle", options->bundle, "The bundle's folder")->required()->type_name("BUNDLE");
  command->add_option("--role", options->role, "The role")->type_name("ROLE")->capture_default_str();
  command
      ->add_option("--asset", options->asset,
                   "The .aimodel folder, relative to the bundle (an .aimodelc: then it runs on Apple devices only)")
      ->required()
      ->type_name("FILE");
  return {command, [options] { return retarget(*options); }};
}

Command add_new(CLI::App& app) {
  auto options = std::make_shared<NewOptions>();
  CLI::App* command = app.add_subcommand("new", "Puts a bundle together from assets and a tokenizer's folder, copied");
  command->add_option("bundle", options->bundle, "The folder to make; it must not exist")
      ->required()
      ->type_name("BUNDLE");
  command->add_option("--kind", options->kind, "The bundle's kind")
      ->type_name("KIND")
      ->capture_default_str()
      ->check([](const std::string& text) {
        if (bundle_kind_from_name(text)) return std::string();
        return fmt::format(
            "'{}' is no kind of bundle: llm, vlm, diffusion, segmenter, speech_recognizer, "
            "video-diffusion or video_segmenter",
            text);
      });
  command->add_option("--name", options->name, "The model's name; else that of the folder")->type_name("NAME");
  command->add_option("--asset", options->assets, "An .aimodel and its role (main when left out); may be given again")
      ->required()
      ->type_name("[ROLE=]PATH")
      ->take_all();
  command->add_option("--tokenizer", options->tokenizer, "The folder with tokenizer.json; kinds llm and vlm need one")
      ->type_name("DIR");
  command->add_option("--tokenizer-name", options->tokenizer_name, "Where the tokenizer came from, for the metadata")
      ->type_name("NAME");
  command->add_option("--vocab-size", options->vocab_size, "Tokens of the model; else read from its logits")
      ->type_name("N")
      ->check(at_least(1));
  command
      ->add_option("--max-context-length", options->max_context_length,
                   "Positions; needed when the asset's caches grow without a bound")
      ->type_name("N")
      ->check(at_least(1));
  command->add_option("--compression", options->compression, "What the exporter was asked for")->type_name("NAME");
  command->add_option("--block", options->blocks, "A further block of metadata.json from a JSON file, as vision=v.json")
      ->type_name("KEY=FILE")
      ->take_all();
  return {command, [options] { return make(*options); }};
}

}  // namespace coreai::tools
