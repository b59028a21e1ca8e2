#include "grammar/json_document.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

using Kind = JsonNode::Kind;

constexpr std::size_t kMaxDepth = 1000;

[[noreturn]] void refuse(std::string problem, std::size_t offset) {
  throw MalformedError(std::move(problem), "JSON Schema", offset, "check that it is JSON");
}

// The parser's events as nodes. A node under construction is the last child of the one before it.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add({}); }
  bool boolean(bool value) override {
    return add({.kind = Kind::kBoolean, .flag = value, .text = {}, .keys = {}, .children = {}});
  }
  bool number_integer(number_integer_t value) override { return add_text(Kind::kNumber, std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add_text(Kind::kNumber, std::to_string(value)); }
  bool number_float(number_float_t, const string_t& written) override { return add_text(Kind::kNumber, written); }
  bool string(string_t& value) override { return add_text(Kind::kString, std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Kind::kObject); }
  bool start_array(std::size_t) override { return open(Kind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) problem_ = fmt::format("the key \"{}\" comes twice in one object", value);
    open_.back()->keys.push_back(std::move(value));
    return problem_.empty();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    offset_ = position == 0 ? 0 : position - 1;
    problem_ = std::string(error.what());
    if (const auto colon = problem_.find("; last read"); colon != std::string::npos) problem_.resize(colon);
    if (const auto bracket = problem_.find("] "); bracket != std::string::npos) problem_.erase(0, bracket + 2);
    return false;
  }

  JsonNode take(bool parsed) {
    if (!parsed) refuse(problem_, offset_);
    return std::move(root_);
  }

 private:
  bool add_text(Kind kind, std::string text) {
    return add({.kind = kind, .flag = false, .text = std::move(text), .keys = {}, .children = {}});
  }
  bool add(JsonNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else {
      open_.back()->children.push_back(std::move(node));
    }
    return true;
  }
  bool open(Kind kind) {
    if (open_.size() >= kMaxDepth) {
      problem_ = fmt::format("nested more than {} deep", kMaxDepth);
      return false;
    }
    add({.kind = kind, .flag = false, .text = {}, .keys = {}, .children = {}});
    open_.push_back(open_.empty() ? &root_ : &open_.back()->children.back());
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  JsonNode root_;
  std::vector<JsonNode*> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
  std::string problem_;
  std::size_t offset_ = 0;
};

}  // namespace

const JsonNode* JsonNode::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (keys[i] == key) return &children[i];
  return nullptr;
}

JsonNode parse_json_document(std::string_view text) {
  Builder builder;
  const bool parsed = nlohmann::json::sax_parse(text, &builder);
  return builder.take(parsed);
}

}  // namespace coreai::grammar
