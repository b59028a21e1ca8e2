// Recorded texts of assets: "// heading" lines, each followed by a module.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "shared_data.h"

namespace coreai::test {

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

// What follows the line that starts with `heading`, up to the next "// " line; empty when there is none.
inline std::string section(const std::string& text, const std::string& heading) {
  std::size_t at = text.rfind(heading, 0) == 0 ? 0 : text.find("\n" + heading);
  if (at == std::string::npos) return {};
  at = text.find('\n', at + 1) + 1;
  const std::size_t end = text.find("\n// ", at);
  return end == std::string::npos ? text.substr(at) : text.substr(at, end + 1 - at);
}

inline void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// Undoes the abbreviations of the recorded disk forms: names of locations stand for what they name, and the locations
// of operations and arguments are dropped.
inline std::string expand_disk_text(std::string text) {
  static const std::regex definition("(#loc[0-9]*) = ([^\n]*)\n");
  std::map<std::string, std::string> locations;
  for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it) {
    locations[(*it)[1]] = (*it)[2];
  }
  text = std::regex_replace(text, definition, "");
  text = std::regex_replace(text, std::regex(" loc\\([^()]*\\)"), "");
  for (int pass = 0; pass < 2; ++pass) {
    for (auto it = locations.rbegin(); it != locations.rend(); ++it) replace_all(text, it->first, it->second);
  }
  replace_all(text, "#ser.", "#aicode.serialization.");
  replace_all(text, "!t<", "!tensor_v1<");
  return std::regex_replace(text, std::regex("!(?!aicode\\.)([a-z])"), "!aicode.$1");
}

inline std::string trimmed(std::string text) {
  const std::size_t end = text.find_last_not_of(" \n");
  text.erase(end == std::string::npos ? 0 : end + 1);
  return text;
}

// Disk texts recorded before the file was written lack the date that the writer puts in.
inline std::string without_version(const std::string& text) {
  return std::regex_replace(text, std::regex("(\"aicode.serialization.asset\"\\(\\)) <\\{version = [^}]*\\}>"), "$1");
}

// Whether a printed line is the recorded one; long constants were cut in the record ("dense<[[1.0, ...> : type").
inline bool same_line(const std::string& have, const std::string& want) {
  const std::size_t cut = want.find("...> : ");
  if (have == want || cut == std::string::npos) return have == want;
  return have.compare(0, cut, want, 0, cut) == 0 && have.ends_with(want.substr(cut + 3));
}

// The first line in which two texts differ; empty when they are the same.
inline std::string first_difference(const std::string& have, const std::string& want) {
  std::istringstream a(have), b(want);
  std::string left, right;
  for (int line = 1;; ++line) {
    const bool more_left = static_cast<bool>(std::getline(a, left));
    const bool more_right = static_cast<bool>(std::getline(b, right));
    if (!more_left && !more_right) return {};
    if (!more_left) left = "<end>";
    if (!more_right) right = "<end>";
    if (!same_line(left, right)) return "line " + std::to_string(line) + "\n  have: " + left + "\n  want: " + right;
  }
}

}  // namespace coreai::test
