// What inputs and outputs are by their names, as the reference's programs find them.
#pragma once

#include <algorithm>
#include <string_view>

namespace coreai {

// `part` in lower case.
inline bool name_contains(std::string_view name, std::string_view part) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b; };
  return std::search(name.begin(), name.end(), part.begin(), part.end(), same) != name.end();
}

inline bool names_image(std::string_view name) {
  return name_contains(name, "pixel") || name_contains(name, "image");
}
inline bool names_logits(std::string_view name) {
  return name_contains(name, "logit") && !name_contains(name, "presence");
}
inline bool names_boxes(std::string_view name) {
  return name_contains(name, "box");
}
inline bool names_points(std::string_view name) {
  return name_contains(name, "point");
}
// Features of a text are an intermediate value, not the text.
inline bool names_text(std::string_view name) {
  return (name_contains(name, "input_id") || name_contains(name, "token") || name_contains(name, "text")) &&
         !name_contains(name, "features");
}

}  // namespace coreai
