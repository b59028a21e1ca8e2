#include "grammar/token_terminals.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

#include "coreai/base/error.h"

namespace coreai::grammar {
namespace {

constexpr std::string_view kWhere = "a token terminal";

// The live derivatives of an expression, by byte.
std::vector<std::pair<std::uint8_t, ExprId>> live_steps(ExpressionPool& pool, ExprId e) {
  std::vector<std::pair<std::uint8_t, ExprId>> out;
  const ByteClasses split = pool.classes(e);
  std::vector<ExprId> next(split.representatives.size());
  for (std::size_t i = 0; i < next.size(); ++i) {
    next[i] = pool.derive(e, split.representatives[i]);
    if (pool.is_nothing(next[i])) next[i] = kNothing;
  }
  for (int byte = 0; byte < 256; ++byte)
    if (const ExprId to = next[split.class_of[static_cast<std::size_t>(byte)]]; to != kNothing)
      out.emplace_back(static_cast<std::uint8_t>(byte), to);
  return out;
}

std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.starts_with('-')) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

bool TokenSet::real(std::size_t id) const {
  const auto token = static_cast<std::int32_t>(id);
  return !tokenizer_->token_bytes(token).empty() || tokenizer_->is_special(token);
}

void TokenSet::insert(std::int64_t id) {
  if (id < 0 || id >= static_cast<std::int64_t>(chosen_.size()))
    throw InvalidArgumentError(fmt::format("token {} of a vocabulary of {}", id, chosen_.size()), std::string(kWhere));
  if (!real(static_cast<std::size_t>(id)))
    throw InvalidArgumentError(fmt::format("token {} is padding, without a text", id), std::string(kWhere));
  chosen_[static_cast<std::size_t>(id)] = true;
}

void TokenSet::insert(std::int64_t first, std::int64_t last) {
  if (first < 0 || first > last || last >= static_cast<std::int64_t>(chosen_.size()))
    throw InvalidArgumentError(fmt::format("tokens {} to {} of a vocabulary of {}", first, last, chosen_.size()),
                               std::string(kWhere));
  for (auto id = static_cast<std::size_t>(first); id <= static_cast<std::size_t>(last); ++id)
    if (real(id)) chosen_[id] = true;
}

void TokenSet::insert(std::string_view text) {
  std::vector<std::size_t> special, ordinary;
  for (std::size_t id = 0; id < chosen_.size() && !text.empty(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (tokenizer_->token_bytes(token) != text) continue;
    (tokenizer_->is_special(token) ? special : ordinary).push_back(id);
  }
  if (special.empty() && ordinary.empty())
    throw InvalidArgumentError(fmt::format("the vocabulary has no token '{}'", text), std::string(kWhere),
                               "write the text in quotes, or give the token's id");
  for (const std::size_t id : special.empty() ? ordinary : special) chosen_[id] = true;
}

void TokenSet::insert_all() {
  chosen_ = others().chosen_;
}

void TokenSet::insert_all(const TokenSet& other) {
  for (std::size_t id = 0; id < chosen_.size(); ++id) chosen_[id] = chosen_[id] || other.chosen_[id];
}

bool TokenSet::contains(const TokenSet& other) const {
  for (std::size_t id = 0; id < chosen_.size(); ++id)
    if (other.chosen_[id] && !chosen_[id]) return false;
  return true;
}

TokenSet TokenSet::others() const {
  TokenSet out(*tokenizer_);
  for (std::size_t id = 0; id < chosen_.size(); ++id)
    out.chosen_[id] = !chosen_[id] && real(id) && !tokenizer_->is_end(static_cast<std::int32_t>(id));
  return out;
}

ExprId TokenSet::expression(ExpressionPool& pool) const {
  std::map<std::size_t, std::vector<ExprId>> by_first;  // of the id's first byte
  for (std::size_t block = 0; block < chosen_.size(); block += 256) {
    ByteSet last;
    for (std::size_t id = block; id < std::min(block + 256, chosen_.size()); ++id)
      if (chosen_[id]) last.insert(static_cast<std::uint8_t>(id % 256));
    if (last.empty()) continue;
    const ExprId second = pool.bytes(ByteSet::one(static_cast<std::uint8_t>(block / 256 % 256)));
    by_first[block / 65536].push_back(pool.concat(second, pool.bytes(last)));
  }
  std::vector<ExprId> choices;
  choices.reserve(by_first.size());
  for (const auto& [first, rest] : by_first)
    choices.push_back(pool.concat(pool.bytes(ByteSet::one(static_cast<std::uint8_t>(first))), pool.any_of(rest)));
  return pool.concat(pool.bytes(ByteSet::one(kTokenMark)), pool.any_of(choices));
}

TokenSet parse_token_terminal(const TokenizerInfo& tokenizer, std::string_view written) {
  TokenSet out(tokenizer);
  if (!written.starts_with("<[")) {
    out.insert(written);
    return out;
  }
  const auto wrong = [&] {
    return InvalidArgumentError(fmt::format("'{}' names no tokens", written), std::string(kWhere),
                                "write <[12]>, <[1-5,9]>, <[^1,2]> or <text of the token>");
  };
  if (!written.ends_with("]>") || written.size() < 5) throw wrong();
  std::string_view inside = written.substr(2, written.size() - 4);
  if (inside == "*") {
    out.insert_all();
    return out;
  }
  const bool negated = inside.starts_with('^');
  if (negated) inside.remove_prefix(1);
  for (;;) {
    const auto first = take_number(inside);
    if (!first) throw wrong();
    if (inside.starts_with('-')) {
      inside.remove_prefix(1);
      const auto last = take_number(inside);
      if (!last) throw wrong();
      out.insert(*first, *last);
    } else {
      out.insert(*first);
    }
    if (inside.empty()) return negated ? out.others() : out;
    if (!inside.starts_with(',')) throw wrong();
    inside.remove_prefix(1);
    while (inside.starts_with(' ')) inside.remove_prefix(1);
  }
}

ExprId after_token(ExpressionPool& pool, ExprId e, std::int32_t id) {
  e = pool.derive(e, kTokenMark);
  for (const int shift : {16, 8, 0}) e = pool.derive(e, static_cast<std::uint8_t>(id >> shift));
  return e;
}

void set_token_bits(ExpressionPool& pool, ExprId e, std::span<std::uint32_t> mask) {
  std::map<ExprId, std::vector<std::uint8_t>> last_bytes;  // many blocks of ids share one expression
  const auto set_block = [&](ExprId of, std::size_t block) {
    auto found = last_bytes.find(of);
    if (found == last_bytes.end()) {
      found = last_bytes.emplace(of, std::vector<std::uint8_t>()).first;
      for (const auto& [byte, next] : live_steps(pool, of)) found->second.push_back(byte);
    }
    for (const std::uint8_t byte : found->second) {
      const std::size_t id = block * 256 + byte;
      mask[id / 32] |= std::uint32_t{1} << (id % 32);
    }
  };
  const ExprId ids = pool.derive(e, kTokenMark);
  if (ids == kNothing) return;
  for (const auto& [first, rest] : live_steps(pool, ids))
    for (const auto& [second, last] : live_steps(pool, rest)) set_block(last, std::size_t{first} * 256 + second);
}

}  // namespace coreai::grammar
