#include "coreai/base/ascii.h"

#include <algorithm>

namespace coreai {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(), lower);
  return made;
}

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return lower(a) == b; };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

}  // namespace coreai
