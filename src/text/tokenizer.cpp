#include "coreai/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "coreai/base/ascii.h"
#include "coreai/base/error.h"
#include "text/bridge_call.h"
#include "text/json_config.h"

namespace coreai {

struct Tokenizer::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { coreai_bridge_tokenizer_free(handle); }

  coreai_bridge_tokenizer* handle = nullptr;
  std::set<TokenId> special_ids;
  std::map<std::string, std::string> special_tokens;
  std::vector<TokenId> end_ids;
};

namespace {

using Json = nlohmann::ordered_json;

// Parts of the names that end a turn or a text in the vocabularies of chat models.
constexpr std::array<std::string_view, 8> kEndNames = {"end_of_turn", "im_end", "eot_id", "endoftext",
                                                       "eot_token",   "|eot|",  "|end|",  "end_of_text"};
// Top-level members of a config that name an end token.
constexpr std::array<std::string_view, 5> kEndKeys = {"eot_token", "end_of_turn", "im_end", "eot_id", "endoftext"};

bool names_an_end(std::string_view token) {
  return std::any_of(kEndNames.begin(), kEndNames.end(),
                     [&](std::string_view name) { return contains_ignoring_case(token, name); });
}

// Collects end ids in a stable order, each once, and only ids that exist.
class EndIds {
 public:
  explicit EndIds(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add_token(const Json& value) {
    const auto text = text::token_text(value);
    if (!text) return;
    if (const auto id = tokenizer_.token_to_id(*text)) add(*id);
  }
  void add_tokens(const Json& value) {
    if (!value.is_array()) return add_token(value);
    for (const auto& item : value) add_token(item);
  }
  void add_ids(const Json& value) {
    if (value.is_array()) {
      for (const auto& item : value) add_number(item);
    } else {
      add_number(value);
    }
  }
  void add(TokenId id) {
    if (std::find(ids_.begin(), ids_.end(), id) == ids_.end()) ids_.push_back(id);
  }
  std::vector<TokenId> take() { return std::move(ids_); }

 private:
  void add_number(const Json& value) {
    if (!value.is_number_integer()) return;
    const auto number = value.get<std::int64_t>();
    if (number < 0 || number > std::numeric_limits<TokenId>::max()) return;
    add(static_cast<TokenId>(number));
  }

  const Tokenizer& tokenizer_;
  std::vector<TokenId> ids_;
};

void add_members(EndIds& ends, const Json& config) {
  if (const auto found = config.find("eos_token"); found != config.end()) ends.add_tokens(*found);
  for (const char* key : {"eos_token_id", "eos_token_ids"}) {
    if (const auto found = config.find(key); found != config.end()) ends.add_ids(*found);
  }
  for (const auto key : kEndKeys) {
    if (const auto found = config.find(std::string(key)); found != config.end()) ends.add_tokens(*found);
  }
}

std::shared_ptr<Tokenizer::Impl> load(std::string_view json, const std::string& where) {
  auto impl = std::make_shared<Tokenizer::Impl>();
  coreai_bridge_bytes error{};
  text::check(coreai_bridge_tokenizer_new(json.data(), json.size(), &impl->handle, &error), error, "the tokenizer",
              where);
  coreai_bridge_ids ids{};
  text::check(coreai_bridge_tokenizer_special_ids(impl->handle, &ids, &error), error, "the tokenizer", where);
  for (const std::uint32_t id : text::take(ids)) impl->special_ids.insert(static_cast<TokenId>(id));
  return impl;
}

void configure(Tokenizer::Impl& impl, const Tokenizer& tokenizer, const Json& config, const Json& generation) {
  for (auto& [key, token] : text::special_tokens_of(config)) impl.special_tokens.emplace(key, token);
  EndIds ends(tokenizer);
  add_members(ends, config);
  add_members(ends, generation);
  for (const TokenId id : impl.special_ids) {
    const auto token = tokenizer.id_to_token(id);
    if (token && names_an_end(*token)) ends.add(id);
  }
  impl.end_ids = ends.take();
}

}  // namespace

Tokenizer Tokenizer::from_directory(const std::filesystem::path& directory) {
  const auto path = directory / text::kTokenizerFile;
  const auto json = text::read_text(path);
  if (!json) {
    throw NotFoundError("there is no tokenizer.json", path.string(),
                        "put the model's tokenizer.json there, or export the model again");
  }
  auto impl = load(*json, path.string());
  Tokenizer tokenizer;
  tokenizer.impl_ = impl;
  configure(*impl, tokenizer, text::read_object(directory / text::kTokenizerConfigFile),
            text::read_object(directory / text::kGenerationConfigFile));
  // Older exporters keep the special tokens in a file of their own; the config's word comes first.
  for (auto& [key, token] : text::special_tokens_of(text::read_object(directory / text::kSpecialTokensMapFile))) {
    impl->special_tokens.emplace(key, token);
  }
  return tokenizer;
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view config_json) {
  auto impl = load(tokenizer_json, "tokenizer.json");
  Tokenizer tokenizer;
  tokenizer.impl_ = impl;
  configure(*impl, tokenizer,
            config_json.empty() ? Json::object() : text::parse_object(config_json, "tokenizer_config.json"),
            Json::object());
  return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  coreai_bridge_ids ids{};
  coreai_bridge_bytes error{};
  text::check(
      coreai_bridge_tokenizer_encode(impl_->handle, text.data(), text.size(), add_special_tokens ? 1 : 0, &ids, &error),
      error, "the tokenizer", "encoding a text");
  const auto taken = text::take(ids);
  return {taken.begin(), taken.end()};
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::vector<std::uint32_t> unsigned_ids;
  unsigned_ids.reserve(ids.size());
  for (const TokenId id : ids) {
    if (id < 0) throw InvalidArgumentError(fmt::format("token id {} is negative", id), "decode");
    unsigned_ids.push_back(static_cast<std::uint32_t>(id));
  }
  coreai_bridge_bytes out{};
  coreai_bridge_bytes error{};
  text::check(coreai_bridge_tokenizer_decode(impl_->handle, unsigned_ids.data(), unsigned_ids.size(),
                                             skip_special_tokens ? 1 : 0, &out, &error),
              error, "the tokenizer", "decoding tokens");
  return text::take(out);
}

std::size_t Tokenizer::vocab_size() const {
  return coreai_bridge_tokenizer_vocab_size(impl_->handle);
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  std::uint32_t id = 0;
  if (coreai_bridge_tokenizer_token_to_id(impl_->handle, token.data(), token.size(), &id) == 0) return std::nullopt;
  if (id > static_cast<std::uint32_t>(std::numeric_limits<TokenId>::max())) return std::nullopt;
  return static_cast<TokenId>(id);
}

std::optional<std::string> Tokenizer::id_to_token(TokenId id) const {
  coreai_bridge_bytes out{};
  if (id < 0 || coreai_bridge_tokenizer_id_to_token(impl_->handle, static_cast<std::uint32_t>(id), &out) == 0) {
    return std::nullopt;
  }
  return text::take(out);
}

std::optional<TokenId> Tokenizer::bos_id() const {
  const auto token = special_token("bos_token");
  return token ? token_to_id(*token) : std::nullopt;
}

std::vector<TokenId> Tokenizer::end_ids() const {
  return impl_->end_ids;
}

std::optional<std::string> Tokenizer::special_token(std::string_view key) const {
  const auto found = impl_->special_tokens.find(std::string(key));
  if (found == impl_->special_tokens.end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::is_special(TokenId id) const {
  return impl_->special_ids.contains(id);
}

}  // namespace coreai
