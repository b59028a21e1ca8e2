// A JSON text as a tree that keeps numbers as they are written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coreai::grammar {

struct JsonNode {
  enum class Kind : std::uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool flag = false;               // kBoolean
  std::string text;                // kString, or a number as written
  std::vector<std::string> keys;   // kObject, in the order of the text, each once
  std::vector<JsonNode> children;  // values of an object or array

  bool is(Kind wanted) const { return kind == wanted; }
  const JsonNode* find(std::string_view key) const;
};

// Throws MalformedError (offset: byte of the text): no JSON, not UTF-8, a key twice, nested more than 1,000 deep.
JsonNode parse_json_document(std::string_view text);

}  // namespace coreai::grammar
