// Reading metadata.json: bounded JSON, and fields whose errors name them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coreai/bundle/model_bundle.h"

namespace coreai::metadata {

using Json = nlohmann::ordered_json;

// Genuine files have about 1 KB and four levels; larger or deeper ones are no bundle's metadata.
inline constexpr std::size_t kSizeLimit = std::size_t{16} << 20;
inline constexpr std::size_t kDepthLimit = 64;

// Text for a message: JSON-quoted (control characters escaped), cut to about 60 characters.
std::string quote(std::string_view text);
std::string shown(const Json& value);

BundleError malformed(std::string field, std::string what, const std::string& where);
BundleError missing(const std::string& field, const std::string& where);

// An object. Throws BundleError (kMalformedMetadata): too large, not UTF-8, not JSON, too deep, a duplicate key,
// another value than an object. `file` names it in the message.
Json parse(std::string_view text, const std::string& file, const std::string& where);
// The metadata of a bundle again, for the block of its kind.
Json parse(const ModelBundle& bundle);
std::string where_of(const ModelBundle& bundle);
void require_role(const ModelBundle& bundle, const std::string& role, const std::string& what);

bool is_integer(const Json& value, std::int64_t low, std::int64_t high);

// The members of one object; null counts as absent. Errors name them as "<prefix>.<key>".
class Fields {
 public:
  Fields(const Json& object, std::string prefix, std::string where)
      : object_(object), prefix_(std::move(prefix)), where_(std::move(where)) {}

  const Json* find(const char* key) const;
  const Json& require(const char* key) const;
  std::string path(const std::string& key) const { return prefix_.empty() ? key : prefix_ + "." + key; }
  const std::string& where() const { return where_; }

  std::string text(const char* key) const;
  std::optional<std::string> optional_text(const char* key) const;
  std::optional<bool> optional_flag(const char* key) const;
  // Integers in a range; token ids, positions and extents are 32-bit in the graphs.
  static constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  std::int64_t integer(const char* key, std::int64_t low = 1, std::int64_t high = kMax) const;
  std::optional<std::int64_t> optional_integer(const char* key, std::int64_t low = 1, std::int64_t high = kMax) const;
  std::optional<double> optional_number(const char* key) const;  // finite
  std::vector<std::int64_t> optional_integers(const char* key, std::int64_t low, std::int64_t high = kMax) const;
  std::vector<double> optional_numbers(const char* key, std::size_t count) const;
  // A member that is an object, as Fields of it.
  std::optional<Fields> optional_object(const char* key) const;
  Fields object(const char* key) const;
  const Json& json() const { return object_; }

 private:
  BundleError wrong(const char* key, const Json& value, const std::string& expected) const;
  const Json& object_;
  std::string prefix_, where_;
};

}  // namespace coreai::metadata
