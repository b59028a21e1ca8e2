// coreai-export: a checkpoint to a Core AI language bundle.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "common/interrupt.h"
#include "common/tool.h"
#include "coreai/base/error.h"
#include "coreai/exporter/llm_exporter.h"

namespace coreai::tools {
namespace {

struct LlmArguments {
  std::string checkpoint, output, compute = "float32", kv;
  std::optional<std::int64_t> max_context;
  std::string name;
  bool no_composites = false, overwrite = false;
};

const std::map<std::string, DType>& precisions() {
  static const std::map<std::string, DType> names = {
      {"float32", DType::kF32}, {"float16", DType::kF16}, {"bfloat16", DType::kBF16}};
  return names;
}

void add_llm_options(CLI::App& app, LlmArguments& a) {
  const CLI::IsMember known({"float32", "float16", "bfloat16"});
  app.add_option("checkpoint", a.checkpoint, "GGUF file of architecture llama or gemma3")
      ->required()
      ->type_name("FILE");
  app.add_option("--output,-o", a.output, "Folder of the bundle to write")->required()->type_name("DIR");
  app.add_option("--compute-precision", a.compute, "Type of activations and logits")
      ->check(known)
      ->capture_default_str();
  app.add_option("--kv-precision", a.kv,
                 "Type of the key and value states; default float16, bfloat16 in a bfloat16 model")
      ->check(known);
  app.add_option("--max-context-length", a.max_context,
                 "Longest context that the bundle declares; default: the checkpoint's")
      ->check(at_least(1));
  app.add_option("--name", a.name, "Name of the bundle; default: the checkpoint's file name")->type_name("NAME");
  app.add_flag("--no-composites", a.no_composites, "Write rms_norm, rope and attention out op by op");
  app.add_flag("--overwrite", a.overwrite, "Replace a bundle that is there already");
}

LlmExportOptions export_options(const LlmArguments& a, const CommonOptions& common) {
  LlmExportOptions out;
  out.compute_precision = precisions().at(a.compute);
  if (!a.kv.empty()) out.kv_precision = precisions().at(a.kv);
  out.max_context = a.max_context;
  out.composites = !a.no_composites;
  out.name = a.name;
  out.overwrite = a.overwrite;
  out.threads = thread_count(common);
  return out;
}

// One line that rewrites itself, on a terminal only.
class ProgressBar {
 public:
  ~ProgressBar() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
  }
  void show(std::string_view phase, std::uint64_t done, std::uint64_t total) {
    if (!terminal_) return;
    const int percent = total == 0 ? 0 : static_cast<int>(100 * done / total);
    if (shown_ && percent == percent_ && phase == phase_) return;
    percent_ = percent;
    phase_ = phase;
    shown_ = true;
    constexpr int kWidth = 30;
    const std::string bar(static_cast<std::size_t>(percent * kWidth / 100), '#');
    if (total == 0) {
      fmt::print(stderr, "\r\x1b[K{} ...", phase);
    } else {
      fmt::print(stderr, "\r\x1b[K{} [{:<30}] {:3} %", phase, bar, percent);
    }
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  int percent_ = 0;
  std::string phase_;
};

int export_checkpoint(const LlmArguments& arguments, const CommonOptions& common, InterruptWatcher& interrupts) {
  {
    ProgressBar bar;
    const auto progress = [&](std::string_view phase, std::uint64_t done, std::uint64_t total) {
      bar.show(phase, done, total);
    };
    export_llm(arguments.checkpoint, arguments.output, export_options(arguments, common), progress, interrupts.arm());
  }
  print(arguments.output + "\n");
  return kDone;
}

int run(int argc, char** argv) {
  InterruptWatcher interrupts;
  CLI::App app("Writes Core AI model bundles from checkpoints.", "coreai-export");
  CommonOptions common;
  add_common_options(app, common);
  LlmArguments arguments;
  CLI::App* llm = app.add_subcommand("llm", "A language model from a GGUF checkpoint");
  add_llm_options(*llm, arguments);
  app.require_subcommand(1);
  return run_tool(app, argc, argv, [&] { return export_checkpoint(arguments, common, interrupts); });
}

}  // namespace
}  // namespace coreai::tools

int main(int argc, char** argv) {
  return coreai::tools::run(argc, argv);
}
