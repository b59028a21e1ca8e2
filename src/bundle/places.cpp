#include "bundle/places.h"

#include <fmt/format.h>

#include <algorithm>

#include "bundle/metadata.h"

namespace coreai::places {
namespace {

namespace fs = std::filesystem;
using metadata::quote;

}  // namespace

bool inside(const fs::path& path, const fs::path& root) {
  const auto [end, ignored] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return end == root.end();
}

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

void require_relative(const std::string& relative, const std::string& field, const std::string& where) {
  const auto escape = [&](std::string what) {
    return BundleError(BundleFault::kOutsideBundle, field, std::move(what), where,
                       "Paths of a bundle are relative and stay inside its folder");
  };
  if (relative.empty() || relative.find('\0') != std::string::npos)
    throw escape(fmt::format("'{}' is {}, which is not a path", field, quote(relative)));
  const fs::path path(relative);
  if (path.is_absolute()) throw escape(fmt::format("'{}' is the absolute path {}", field, quote(relative)));
  for (const auto& part : path)
    if (part == "..") throw escape(fmt::format("'{}' is {}, which leaves the bundle", field, quote(relative)));
}

fs::path resolve(const fs::path& folder, const std::string& relative, const std::string& field,
                 const std::string& where) {
  require_relative(relative, field, where);
  const fs::path full = folder / relative;
  std::error_code error;
  // Hub caches link single files to a store beside the folder; a linked folder is another matter.
  if (!fs::is_directory(full, error)) return full;
  const fs::path root = fs::canonical(folder, error);
  if (error) return full;
  const fs::path real = fs::canonical(full, error);
  if (!error && !inside(real, root))
    throw BundleError(
        BundleFault::kOutsideBundle, field,
        fmt::format("'{}' is {}, a link to '{}' outside the bundle", field, quote(relative), real.string()), where,
        "Paths of a bundle are relative and stay inside its folder");
  return full;
}

fs::path require_asset(const fs::path& folder, const std::string& relative, const std::string& role,
                       const std::string& where) {
  const std::string field = "assets." + role;
  const fs::path path = resolve(folder, relative, field, where);
  std::error_code ignored;
  const bool compiled_name = without_slash(path).extension() == ".aimodelc";
  if (fs::is_directory(path, ignored) && !compiled_name) return path;
  if (fs::exists(path, ignored) && !compiled_name)
    throw BundleError(BundleFault::kNotAFolder, field, fmt::format("asset {} is a file, not a folder", quote(role)),
                      path.string(), "An .aimodel is a folder of three files: copy it whole, or export it again");
  const fs::path twin = path.string() + "c";
  if (compiled_name || fs::exists(twin, ignored))
    throw BundleError(BundleFault::kCompiledAsset, field,
                      fmt::format("'{}' is compiled for an Apple device and runs only there",
                                  without_slash(compiled_name ? path : twin).filename().string()),
                      path.string(), "Use a bundle with the portable .aimodel that it was compiled from");
  throw BundleError(BundleFault::kMissingAsset, field, fmt::format("asset {} not found", quote(role)), path.string(),
                    "Copy the asset to that place, or correct \"assets\" in metadata.json where there is one");
}

fs::path language_tokenizer(const fs::path& folder, const std::string& named) {
  const std::string where = (folder / "metadata.json").string();
  std::error_code ignored;
  fs::path usual = resolve(folder, "tokenizer", "tokenizer", where);
  if (fs::exists(usual, ignored) && !fs::is_directory(usual, ignored))
    throw BundleError(BundleFault::kNotAFolder, "tokenizer", "'tokenizer' is a file, not a folder", usual.string(),
                      "Make it a folder with tokenizer.json and tokenizer_config.json");
  if (fs::exists(usual / "tokenizer.json", ignored)) return usual;
  // A hub name such as "org/model" is no folder of the bundle, and a path that leaves it is refused by resolve().
  if (!named.empty() && named != "tokenizer") {
    const fs::path other = resolve(folder, named, "language.tokenizer", where);
    if (fs::exists(other / "tokenizer.json", ignored)) return other;
  }
  throw BundleError(BundleFault::kMissingTokenizer, "language.tokenizer",
                    "the bundle has no tokenizer: this file is missing", (usual / "tokenizer.json").string(),
                    fmt::format("Copy tokenizer.json and tokenizer_config.json of '{}' there; nothing is ever "
                                "downloaded at run time",
                                named));
}

fs::path speech_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::path& place : {folder / "processor", folder / "tokenizer", folder})
    if (fs::exists(place / "tokenizer.json", ignored)) return place;
  throw BundleError(
      BundleFault::kMissingTokenizer, "tokenizer", "the bundle has no tokenizer: this file is missing",
      (folder / "processor" / "tokenizer.json").string(),
      "Copy the model's tokenizer.json and tokenizer_config.json there; nothing is ever downloaded at run "
      "time");
}

std::vector<fs::path> tokenizers_of(BundleKind kind, const fs::path& folder, const std::string& named) {
  const auto place = [&](const char* name) { return resolve(folder, name, name, (folder / "metadata.json").string()); };
  std::error_code ignored;
  std::vector<fs::path> found;
  switch (kind) {
    case BundleKind::kLlm:
    case BundleKind::kVlm:
      return {language_tokenizer(folder, named)};
    case BundleKind::kSpeechRecognizer:
      return {speech_tokenizer(folder)};
    case BundleKind::kDiffusion:
    case BundleKind::kVideoDiffusion:
      found.push_back(place("tokenizer"));
      if (fs::exists(folder / "tokenizer_2", ignored)) found.push_back(place("tokenizer_2"));
      break;
    case BundleKind::kSegmenter:
    case BundleKind::kVideoSegmenter:
      if (fs::exists(folder / "tokenizer", ignored)) found.push_back(place("tokenizer"));
      break;
  }
  return found;
}

}  // namespace coreai::places
