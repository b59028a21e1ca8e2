#include "grammar/schema_references.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "coreai/base/error.h"
#include "grammar/uri.h"

namespace coreai::grammar {
namespace {

using Kind = JsonNode::Kind;

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

const std::string* text_of(const JsonNode& node, std::string_view key) {
  if (!node.is(Kind::kObject)) return nullptr;
  const JsonNode* found = node.find(key);
  return found != nullptr && found->is(Kind::kString) ? &found->text : nullptr;
}

// Keywords whose value is a schema or an array of them.
bool holds_schemas(std::string_view key) {
  constexpr std::array kKeywords{"additionalItems",
                                 "additionalProperties",
                                 "allOf",
                                 "anyOf",
                                 "contains",
                                 "else",
                                 "if",
                                 "items",
                                 "not",
                                 "oneOf",
                                 "prefixItems",
                                 "propertyNames",
                                 "then",
                                 "unevaluatedItems",
                                 "unevaluatedProperties",
                                 "contentSchema"};
  return std::ranges::find(kKeywords, key) != kKeywords.end();
}
// Keywords whose members are schemas under names of the author's.
bool holds_names(std::string_view key) {
  return key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions" ||
         key == "dependentSchemas" || key == "dependencies";
}

// Keywords of the vocabulary `validation`; without it they say nothing.
bool is_validation(std::string_view key) {
  constexpr std::array kKeywords{"type",     "const",       "enum",          "multipleOf",        "maximum",
                                 "minimum",  "maxLength",   "minLength",     "exclusiveMaximum",  "exclusiveMinimum",
                                 "pattern",  "maxItems",    "minItems",      "uniqueItems",       "maxContains",
                                 "required", "minContains", "maxProperties", "dependentRequired", "minProperties"};
  return std::ranges::find(kKeywords, key) != kKeywords.end();
}

// Of the vocabulary `applicator`.
bool is_applicator(std::string_view key) {
  if (key == "$defs" || key == "definitions" || key == "contentSchema") return false;
  return holds_schemas(key) || holds_names(key);
}

constexpr std::size_t kMaxScopes = 2000;  // each may read every schema once more
constexpr int kMaxDialects = 8;           // meta-schemas that are described by each other

}  // namespace

std::string pointer_escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

SchemaPlace SchemaPlace::child(std::string_view keyword) const {
  return {node->find(keyword), pointer + "/" + pointer_escaped(keyword), resource, scope};
}
SchemaPlace SchemaPlace::child(std::string_view keyword, std::size_t index) const {
  return {&node->find(keyword)->children[index], fmt::format("{}/{}/{}", pointer, pointer_escaped(keyword), index),
          resource, scope};
}
SchemaPlace SchemaPlace::child(std::string_view keyword, std::string_view name) const {
  return {node->find(keyword)->find(name), pointer + "/" + pointer_escaped(keyword) + "/" + pointer_escaped(name),
          resource, scope};
}

SchemaReferences::SchemaReferences(const JsonNode& document, const std::map<std::string, std::string>& documents)
    : document_(document), given_(documents) {
  resources_[&document].pointer = "#";
  by_id_[""] = &document;
  index(document, "#", &document);
}

std::vector<std::pair<std::string, const JsonNode*>> SchemaReferences::documents() const {
  std::vector<std::pair<std::string, const JsonNode*>> out{{"#", &document_}};
  for (const auto& [uri, document] : loaded_)
    if (document != nullptr) out.emplace_back(resources_.at(document.get()).pointer, document.get());
  return out;
}

const std::string* SchemaReferences::given(const std::string& uri) const {
  auto found = given_.find(uri);
  if (found == given_.end()) found = given_.find(uri + "#");  // as drafts up to 7 write their own
  return found == given_.end() ? nullptr : &found->second;
}

SchemaReferences::Dialect SchemaReferences::find_dialect(const std::string& uri, const Dialect& before,
                                                         int depth) const {
  const std::string address = uri.substr(0, uri.find('#'));
  if (address.find("json-schema.org/") == std::string::npos) {
    const std::string* text = given(address);
    if (text != nullptr) return custom_dialect(address, *text, before, depth);
    Dialect unknown = before;
    unknown.problem = fmt::format("the dialect \"{}\" is not known", uri);
    return unknown;
  }
  const auto names = [&](std::string_view draft) { return uri.find(draft) != std::string::npos; };
  Dialect out;
  out.reference_is_alone = names("draft-04") || names("draft-06") || names("draft-07");
  out.contains_evaluates = !names("2019-09");
  return out;
}

// What a meta-schema's $vocabulary says. A vocabulary that must be known and is not makes the dialect unknown.
SchemaReferences::Dialect SchemaReferences::custom_dialect(const std::string& uri, const std::string& text,
                                                           const Dialect& before, int depth) const {
  Dialect out = before;
  JsonNode meta;
  try {
    meta = parse_json_document(text);
  } catch (const MalformedError& error) {
    out.problem = fmt::format("the meta-schema \"{}\" cannot be read: {}", uri, error.problem());
    return out;
  }
  const std::string* own = text_of(meta, "$schema");
  if (own != nullptr && *own != uri && depth < kMaxDialects) out = find_dialect(*own, before, depth + 1);
  const JsonNode* vocabularies = meta.is(Kind::kObject) ? meta.find("$vocabulary") : nullptr;
  if (vocabularies == nullptr || !vocabularies->is(Kind::kObject)) return out;
  const bool old = !out.contains_evaluates;  // 2019-09 has its unevaluated keywords among the applicators
  out.applies = out.validates = out.knows_unevaluated = false;
  for (std::size_t i = 0; i < vocabularies->keys.size(); ++i) {
    const std::string& name = vocabularies->keys[i];
    const bool known = name.find("json-schema.org/") != std::string::npos;
    if (!known && (!vocabularies->children[i].is(Kind::kBoolean) || vocabularies->children[i].flag))
      out.problem = fmt::format("the vocabulary \"{}\" of the dialect \"{}\" is not known", name, uri);
    out.applies = out.applies || (known && name.ends_with("/vocab/applicator"));
    out.validates = out.validates || (known && name.ends_with("/vocab/validation"));
    out.knows_unevaluated = out.knows_unevaluated || (known && name.ends_with("/vocab/unevaluated"));
  }
  if (old) out.knows_unevaluated = out.applies;
  if (out.knows_unevaluated && !out.applies)
    out.problem = fmt::format("the dialect \"{}\" has unevaluated members without the schemas that evaluate", uri);
  return out;
}

bool SchemaReferences::says_nothing(const SchemaPlace& at, std::string_view keyword) const {
  const Dialect& own = dialect(at);
  if (own.applies && own.validates && own.knows_unevaluated) return false;
  if (keyword.starts_with("unevaluated")) return !own.knows_unevaluated;
  return (!own.validates && is_validation(keyword)) || (!own.applies && is_applicator(keyword));
}

void SchemaReferences::index_anchors(const JsonNode& node, const std::string& pointer, const JsonNode* resource) {
  Resource& own = resources_[resource];
  if (const std::string* anchor = text_of(node, "$anchor"))
    own.anchors.emplace(*anchor, SchemaPlace{&node, pointer, resource});
  if (const std::string* anchor = text_of(node, "$dynamicAnchor"); anchor != nullptr && !anchor->empty()) {
    own.anchors.emplace(*anchor, SchemaPlace{&node, pointer, resource});
    own.dynamic.emplace(*anchor, SchemaPlace{&node, pointer, resource});
  }
  const JsonNode* recursive = node.find("$recursiveAnchor");
  if (&node == resource && recursive != nullptr && recursive->is(Kind::kBoolean) && recursive->flag)
    own.dynamic.emplace("", SchemaPlace{&node, pointer, resource});
}

void SchemaReferences::index(const JsonNode& node, const std::string& pointer, const JsonNode* resource) {
  if (node.is(Kind::kArray)) {
    for (std::size_t i = 0; i < node.children.size(); ++i)
      index(node.children[i], fmt::format("{}/{}", pointer, i), resource);
    return;
  }
  if (!node.is(Kind::kObject)) return;
  Dialect dialect = resources_[resource].dialect;
  const JsonNode* draft = node.find("$schema");
  if (draft != nullptr && (&node == resource || text_of(node, "$id") != nullptr || text_of(node, "id") != nullptr)) {
    dialect = find_dialect(draft->text, dialect, 0);
    if (&node == resource) resources_[resource].dialect = dialect;
  }
  const bool alone = dialect.reference_is_alone && text_of(node, "$ref") != nullptr;
  if (!alone) {
    const std::string* id = text_of(node, "$id");
    if (id == nullptr) id = text_of(node, "id");
    if (id != nullptr && id->starts_with('#')) {
      resources_[resource].anchors.emplace(id->substr(1), SchemaPlace{&node, pointer, resource});
    } else if (id != nullptr) {
      Resource& own = resources_[&node];
      own.id = resolve_uri(resources_[resource].id, *id);
      own.pointer = pointer;
      own.dialect = std::move(dialect);
      resource = &node;
      by_id_.emplace(own.id, &node);
    }
    index_anchors(node, pointer, resource);
  }
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const std::string place = pointer + "/" + pointer_escaped(key);
    const JsonNode& child = node.children[i];
    if (holds_schemas(key)) index(child, place, resource);
    if (!holds_names(key) || !child.is(Kind::kObject)) continue;
    for (std::size_t j = 0; j < child.keys.size(); ++j)
      index(child.children[j], place + "/" + pointer_escaped(child.keys[j]), resource);
  }
}

