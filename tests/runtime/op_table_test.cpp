// The generated table of operations, dtypes and shapes against NumPy: tests/oracle/op_table.py writes what is expected.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>

#include "backend/cpu/isa.h"
#include "coreai/runtime/recorded_calls.h"
#include "runtime/op_table.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;

struct Mode {
  std::string name, kernels;
  Precision precision;
};

std::ostream& operator<<(std::ostream& out, const Mode& mode) {
  return out << mode.name;
}

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(COREAI_FIXTURE_DIR) / "op_table")) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class OpTable : public testing::TestWithParam<std::tuple<std::string, Mode>> {};

TEST_P(OpTable, EveryCaseAgreesWithNumPy) {
  const auto& [family, mode] = GetParam();
  const auto level = cpu::isa_from_name(mode.kernels);
  if (level && !cpu::isa_supported(*level)) GTEST_SKIP() << "this CPU has no " << mode.kernels;
  const fs::path table = fs::path(COREAI_FIXTURE_DIR) / "op_table" / (family + ".json");
  const fs::path folder = fs::temp_directory_path() / fmt::format("op_table_{}_{}_{}", getpid(), family, mode.name);
  fs::create_directories(folder);
  testing_support::write_table_asset(table, folder / "table.aimodel");
  CheckOptions options;
  options.asset = folder / "table.aimodel";
  options.specialization.precision = mode.precision;
  options.specialization.kernels = mode.kernels;
  options.specialization.threads = 1;
  options.specialization.use_cache = false;
  const CheckReport report = check_recorded_calls(table, options);
  for (const CaseResult& result : report.cases) EXPECT_TRUE(result.passed) << result.name << ": " << result.problem;
  RecordProperty("cases", static_cast<int>(report.cases.size()));
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Generated, OpTable,
                         testing::Combine(testing::ValuesIn(families()),
                                          testing::Values(Mode{"strict", "", Precision::kStrict},
                                                          Mode{"portable", "portable", Precision::kFaithful},
                                                          Mode{"avx2", "avx2", Precision::kFaithful},
                                                          Mode{"avx512", "avx512", Precision::kFaithful})),
                         [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param).name; });

}  // namespace
}  // namespace coreai
