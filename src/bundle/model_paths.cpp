#include "coreai/bundle/model_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "bundle/metadata.h"

namespace coreai {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> split(std::string_view list) {
  std::vector<fs::path> folders;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    if (end > 0) folders.push_back(expand_home(fs::path(list.substr(0, end))));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return folders;
}

bool is_path(std::string_view name) {
  for (const std::string_view start : {"/", "./", "../", "~/"})
    if (name.starts_with(start)) return true;
  return name == "." || name == ".." || name == "~";
}

// A name stays below the folder it is looked for in.
bool stays_below(const fs::path& name) {
  return std::none_of(name.begin(), name.end(), [](const fs::path& part) { return part == ".."; });
}

}  // namespace

ModelPaths ModelPaths::standard(std::string_view override_list) {
  if (auto folders = split(override_list); !folders.empty()) return ModelPaths(std::move(folders));
  if (const char* listed = std::getenv("COREAI_MODEL_PATH"))
    if (auto folders = split(listed); !folders.empty()) return ModelPaths(std::move(folders));
  return ModelPaths({".", "./exports", expand_home("~/.coreai-models")});
}

fs::path ModelPaths::find(std::string_view name) const {
  std::error_code ignored;
  fs::path given = expand_home(fs::path(name));
  if (is_path(name)) return given;
  if (name.empty() || name.find('\0') != std::string_view::npos)
    throw BundleError(BundleFault::kUnknownModel, "", fmt::format("{} is no model's name", metadata::quote(name)),
                      "model", "Give a bundle's folder or its name");
  if (fs::exists(given, ignored)) return given;
  std::string looked;
  for (const fs::path& folder : folders_) {
    const fs::path candidate = folder / given;
    if (stays_below(given) && fs::exists(candidate / "metadata.json", ignored)) return candidate;
    const bool there = fs::exists(candidate, ignored);
    looked += fmt::format("{}{}{}", looked.empty() ? "" : ", ", candidate.string(), there ? " (no metadata.json)" : "");
  }
  throw BundleError(BundleFault::kUnknownModel, "",
                    fmt::format("model {} not found; looked for: {}", metadata::quote(name),
                                looked.empty() ? "nothing, no folder is set" : looked),
                    std::string(name),
                    "Give the bundle's folder, or set COREAI_MODEL_PATH to the folders that hold bundles, separated "
                    "by ':'");
}

}  // namespace coreai
