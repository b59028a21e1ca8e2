// A folder for the bundles that a test makes, and the check of a fault.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "coreai/bundle/model_bundle.h"
#include "scratch_folder.h"

namespace coreai::test {

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class BundleFolder : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = root_ / "ä bundle";
    std::filesystem::create_directories(dir_);
  }

  static void write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  void metadata(const std::string& text) { write(dir_ / "metadata.json", text); }
  void folder(const std::string& name) { std::filesystem::create_directories(dir_ / name); }

  // `text` with its first `from` replaced; a `from` that is not there fails the test.
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  }

  // The action throws a BundleError with that fault and field whose message has the part, a place and a next step.
  static void expect_fault(BundleFault fault, const std::string& field, const std::string& part,
                           const std::function<void()>& action) {
    SCOPED_TRACE(part);
    try {
      action();
      ADD_FAILURE() << "accepted";
    } catch (const BundleError& e) {
      EXPECT_EQ(bundle_fault_name(e.fault()), bundle_fault_name(fault)) << e.what();
      EXPECT_EQ(e.field(), field) << e.what();
      EXPECT_THAT(e.what(), testing::HasSubstr(part));
      EXPECT_FALSE(e.next_step().empty());
      EXPECT_FALSE(e.where().empty());
      EXPECT_LT(std::string(e.what()).size(), 2000U);
    }
  }

  const ScratchFolder scratch_;
  const std::filesystem::path& root_ = scratch_.path();
  std::filesystem::path dir_;
};

}  // namespace coreai::test
