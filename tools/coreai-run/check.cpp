#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coreai-run/options.h"
#include "coreai/asset/asset.h"
#include "coreai/base/error.h"
#include "coreai/runtime/recorded_calls.h"

namespace coreai::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const CaseResult& result) {
  const char* verdict = result.passed ? "pass" : result.must ? "FAIL" : "advisory";
  std::string line = fmt::format("{:8} {}  worst error {:.3g}", verdict, printable(result.name), result.worst_error);
  if (!result.worst_value.empty()) {
    line += fmt::format(" ({:.3g} of the tolerance, {})", result.worst_share, printable(result.worst_value));
  }
  if (!result.problem.empty()) line += "\n         " + printable(result.problem);
  return line + "\n";
}

Json json_of(const std::string& file, const CheckReport& report) {
  Json cases = Json::array();
  for (const CaseResult& result : report.cases) {
    cases.push_back({{"case", result.name},
                     {"strength", result.must ? "must" : "advisory"},
                     {"passed", result.passed},
                     {"worst_error", result.worst_error},
                     {"worst_share", result.worst_share},
                     {"worst_value", result.worst_value},
                     {"problem", result.problem}});
  }
  return {{"file", file},
          {"passed", report.passed},
          {"failed", report.failed},
          {"advisory_failed", report.advisory_failed},
          {"cases", std::move(cases)}};
}

}  // namespace

int run_checks(const CoreaiRunOptions& options) {
  CheckOptions check;
  if (!options.precision.empty()) check.specialization.precision = precision_from_name(options.precision);
  check.specialization.threads = thread_count(options.common);
  check.specialization.kernels = options.kernels;
  check.specialization.disabled_passes = options.disabled_passes;
  check.asset = options.asset;
  check.case_name = options.case_name;
  if (!options.asset.empty()) {
    try {
      (void)AIModelAsset::open(options.asset, HashCheck::kSkip);
    } catch (const Error& error) {
      print_error(error.what());  // no case of any file can be looked at
      return kCouldNotLook;
    }
  }
  std::size_t passed = 0, failed = 0, advisory = 0, looked = 0, unseen = 0;
  Json files = Json::array();
  for (const std::string& file : options.checks) {
    try {
      const CheckReport report = check_recorded_calls(file, check);
      ++looked;
      passed += report.passed;
      failed += report.failed;
      advisory += report.advisory_failed;
      if (options.json) {
        files.push_back(json_of(file, report));
        continue;
      }
      if (options.checks.size() > 1) print(printable(file) + "\n");
      for (const CaseResult& result : report.cases) print(line_of(result));
    } catch (const Error& error) {
      ++unseen;
      print_error(error.what());
      if (options.json) files.push_back({{"file", file}, {"error", error.what()}});
    }
  }
  if (options.json) {
    const Json report = {{"precision", precision_name(check.specialization.precision)},
                         {"passed", passed},
                         {"failed", failed},
                         {"advisory_failed", advisory},
                         {"files", files}};
    print(report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    print(fmt::format("{} passed, {} failed{}\n", passed, failed,
                      advisory ? fmt::format(", {} advisory differ", advisory) : ""));
  }
  if (looked == 0) return kCouldNotLook;
  return failed > 0 || unseen > 0 ? kFailed : kDone;
}

}  // namespace coreai::tools
