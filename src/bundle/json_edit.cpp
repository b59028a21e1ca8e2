#include "bundle/json_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "coreai/base/error.h"

namespace coreai::metadata {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

struct Range {
  std::size_t begin = 0, end = 0;
};

// A member of an object, or an element of a list, whose key is empty.
struct Item {
  std::string key;
  Range value;
};

std::size_t end_of_string(std::string_view text, std::size_t quote) {
  std::size_t at = quote + 1;
  while (text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

std::size_t end_of_value(std::string_view text, std::size_t at) {
  if (text[at] == '"') return end_of_string(text, at);
  if (text[at] != '{' && text[at] != '[') return text.find_first_of(" \t\r\n,]}", at);
  for (int depth = 0;;) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
      continue;
    }
    depth += (c == '{' || c == '[') ? 1 : (c == '}' || c == ']') ? -1 : 0;
    ++at;
    if (depth == 0) return at;
  }
}

// Of the object or list that begins at `at`.
std::vector<Item> items_of(std::string_view text, std::size_t at) {
  const bool object = text[at] == '{';
  const auto skip = [&](std::size_t from) { return text.find_first_not_of(kSpace, from); };
  std::vector<Item> items;
  for (at = skip(at + 1); text[at] != '}' && text[at] != ']';) {
    Item item;
    if (object) {
      const std::size_t end = end_of_string(text, at);
      item.key = Json::parse(text.substr(at, end - at)).get<std::string>();
      at = skip(skip(end) + 1);  // behind the colon
    }
    item.value = {at, end_of_value(text, at)};
    items.push_back(item);
    at = skip(item.value.end);
    if (text[at] == ',') at = skip(at + 1);
  }
  return items;
}

// Behind the last item of the object or list that begins at `at`, on a line of its own where the items have one.
void append(std::string& text, std::size_t at, const std::string& item) {
  const auto items = items_of(text, at);
  if (items.empty()) {
    text.insert(at + 1, item);
    return;
  }
  const std::size_t first = text.find_first_not_of(kSpace, at + 1);
  const std::string space = text.substr(at + 1, first - at - 1);
  text.insert(items.back().value.end, "," + (space.empty() ? " " : space) + item);
}

enum class Change { kSet, kAppend };

// What stands where nothing was: objects around the value.
std::string nested(std::span<const std::string> keys, const std::string& value, Change change) {
  if (keys.empty()) return change == Change::kAppend ? "[" + value + "]" : value;
  return fmt::format("{{{}: {}}}", json_text(keys[0]), nested(keys.subspan(1), value, change));
}

std::string changed(std::string text, std::span<const std::string> keys, const std::string& value, Change change) {
  std::size_t at = text.find('{');  // behind a byte order mark
  for (; !keys.empty(); keys = keys.subspan(1)) {
    const auto items = items_of(text, at);
    const auto found = std::ranges::find(items, keys[0], &Item::key);
    if (found == items.end()) {
      append(text, at, fmt::format("{}: {}", json_text(keys[0]), nested(keys.subspan(1), value, change)));
      return text;
    }
    const auto [begin, end] = found->value;
    const bool last = keys.size() == 1;
    if (last && change == Change::kAppend && text[begin] == '[') {
      append(text, begin, value);
      return text;
    }
    if (last || text[begin] != '{') {
      text.replace(begin, end - begin, nested(keys.subspan(1), value, change));
      return text;
    }
    at = begin;
  }
  return text;
}

}  // namespace

std::string json_text(const Json& value) {
  try {
    return value.dump(2);
  } catch (const Json::type_error&) {
    throw InvalidArgumentError("a name is not UTF-8", value.is_string() ? quote(value.get<std::string>()) : "metadata",
                               "Rename the folder or the asset");
  }
}

std::string with_member(std::string text, std::span<const std::string> keys, const std::string& value) {
  return changed(std::move(text), keys, value, Change::kSet);
}

std::string with_element(std::string text, std::span<const std::string> keys, const std::string& value) {
  return changed(std::move(text), keys, value, Change::kAppend);
}

}  // namespace coreai::metadata
