// Where schemas stand in a document, and what their references mean.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "grammar/json_document.h"

namespace coreai::grammar {

// A schema, its JSON pointer and the resource (the schema with an $id, else the document) that it belongs to.
struct SchemaPlace {
  const JsonNode* node;
  std::string pointer;
  const JsonNode* resource;

  SchemaPlace child(std::string_view keyword) const;  // of an object; it has that key
  SchemaPlace child(std::string_view keyword, std::size_t index) const;
  SchemaPlace child(std::string_view keyword, std::string_view name) const;
};

class SchemaReferences {
 public:
  explicit SchemaReferences(const JsonNode& document);
  SchemaPlace root() const { return {&document_, "#", &document_}; }
  // In its own resource, where it has an $id.
  SchemaPlace entered(SchemaPlace place) const {
    if (resources_.contains(place.node)) place.resource = place.node;
    return place;
  }
  // What `$ref` of a schema at `from` means. Throws UnsupportedError for a document that is not this one,
  // InvalidArgumentError for a place that does not exist.
  SchemaPlace resolve(const SchemaPlace& from, const std::string& reference) const;
  // Draft 7 and older, where a $ref makes its siblings mean nothing.
  bool reference_is_alone() const { return reference_is_alone_; }
  // From 2020-12 on an item that `contains` finds counts as spoken of.
  bool contains_evaluates() const { return contains_evaluates_; }
  int anchors_called(std::string_view name) const;  // $dynamicAnchor of that name in the document

 private:
  struct Resource {
    std::string id;  // without a fragment
    std::string pointer;
    std::map<std::string, SchemaPlace, std::less<>> anchors;
  };
  void index(const JsonNode& node, const std::string& pointer, const JsonNode* resource);
  SchemaPlace follow_pointer(const JsonNode* resource, std::string_view pointer, const std::string& reference,
                             const SchemaPlace& from) const;

  const JsonNode& document_;
  bool reference_is_alone_ = false, contains_evaluates_ = true;
  std::map<const JsonNode*, Resource> resources_;
  std::map<std::string, const JsonNode*> by_id_;
  std::map<std::string, int, std::less<>> dynamic_anchors_;
};

}  // namespace coreai::grammar