SchemaPlace SchemaReferences::entered(SchemaPlace place) {
  const auto own = resources_.find(place.node);
  if (own != resources_.end()) {
    if (!own->second.dialect.problem.empty())
      throw UnsupportedError(own->second.dialect.problem, place.pointer + "/$schema",
                             "name a draft of JSON Schema, or add the meta-schema to the documents");
    place.resource = place.node;
  }
  place.scope = scope_with(place.scope, place.resource);
  if (scopes_.size() > kMaxScopes)
    throw UnsupportedError(fmt::format("the dynamic anchors have more than {} scopes", kMaxScopes), place.pointer,
                           "let fewer schemas with dynamic anchors refer to each other");
  return place;
}

// A name that the scope has already stays what it is: the outermost counts (2020-12, 8.2.3.2).
ScopeId SchemaReferences::scope_with(ScopeId scope, const JsonNode* resource) {
  const auto& anchors = resources_.at(resource).dynamic;
  const auto is_new = [&](const auto& anchor) { return !scopes_[scope].contains(anchor.first); };
  if (std::ranges::none_of(anchors, is_new)) return scope;
  Scope joined = scopes_[scope];
  for (const auto& [name, place] : anchors) joined.emplace(name, resource);
  const auto [at, added] = scope_ids_.emplace(joined, static_cast<ScopeId>(scopes_.size()));
  if (added) scopes_.push_back(std::move(joined));
  return at->second;
}

