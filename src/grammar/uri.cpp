#include "grammar/uri.h"

#include <charconv>
#include <optional>

namespace coreai::grammar {
namespace {

// The parts of section 3; an absent one is not an empty one.
struct Uri {
  std::optional<std::string> scheme, authority;
  std::string path;
  std::optional<std::string> query;
};

Uri split(std::string_view text) {
  Uri out;
  text = text.substr(0, text.find('#'));
  if (const auto colon = text.find(':'); colon != 0 && colon < text.find_first_of("/?")) {
    out.scheme = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  if (text.starts_with("//")) {
    text.remove_prefix(2);
    const auto end = std::min(text.find_first_of("/?"), text.size());
    out.authority = text.substr(0, end);
    text.remove_prefix(end);
  }
  const auto question = text.find('?');
  out.path = text.substr(0, question);
  if (question != std::string_view::npos) out.query = text.substr(question + 1);
  return out;
}

// Section 5.2.4. Segments that lead above the root are left out.
std::string without_dots(std::string_view path) {
  std::string out;
  const bool rooted = path.starts_with('/');
  while (!path.empty()) {
    const auto end = path.find('/', 1);
    const std::string_view segment = path.substr(0, end);
    const std::string_view name = segment.starts_with('/') ? segment.substr(1) : segment;
    const bool last = end == std::string_view::npos;
    if (name == "..") {
      const auto slash = out.rfind('/');
      out.resize(slash == std::string::npos ? 0 : slash);
    }
    if (name == "." || name == "..") {
      if (last && (rooted || !out.empty())) out += '/';
    } else {
      out += out.empty() && !rooted ? name : segment;
    }
    path = last ? std::string_view() : path.substr(end);
  }
  return out;
}

std::string joined(const Uri& uri) {
  std::string out;
  if (uri.scheme) out += *uri.scheme + ":";
  if (uri.authority) out += "//" + *uri.authority;
  out += uri.path;
  if (uri.query) out += "?" + *uri.query;
  return out;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
  Uri to = split(reference);
  if (to.scheme) {
    to.path = without_dots(to.path);
    return joined(to);
  }
  const Uri from = split(base);
  to.scheme = from.scheme;
  if (to.authority) {
    to.path = without_dots(to.path);
    return joined(to);
  }
  to.authority = from.authority;
  if (to.path.empty()) {
    to.path = from.path;
    if (!to.query) to.query = from.query;
  } else if (to.path.starts_with('/')) {
    to.path = without_dots(to.path);
  } else {
    const auto slash = from.path.rfind('/');
    const std::string folder = slash != std::string::npos            ? from.path.substr(0, slash + 1)
                               : from.authority && from.path.empty() ? "/"
                                                                     : "";
    to.path = without_dots(folder + to.path);
  }
  return joined(to);
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace coreai::grammar
