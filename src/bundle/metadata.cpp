#include "bundle/metadata.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "coreai/base/utf8.h"

namespace coreai::metadata {
namespace {

constexpr std::size_t kShownLimit = 60;

// Stops the parser from within; turned into a BundleError outside it.
struct Refused {
  std::string what, field;
};

// Watches the parser: nesting, and keys that occur twice in one object (JSON readers disagree on which of them counts).
class Watcher {
 public:
  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (keys_.size() >= kDepthLimit) throw Refused{fmt::format("is nested deeper than {} levels", kDepthLimit), ""};
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        if (!keys_.empty()) keys_.pop_back();
        break;
      case Json::parse_event_t::key: {
        const auto key = parsed.get<std::string>();
        if (!keys_.empty() && !keys_.back().insert(key).second)
          throw Refused{fmt::format("has the key {} twice in one object", quote(key)), key};
        break;
      }
      case Json::parse_event_t::value:
        break;
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShownLimit) text = text.substr(0, kShownLimit) + "...";
  return text;
}

std::string quote(std::string_view text) {
  return shown(Json(text.substr(0, 4 * kShownLimit)));
}

BundleError malformed(std::string field, std::string what, const std::string& where) {
  return BundleError(BundleFault::kMalformedMetadata, std::move(field), std::move(what), where,
                     "Export the bundle again, or correct the file");
}

BundleError missing(const std::string& field, const std::string& where) {
  return BundleError(BundleFault::kMissingField, field, fmt::format("required field '{}' is missing", field), where,
                     "Export the bundle again, or add the field");
}

Json parse(std::string_view text, const std::string& file, const std::string& where) {
  if (text.size() > kSizeLimit)
    throw malformed("", fmt::format("{} has {} bytes, at most {} are read", file, text.size(), kSizeLimit), where);
  if (const auto at = invalid_utf8(text))
    throw malformed("", fmt::format("{} is not UTF-8 (at byte {})", file, *at + 1), where);
  try {
    Json root = Json::parse(text, Json::parser_callback_t(Watcher{}));
    if (!root.is_object()) throw Refused{"is JSON, but not an object", ""};
    return root;
  } catch (const Json::parse_error& e) {
    throw malformed("", fmt::format("{} is not JSON (at byte {})", file, e.byte), where);
  } catch (const Json::exception&) {
    throw malformed("", fmt::format("{} is not JSON that can be read: it has a number out of range", file), where);
  } catch (const Refused& e) {
    throw malformed(e.field, fmt::format("{} {}", file, e.what), where);
  }
}

Json parse(const ModelBundle& bundle) {
  return parse(bundle.raw(), "metadata.json", where_of(bundle));
}

std::string where_of(const ModelBundle& bundle) {
  return (bundle.path() / "metadata.json").string();
}

void require_role(const ModelBundle& bundle, const std::string& role, const std::string& what) {
  if (bundle.assets().contains(role)) return;
  const std::string field = "assets." + role;
  throw BundleError(BundleFault::kMissingField, field, fmt::format("required field '{}' is missing", field),
                    where_of(bundle), fmt::format("Name {} as \"{}\" in \"assets\"", what, role));
}

BundleError Fields::wrong(const char* key, const Json& value, const std::string& expected) const {
  return malformed(path(key), fmt::format("'{}' is {}, not {}", path(key), shown(value), expected), where_);
}

const Json* Fields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::require(const char* key) const {
  if (const Json* value = find(key)) return *value;
  throw missing(path(key), where_);
}

std::string Fields::text(const char* key) const {
  const Json& value = require(key);
  if (!value.is_string()) throw wrong(key, value, "a string");
  return value.get<std::string>();
}

std::optional<std::string> Fields::optional_text(const char* key) const {
  if (find(key) == nullptr) return std::nullopt;
  return text(key);
}

std::optional<bool> Fields::optional_flag(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) throw wrong(key, *value, "true or false");
  return value->get<bool>();
}

bool is_integer(const Json& value, std::int64_t low, std::int64_t high) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high)) return false;
  const auto number = value.get<std::int64_t>();
  return number >= low && number <= high;
}

namespace {

std::string range_text(std::int64_t low, std::int64_t high) {
  const std::string top = high == Fields::kMax ? "2^31-1" : fmt::format("{}", high);
  return fmt::format("an integer from {} to {}", low, top);
}

}  // namespace

std::int64_t Fields::integer(const char* key, std::int64_t low, std::int64_t high) const {
  const Json& value = require(key);
  if (!is_integer(value, low, high)) throw wrong(key, value, range_text(low, high));
  return value.get<std::int64_t>();
}

std::optional<std::int64_t> Fields::optional_integer(const char* key, std::int64_t low, std::int64_t high) const {
  if (find(key) == nullptr) return std::nullopt;
  return integer(key, low, high);
}

std::optional<double> Fields::optional_number(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) throw wrong(key, *value, "a number");
  return value->get<double>();
}

std::vector<std::int64_t> Fields::optional_integers(const char* key, std::int64_t low, std::int64_t high) const {
  std::vector<std::int64_t> values;
  const Json* list = find(key);
  if (list == nullptr) return values;
  const std::string expected = "a list of numbers, each " + range_text(low, high);
  if (!list->is_array()) throw wrong(key, *list, expected);
  for (const auto& value : *list) {
    if (!is_integer(value, low, high)) throw wrong(key, *list, expected);
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

std::vector<double> Fields::optional_numbers(const char* key, std::size_t count) const {
  std::vector<double> values;
  const Json* list = find(key);
  if (list == nullptr) return values;
  const std::string expected = fmt::format("a list of {} numbers", count);
  if (!list->is_array() || list->size() != count) throw wrong(key, *list, expected);
  for (const auto& value : *list) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) throw wrong(key, *list, expected);
    values.push_back(value.get<double>());
  }
  return values;
}

std::optional<Fields> Fields::optional_object(const char* key) const {
  if (find(key) == nullptr) return std::nullopt;
  return object(key);
}

Fields Fields::object(const char* key) const {
  const Json& value = require(key);
  if (!value.is_object()) throw wrong(key, value, "an object");
  return Fields(value, path(key), where_);
}

}  // namespace coreai::metadata
