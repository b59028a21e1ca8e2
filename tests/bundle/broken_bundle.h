// Bundles to break: copies of the fixtures in a temporary folder.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "coreai/asset/asset.h"
#include "coreai/base/mapped_file.h"
#include "coreai/bundle/audit.h"
#include "coreai/ir/builder.h"
#include "scratch_folder.h"

namespace coreai::test {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

using Scratch = ScratchFolder;

inline fs::path fixture(const std::string& relative) {
  return fs::path(COREAI_FIXTURE_DIR) / relative;
}

inline void write_file(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline void edit_json(const fs::path& path, const std::function<void(Json&)>& change) {
  Json root = Json::parse(read_text_file(path));
  change(root);
  write_file(path, root.dump(2));
}

// main.hash as it belongs to main.mlirb.
inline void renew_hash(const fs::path& asset) {
  const auto digest = sha256(MappedFile::open(asset / "main.mlirb")->bytes());
  write_file(asset / "main.hash", {reinterpret_cast<const char*>(digest.data()), digest.size()});
}

// Replaces a name in the program by one of the same length, everywhere, and renews the hash.
inline void rename_in_program(const fs::path& asset, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  std::string bytes = read_text_file(asset / "main.mlirb");
  std::size_t count = 0;
  for (std::size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + 1), ++count)
    bytes.replace(at, from.size(), to);
  ASSERT_GT(count, 0u) << from;
  write_file(asset / "main.mlirb", bytes);
  renew_hash(asset);
}

// Writes a program in place of the asset's own, verified or not.
inline void replace_program(const fs::path& asset, const ir::Module& module) {
  const auto bytes = write_bytecode(module);
  write_file(asset / "main.mlirb", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  renew_hash(asset);
}

// A copy of tests/fixtures/<relative>, links followed.
inline fs::path copy_bundle(const Scratch& scratch, const std::string& relative) {
  const fs::path target = scratch.path() / "a bundle";
  fs::copy(fixture(relative), target, fs::copy_options::recursive);
  return target;
}

// Ids of the findings of a severity, each once.
inline std::set<std::string> ids(const AuditReport& report, Severity severity) {
  std::set<std::string> found;
  for (const Finding& finding : report.findings)
    if (finding.severity() == severity) found.emplace(finding.id());
  return found;
}

}  // namespace coreai::test
