// What inputs and outputs are by their names, as the reference's programs find them.
#pragma once

#include <string_view>

#include "coreai/base/ascii.h"

namespace coreai {

inline bool names_image(std::string_view name) {
  return contains_ignoring_case(name, "pixel") || contains_ignoring_case(name, "image");
}
inline bool names_logits(std::string_view name) {
  return contains_ignoring_case(name, "logit") && !contains_ignoring_case(name, "presence");
}
inline bool names_boxes(std::string_view name) {
  return contains_ignoring_case(name, "box");
}
inline bool names_points(std::string_view name) {
  return contains_ignoring_case(name, "point");
}
// Features of a text are an intermediate value, not the text.
inline bool names_text(std::string_view name) {
  return (contains_ignoring_case(name, "input_id") || contains_ignoring_case(name, "token") ||
          contains_ignoring_case(name, "text")) &&
         !contains_ignoring_case(name, "features");
}

}  // namespace coreai