SchemaPlace SchemaReferences::follow_pointer(const JsonNode* resource, std::string_view pointer,
                                             const std::string& reference, const std::string& where) const {
  SchemaPlace at{resource, resources_.at(resource).pointer, resource};
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const auto slash = pointer.find('/');
    const std::string written(pointer.substr(0, slash));
    const std::string token = replaced(replaced(written, "~1", "/"), "~0", "~");
    const JsonNode* next = nullptr;
    std::size_t index = 0;
    if (at.node->is(Kind::kObject)) next = at.node->find(token);
    if (at.node->is(Kind::kArray) &&
        std::from_chars(token.data(), token.data() + token.size(), index).ptr == token.data() + token.size() &&
        index < at.node->children.size())
      next = &at.node->children[index];
    if (next == nullptr)
      throw InvalidArgumentError(fmt::format("the reference \"{}\" leads nowhere", reference), where,
                                 "name a schema of the document");
    at = {next, at.pointer + "/" + written, resources_.contains(next) ? next : at.resource};
    pointer = slash == std::string_view::npos ? std::string_view() : pointer.substr(slash);
  }
  return at;
}

const JsonNode* SchemaReferences::load(const std::string& uri, const std::string& text, const std::string& where) {
  std::unique_ptr<JsonNode>& document = loaded_[uri];
  if (document != nullptr) return document.get();
  try {
    document = std::make_unique<JsonNode>(parse_json_document(text));
  } catch (const MalformedError& error) {
    throw MalformedError(fmt::format("the document \"{}\" cannot be read: {}", uri, error.problem()), where,
                         error.offset(), "give that document as JSON");
  }
  const std::string address = uri.substr(0, uri.find('#'));
  Resource& own = resources_[document.get()];
  own.id = address;
  own.pointer = address + "#";
  own.dialect = resources_[&document_].dialect;
  by_id_.emplace(address, document.get());
  index(*document, own.pointer, document.get());
  return document.get();
}

