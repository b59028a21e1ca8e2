// Everything in the folder: leftovers of interrupted work, links, odd names, files that nothing declares.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "bundle/audit_parts.h"
#include "coreai/base/ascii.h"
#include "coreai/base/utf8.h"

namespace coreai::audit {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxEntries = 100'000;

// What belongs to a bundle beside the assets that it declares. Tokenizers lie in folders.
constexpr std::array<std::string_view, 9> kKnown = {
    "metadata.json", "tokenizer",       "tokenizer_2",    "processor",     "generation_config.json",
    "config.json",   "vae_bn_mean.npy", "vae_bn_var.npy", "tokenizer.json"};
// Papers that go with a model; in any case, with any extension.
constexpr std::array<std::string_view, 5> kPapers = {"readme", "license", "licence", "notice", "changelog"};
constexpr std::array<std::string_view, 8> kTemporaryEndings = {".tmp",      ".temp",       ".part", ".partial",
                                                               ".download", ".incomplete", ".lock", "~"};

// "model.aimodel.tmp.Xa81kQ", "weights.part", ".metadata.json.swp", "notes.txt~".
bool is_temporary(const std::string& name) {
  const std::string text = lower_case(name);
  if (text.find(".tmp.") != std::string::npos || text.find(".tmp-") != std::string::npos) return true;
  if (text.starts_with(".") && text.ends_with(".swp")) return true;
  return std::ranges::any_of(kTemporaryEndings, [&](std::string_view ending) {
    return text.ends_with(ending) && text.size() > ending.size();
  });
}

bool is_paper(const std::string& name) {
  const std::string text = lower_case(name);
  return std::ranges::any_of(kPapers, [&](std::string_view word) { return text.starts_with(word); });
}

class FileAudit {
 public:
  FileAudit(const FilesQuestion& question, Findings& findings)
      : findings_(findings), knows_declared_(question.declarations_known) {
    for (const fs::path& path : question.declared) declare(path);
  }

  std::uint64_t run() {
    walk(findings_.root(), 0);
    if (too_many_)
      findings_.add(AuditRule::kTooManyFiles, findings_.root(), "more entries or folders than are looked at");
    return bytes_;
  }

 private:
  // The entry of the bundle's folder that a path of the metadata leads through.
  void declare(const fs::path& relative) {
    const fs::path plain = relative.lexically_normal();
    if (!plain.empty()) declared_.insert(*plain.begin());
  }

  // Links to folders are not entered: they may lead in circles.
  void walk(const fs::path& folder, int depth) {
    std::vector<fs::path> entries;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (++entries_ > kMaxEntries) {
        too_many_ = true;
        break;
      }
      entries.push_back(at->path());
    }
    std::ranges::sort(entries);
    for (const fs::path& path : entries) {
      const bool temporary = look_at(path);
      if (depth == 0 && !temporary && knows_declared_) look_at_top(path);
      const fs::file_status status = fs::symlink_status(path, error);
      if (!fs::is_directory(status)) continue;
      if (depth + 1 < kMaxDepth) {
        walk(path, depth + 1);
      } else {
        too_many_ = true;
      }
    }
  }

  // Returns whether the name is a temporary one.
  bool look_at(const fs::path& path) {
    const std::string name = path.filename().string();
    std::error_code error;
    const fs::file_status own = fs::symlink_status(path, error);
    const fs::file_status target = fs::status(path, error);
    if (fs::is_symlink(own)) {
      const std::string to = fs::read_symlink(path, error).string();
      if (!fs::exists(target)) {
        findings_.add(AuditRule::kSymlinkBroken, path, fmt::format("a link to '{}', which is not there", excerpt(to)));
      } else {
        findings_.add(AuditRule::kSymlink, path, fmt::format("a link to '{}'", excerpt(to)));
      }
    }
    if (fs::exists(target) && !fs::is_regular_file(target) && !fs::is_directory(target))
      findings_.add(AuditRule::kSpecialFile, path, "neither a file nor a folder");
    if (fs::is_regular_file(target)) {
      const std::uintmax_t size = fs::file_size(path, error);
      if (!error) bytes_ += size;
    }
    if (invalid_utf8(name)) findings_.add(AuditRule::kNameNotUtf8, path, "the file's name is not UTF-8");
    if (!is_temporary(name)) return false;
    findings_.add(AuditRule::kLeftoverTemporary, path, fmt::format("'{}' is a temporary name", excerpt(name)));
    return true;
  }

  void look_at_top(const fs::path& path) {
    const fs::path name = path.filename();
    const std::string text = name.string();
    if (declared_.contains(name) || std::ranges::find(kKnown, text) != kKnown.end() || is_paper(text)) return;
    std::error_code ignored;
    if (name.extension() != ".aimodel" || !fs::is_directory(path, ignored)) {
      findings_.add(AuditRule::kFileUndeclared, path, fmt::format("nothing refers to '{}'", excerpt(text)));
    } else if (fs::exists(path / "main.mlirb", ignored)) {
      findings_.add(AuditRule::kAssetUndeclared, path, fmt::format("no role names the asset '{}'", excerpt(text)));
    } else {
      findings_.add(AuditRule::kLeftoverAsset, path, fmt::format("'{}' holds no main.mlirb", excerpt(text)));
    }
  }

  Findings& findings_;
  std::set<fs::path> declared_;
  bool knows_declared_, too_many_ = false;
  std::size_t entries_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::uint64_t audit_files(const FilesQuestion& question, Findings& findings) {
  return FileAudit(question, findings).run();
}

}  // namespace coreai::audit
