#include "grammar/schema_references.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

using Kind = JsonNode::Kind;

std::string escaped(std::string_view token) {
  std::string out;
  for (const char c : token) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() + 0 &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool has_scheme(std::string_view uri) {
  const auto colon = uri.find(':');
  return colon != std::string_view::npos && uri.substr(0, colon).find('/') == std::string_view::npos;
}

// RFC 3986, 5.2, without dot segments.
std::string resolved(const std::string& base, const std::string& reference) {
  if (reference.empty() || has_scheme(reference)) return reference.empty() ? base : reference;
  const auto scheme = base.find("://");
  const auto path = scheme == std::string::npos ? 0 : base.find('/', scheme + 3);
  if (reference.starts_with('/')) return base.substr(0, path == std::string::npos ? base.size() : path) + reference;
  const auto slash = base.rfind('/');
  if (slash == std::string::npos || (scheme != std::string::npos && path == std::string::npos))
    return base.empty() || slash == std::string::npos ? reference : base + "/" + reference;
  return base.substr(0, slash + 1) + reference;
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

}  // namespace

SchemaPlace SchemaPlace::child(std::string_view keyword) const {
  return {node->find(keyword), pointer + "/" + escaped(keyword), resource};
}
SchemaPlace SchemaPlace::child(std::string_view keyword, std::size_t index) const {
  return {&node->find(keyword)->children[index], fmt::format("{}/{}/{}", pointer, escaped(keyword), index), resource};
}
SchemaPlace SchemaPlace::child(std::string_view keyword, std::string_view name) const {
  return {node->find(keyword)->find(name), pointer + "/" + escaped(keyword) + "/" + escaped(name), resource};
}

SchemaReferences::SchemaReferences(const JsonNode& document) : document_(document) {
  const std::string* draft = text_of(document, "$schema");
  reference_is_alone_ = draft != nullptr &&
                        (draft->find("draft-04") != std::string::npos || draft->find("draft-06") != std::string::npos ||
                         draft->find("draft-07") != std::string::npos);
  contains_evaluates_ = draft == nullptr || draft->find("2019-09") == std::string::npos;
  resources_[&document].pointer = "#";
  by_id_[""] = &document;
  index(document, "#", &document);
}

void SchemaReferences::index(const JsonNode& node, const std::string& pointer, const JsonNode* resource) {
  if (node.is(Kind::kArray)) {
    for (std::size_t i = 0; i < node.children.size(); ++i)
      index(node.children[i], fmt::format("{}/{}", pointer, i), resource);
    return;
  }
  if (!node.is(Kind::kObject)) return;
  const bool alone = reference_is_alone_ && text_of(node, "$ref") != nullptr;
  if (!alone) {
    const std::string* id = text_of(node, "$id");
    if (id == nullptr) id = text_of(node, "id");
    if (id != nullptr && id->starts_with('#')) {
      resources_[resource].anchors.emplace(id->substr(1), SchemaPlace{&node, pointer, resource});
    } else if (id != nullptr) {
      const std::string full = resolved(resources_[resource].id, id->substr(0, id->find('#')));
      resource = &node;
      resources_[&node].id = full;
      resources_[&node].pointer = pointer;
      by_id_.emplace(full, &node);
    }
    for (const char* keyword : {"$anchor", "$dynamicAnchor"})
      if (const std::string* anchor = text_of(node, keyword)) {
        resources_[resource].anchors.emplace(*anchor, SchemaPlace{&node, pointer, resource});
        if (keyword[1] == 'd') ++dynamic_anchors_[*anchor];
      }
  }
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    const std::string place = pointer + "/" + escaped(key);
    const JsonNode& child = node.children[i];
    if (holds_schemas(key)) index(child, place, resource);
    if (!holds_names(key) || !child.is(Kind::kObject)) continue;
    for (std::size_t j = 0; j < child.keys.size(); ++j)
      index(child.children[j], place + "/" + escaped(child.keys[j]), resource);
  }
}

int SchemaReferences::anchors_called(std::string_view name) const {
  const auto found = dynamic_anchors_.find(name);
  return found == dynamic_anchors_.end() ? 0 : found->second;
}

SchemaPlace SchemaReferences::follow_pointer(const JsonNode* resource, std::string_view pointer,
                                             const std::string& reference, const SchemaPlace& from) const {
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
      throw InvalidArgumentError(fmt::format("$ref \"{}\" leads nowhere", reference), from.pointer + "/$ref",
                                 "name a schema of the document");
    at = {next, at.pointer + "/" + written, resources_.contains(next) ? next : at.resource};
    pointer = slash == std::string_view::npos ? std::string_view() : pointer.substr(slash);
  }
  return at;
}

SchemaPlace SchemaReferences::resolve(const SchemaPlace& from, const std::string& reference) const {
  const auto hash = reference.find('#');
  const std::string address = reference.substr(0, hash);
  const std::string fragment = hash == std::string::npos ? "" : percent_decoded(reference.substr(hash + 1));
  const JsonNode* resource = from.resource;
  if (!address.empty()) {
    const auto found = by_id_.find(resolved(resources_.at(from.resource).id, address));
    if (found == by_id_.end())
      throw UnsupportedError(fmt::format("$ref \"{}\" names another document", reference), from.pointer + "/$ref",
                             "put that schema into $defs");
    resource = found->second;
  }
  if (fragment.empty() || fragment.starts_with('/')) return follow_pointer(resource, fragment, reference, from);
  const auto& anchors = resources_.at(resource).anchors;
  const auto anchor = anchors.find(fragment);
  if (anchor == anchors.end())
    throw InvalidArgumentError(fmt::format("$ref \"{}\" names no anchor", reference), from.pointer + "/$ref",
                               "name a schema of the document");
  return anchor->second;
}

}  // namespace coreai::grammar