const JsonNode* SchemaReferences::find_resource(const std::string& address, const std::string& where) {
  if (const auto found = by_id_.find(address); found != by_id_.end()) return found->second;
  if (const std::string* text = given(address)) return load(address, *text, where);
  // It may be the $id of a schema in any of them.
  for (const auto& [uri, text] : given_) load(uri, text, where);
  const auto found = by_id_.find(address);
  return found == by_id_.end() ? nullptr : found->second;
}

SchemaPlace SchemaReferences::resolve_text(const SchemaPlace& from, const std::string& reference,
                                           const std::string& where, std::string& anchor) {
  const auto hash = reference.find('#');
  const std::string address = reference.substr(0, hash);
  const std::string fragment = hash == std::string::npos ? "" : percent_decoded(reference.substr(hash + 1));
  const JsonNode* resource = from.resource;
  if (!address.empty()) {
    const std::string full = resolve_uri(resources_.at(from.resource).id, address);
    resource = find_resource(full, where);
    if (resource == nullptr)
      throw UnsupportedError(
          fmt::format("the reference \"{}\" names another document (\"{}\") that is not given", reference, full), where,
          "add the document to JsonSchemaOptions::documents, or put that schema into $defs");
  }
  if (fragment.empty() || fragment.starts_with('/')) return follow_pointer(resource, fragment, reference, where);
  const auto& anchors = resources_.at(resource).anchors;
  const auto found = anchors.find(fragment);
  if (found == anchors.end())
    throw InvalidArgumentError(fmt::format("the reference \"{}\" names no anchor", reference), where,
                               "name a schema of the document");
  anchor = fragment;
  return found->second;
}

SchemaPlace SchemaReferences::resolve(const SchemaPlace& from, std::string_view word) {
  const std::string where = from.pointer + "/" + std::string(word);
  const JsonNode* value = from.node->find(word);
  if (!value->is(Kind::kString)) throw InvalidArgumentError("a reference is a string", where, "correct the schema");
  std::string anchor;
  SchemaPlace to = resolve_text(from, value->text, where, anchor);
  to.scope = from.scope;
  const bool may_be_dynamic = word == "$recursiveRef" || (word == "$dynamicRef" && !anchor.empty());
  if (!may_be_dynamic) return to;
  const auto& dynamic = resources_.at(to.resource).dynamic;
  const auto own = dynamic.find(anchor);
  if (own == dynamic.end() || own->second.node != to.node) return to;
  const Scope& scope = scopes_[from.scope];
  if (const auto outermost = scope.find(anchor); outermost != scope.end())
    to = resources_.at(outermost->second).dynamic.find(anchor)->second;
  to.scope = from.scope;
  return to;
}

}  // namespace coreai::grammar
