// coreai-run: calls a function of an asset with arrays from .npy files, replays recorded calls, records them.
#include "common/tool.h"
#include "coreai-run/options.h"
#include "coreai/compiler/compiler.h"

namespace coreai::tools {
namespace {

void add_options(CLI::App& app, CoreaiRunOptions& options) {
  app.add_option("asset", options.asset, "the .aimodel folder; with --check, used in place of the one the files name");
  app.add_option("--precision", options.precision,
                 "faithful, exact, strict or fast (default: faithful, strict with --check)")
      ->check(CLI::IsMember({"faithful", "exact", "strict", "fast"}));
  app.add_option("--kernels", options.kernels, "level of the CPU kernels: portable, avx2 or avx512 (default: the best)")
      ->check(CLI::IsMember({"portable", "avx2", "avx512"}));
  const auto passes = compiler::pass_names();
  app.add_option("--disable-pass", options.disabled_passes, "compile without this pass; may be given again")
      ->check(CLI::IsMember(std::vector<std::string>(passes.begin(), passes.end())))
      ->type_name("NAME")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--function", options.function, "function to call")->capture_default_str();
  app.add_option("--input", options.inputs, "name=file.npy, once per input");
  app.add_option("--state", options.states, "name=file.npy or name=zeros:1x2x3; a static state starts at zero");
  app.add_option("--output-dir", options.output_directory, "write outputs and states there as .npy files");
  app.add_option("--check", options.checks, "replay files of recorded calls")->expected(1, -1);
  app.add_option("--case", options.case_name, "with --check: only this case; with --record: the case's name");
  app.add_option("--record", options.record, "add this call to a file of recorded calls");
  app.add_option("--rtol", options.rtol, "with --record: relative tolerance of the case")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--atol", options.atol, "with --record: absolute tolerance of the case")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--profile", options.profile, "print the time of every step and bytes per second");
  app.add_option("--repeat", options.repeat, "with --profile: calls to take the median of")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_flag("--json", options.json, "the report as JSON");
}

int run(const CoreaiRunOptions& options) {
  const bool call_options = !options.inputs.empty() || !options.states.empty() || !options.record.empty() ||
                            !options.output_directory.empty();
  if (!options.checks.empty()) {
    if (call_options || options.profile)
      throw CLI::ValidationError("--check takes no --input, --state, --output-dir, --record and --profile");
    return run_checks(options);
  }
  if (options.asset.empty()) throw CLI::ValidationError("an asset or --check is needed");
  if (!options.case_name.empty() && options.record.empty())
    throw CLI::ValidationError("--case needs --check or --record");
  return run_asset(options);
}

}  // namespace
}  // namespace coreai::tools

int main(int argc, char** argv) {
  CLI::App app("Calls a function of a Core AI asset, or replays recorded calls.", "coreai-run");
  coreai::tools::CoreaiRunOptions options;
  coreai::tools::add_options(app, options);
  coreai::tools::add_common_options(app, options.common);
  return coreai::tools::run_tool(app, argc, argv, [&options] { return coreai::tools::run(options); });
}
