// coreai-build rewrite: read, verify and write an asset again.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "coreai-build/commands.h"
#include "coreai/asset/asset.h"
#include "coreai/base/error.h"

namespace coreai::tools {
namespace {

struct RewriteOptions {
  std::string asset, output;
  WriteOptions write;
};

int rewrite(const RewriteOptions& options) {
  const AIModelAsset asset = AIModelAsset::open(options.asset);
  const auto module = asset.load_module();  // verified
  save_asset(*module, options.output, asset.metadata(), options.write);
  const AIModelAsset written = AIModelAsset::open(options.output);
  print(fmt::format("{}\nprogram  {} -> {}\nhash     {}\n", printable(options.output),
                    format_bytes(asset.program_bytes().size()), format_bytes(written.program_bytes().size()),
                    written.hash_hex()));
  return kDone;
}

}  // namespace

Command add_rewrite(CLI::App& app) {
  auto options = std::make_shared<RewriteOptions>();
  CLI::App* command = app.add_subcommand(
      "rewrite", "Reads an asset, verifies it and writes it again: older operations become current ones");
  command->add_option("asset", options->asset, "The .aimodel folder")->required()->type_name("ASSET");
  command->add_option("--output", options->output, "The folder to write; it must not exist")
      ->required()
      ->type_name("OUT.aimodel");
  command->add_flag("--strip-locations", options->write.strip_locations,
                    "Leave out where in the author's source each operation comes from");
  return {command, [options] { return rewrite(*options); }};
}

}  // namespace coreai::tools
