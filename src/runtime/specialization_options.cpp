#include "coreai/runtime/specialization_options.h"

#include <fmt/format.h>

#include <array>

#include "backend/cpu/isa.h"
#include "coreai/base/error.h"

namespace coreai {
namespace {

struct PrecisionName {
  Precision precision;
  std::string_view name;
};
constexpr std::array<PrecisionName, 4> kPrecisions = {{{Precision::kFaithful, "faithful"},
                                                       {Precision::kExact, "exact"},
                                                       {Precision::kStrict, "strict"},
                                                       {Precision::kFast, "fast"}}};
constexpr int kMostThreads = 1024;

}  // namespace

std::string_view precision_name(Precision precision) {
  for (const PrecisionName& entry : kPrecisions) {
    if (entry.precision == precision) return entry.name;
  }
  return "unknown";
}

Precision precision_from_name(std::string_view name) {
  for (const PrecisionName& entry : kPrecisions) {
    if (entry.name == name) return entry.precision;
  }
  throw InvalidArgumentError(fmt::format("there is no precision \"{}\"", name), {},
                             "Use faithful, exact, strict or fast");
}

void SpecializationOptions::validate() const {
  std::string problems;
  const auto add = [&problems](std::string problem) {
    problems += (problems.empty() ? "" : "; ") + std::move(problem);
  };
  if (threads < 0 || threads > kMostThreads) {
    add(fmt::format("threads is {}, it must lie in 0..{} (0 = one per available core)", threads, kMostThreads));
  }
  if (precision_name(precision) == "unknown")
    add(fmt::format("precision {} does not exist", static_cast<int>(precision)));
  for (const std::string& pass : disabled_passes) {
    if (pass.empty()) add("disabled_passes holds an empty name");
  }
  if (const auto level = cpu::isa_from_name(kernels); !kernels.empty() && (!level || !cpu::isa_supported(*level))) {
    add(fmt::format("kernels is \"{}\", this CPU runs portable up to {}", kernels, cpu::isa_name(cpu::detect_isa())));
  }
  if (progress_user && !progress) add("progress_user is given without progress");
  if (!problems.empty()) throw InvalidArgumentError(problems, "SpecializationOptions");
}

}  // namespace coreai
