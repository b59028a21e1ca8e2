// Where schemas stand in their documents, and what their references mean.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_document.h"

namespace coreai::grammar {

// Which schema each dynamic anchor means, by the resources that were entered on the way.
using ScopeId = std::uint32_t;

// A schema, its JSON pointer, the resource (the schema with an $id, else the document) that it belongs to, and the
// dynamic scope in which it is read.
struct SchemaPlace {
  const JsonNode* node;
  std::string pointer;
  const JsonNode* resource;
  ScopeId scope = 0;

  SchemaPlace child(std::string_view keyword) const;  // of an object; it has that key
  SchemaPlace child(std::string_view keyword, std::size_t index) const;
  SchemaPlace child(std::string_view keyword, std::string_view name) const;
};
// ~ and / of a name in a JSON pointer.
std::string pointer_escaped(std::string_view name);

class SchemaReferences {
 public:
  // `documents` outlives it: JSON texts by their URI, read when a reference asks for them.
  SchemaReferences(const JsonNode& document, const std::map<std::string, std::string>& documents);
  SchemaPlace root() const { return {&document_, "#", &document_, 0}; }
  // In its own resource, where it has an $id, and in the scope that begins with that resource. Throws UnsupportedError
  // for a dialect that is not known.
  SchemaPlace entered(SchemaPlace place);
  // What the reference under `word` ($ref, $dynamicRef or $recursiveRef) of the schema at `from` means. Throws
  // UnsupportedError for a document that was not given, MalformedError for one that is no JSON, InvalidArgumentError
  // for a place that does not exist; where: pointer of the reference.
  SchemaPlace resolve(const SchemaPlace& from, std::string_view word);
  // Draft 7 and older, where a $ref makes its siblings mean nothing.
  bool reference_is_alone(const SchemaPlace& at) const { return dialect(at).reference_is_alone; }
  // From 2020-12 on an item that `contains` finds counts as spoken of.
  bool contains_evaluates(const SchemaPlace& at) const { return dialect(at).contains_evaluates; }
  // The keyword belongs to a vocabulary that the dialect leaves out.
  bool says_nothing(const SchemaPlace& at, std::string_view keyword) const;
  // Why the dialect of the resource is not known; empty: it is. Forgotten where it is to be read anyway.
  std::string& dialect_problem(const JsonNode* resource) { return resources_.at(resource).dialect.problem; }

  bool is_resource(const JsonNode* node) const { return resources_.contains(node); }
  // The documents that were read, with their pointers; the schema's own first.
  std::vector<std::pair<std::string, const JsonNode*>> documents() const;

 private:
  struct Dialect {
    bool reference_is_alone = false, contains_evaluates = true;
    bool applies = true, validates = true, knows_unevaluated = true;  // its vocabularies
    std::string problem;
  };
  struct Resource {
    std::string id;  // without a fragment
    std::string pointer;
    Dialect dialect;
    std::map<std::string, SchemaPlace, std::less<>> anchors;
    std::map<std::string, SchemaPlace, std::less<>> dynamic;  // "": $recursiveAnchor
  };
  using Scope = std::map<std::string, const JsonNode*, std::less<>>;  // the outermost resource with each name

  const Dialect& dialect(const SchemaPlace& at) const { return resources_.at(at.resource).dialect; }
  Dialect find_dialect(const std::string& uri, const Dialect& before, int depth) const;
  Dialect custom_dialect(const std::string& uri, const std::string& text, const Dialect& before, int depth) const;
  void index(const JsonNode& node, const std::string& pointer, const JsonNode* resource);
  void index_anchors(const JsonNode& node, const std::string& pointer, const JsonNode* resource);
  const JsonNode* find_resource(const std::string& address, const std::string& where);
  const JsonNode* load(const std::string& uri, const std::string& text, const std::string& where);
  const std::string* given(const std::string& uri) const;
  SchemaPlace follow_pointer(const JsonNode* resource, std::string_view pointer, const std::string& reference,
                             const std::string& where) const;
  SchemaPlace resolve_text(const SchemaPlace& from, const std::string& reference, const std::string& where,
                           std::string& anchor);
  ScopeId scope_with(ScopeId scope, const JsonNode* resource);

  const JsonNode& document_;
  const std::map<std::string, std::string>& given_;
  std::map<std::string, std::unique_ptr<JsonNode>> loaded_;
  std::map<const JsonNode*, Resource> resources_;
  std::map<std::string, const JsonNode*> by_id_;
  std::vector<Scope> scopes_{{}};
  std::map<Scope, ScopeId> scope_ids_{{{}, 0}};
};

}  // namespace coreai::grammar
