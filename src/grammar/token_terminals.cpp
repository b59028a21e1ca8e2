#include "grammar/token_terminals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "coreai/base/error.h"
#include "grammar/token_trie.h"

namespace coreai::grammar {
namespace {

constexpr std::string_view kWhere = "a token terminal";
constexpr std::size_t kBlockWords = 8;  // of a mask, for the ids that share all but the last byte

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

bool has_bit(std::span<const std::uint32_t> mask, std::size_t id) {
  return ((mask[id / 32] >> (id % 32)) & 1u) != 0;
}
void set_bit(std::span<std::uint32_t> mask, std::size_t id) {
  mask[id / 32] |= std::uint32_t{1} << (id % 32);
}

std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.starts_with('-')) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

void TokenSet::insert(std::int64_t id) {
  const std::size_t size = tokenizer_->vocab_size();
  if (id < 0 || id >= static_cast<std::int64_t>(size))
    throw InvalidArgumentError(fmt::format("token {} of a vocabulary of {}", id, size), std::string(kWhere));
  if (!has_bit(tokenizer_->real_tokens(), static_cast<std::size_t>(id)))
    throw InvalidArgumentError(fmt::format("token {} is padding, without a text", id), std::string(kWhere));
  set_bit(chosen_, static_cast<std::size_t>(id));
}

void TokenSet::insert(std::int64_t first, std::int64_t last) {
  const std::size_t size = tokenizer_->vocab_size();
  if (first < 0 || first > last || last >= static_cast<std::int64_t>(size))
    throw InvalidArgumentError(fmt::format("tokens {} to {} of a vocabulary of {}", first, last, size),
                               std::string(kWhere));
  for (auto id = static_cast<std::size_t>(first); id <= static_cast<std::size_t>(last); ++id)
    if (has_bit(tokenizer_->real_tokens(), id)) set_bit(chosen_, id);
}

void TokenSet::insert(std::string_view text) {
  bool found = false;
  for (const std::int32_t id : tokenizer_->special_ids()) {
    if (text.empty() || tokenizer_->token_bytes(id) != text) continue;
    set_bit(chosen_, static_cast<std::size_t>(id));
    found = true;
  }
  if (found) return;
  const auto step = [&](bool, const TokenTrie::Node& node, std::size_t level) {
    const bool matched = level < text.size() && static_cast<std::uint8_t>(text[level]) == node.byte;
    if (matched && level + 1 == text.size() && node.entry != 0) {
      for (const std::int32_t id : tokenizer_->trie().ids(node)) set_bit(chosen_, static_cast<std::size_t>(id));
      found = true;
    }
    return matched;
  };
  tokenizer_->trie().walk_nodes(TokenTrie::kRoot, true, step);
  if (!found)
    throw InvalidArgumentError(fmt::format("the vocabulary has no token '{}'", text), std::string(kWhere),
                               "write the text in quotes, or give the token's id");
}

void TokenSet::insert_all() {
  insert_all(TokenSet(*tokenizer_).others());
}

void TokenSet::insert_all(const TokenSet& other) {
  for (std::size_t word = 0; word < chosen_.size(); ++word) chosen_[word] |= other.chosen_[word];
}

bool TokenSet::contains(const TokenSet& other) const {
  for (std::size_t word = 0; word < chosen_.size(); ++word)
    if ((other.chosen_[word] & ~chosen_[word]) != 0) return false;
  return true;
}

TokenSet TokenSet::others() const {
  TokenSet out(*tokenizer_);
  const auto real = tokenizer_->real_tokens();
  for (std::size_t word = 0; word < chosen_.size(); ++word) out.chosen_[word] = real[word] & ~chosen_[word];
  for (const std::int32_t id : tokenizer_->end_ids())
    out.chosen_[static_cast<std::size_t>(id) / 32] &= ~(std::uint32_t{1} << (id % 32));
  return out;
}

ExprId TokenSet::expression(ExpressionPool& pool) const {
  using Block = std::array<std::uint32_t, kBlockWords>;
  std::map<std::size_t, std::map<Block, ByteSet>> second_bytes;  // by the id's first byte and the last ones
  for (std::size_t from = 0; from < chosen_.size(); from += kBlockWords) {
    Block block{};
    std::copy_n(chosen_.begin() + static_cast<std::ptrdiff_t>(from), std::min(kBlockWords, chosen_.size() - from),
                block.begin());
    if (block == Block{}) continue;
    const std::size_t number = from / kBlockWords;
    second_bytes[number / 256][block].insert(static_cast<std::uint8_t>(number));
  }
  std::vector<ExprId> choices;
  for (const auto& [first, blocks] : second_bytes)
    for (const auto& [block, second] : blocks) {
      ByteSet last;
      for (std::size_t id = 0; id < 256; ++id)
        if (has_bit(block, id)) last.insert(static_cast<std::uint8_t>(id));
      choices.push_back(pool.concat(
          {pool.bytes(ByteSet::one(static_cast<std::uint8_t>(first))), pool.bytes(second), pool.bytes(last)}));
    }
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
  std::map<ExprId, std::array<std::uint32_t, kBlockWords>> blocks;  // many blocks of ids share one expression
  const auto set_block = [&](ExprId of, std::size_t number) {
    const auto [at, added] = blocks.try_emplace(of);
    if (added)
      for (const auto& [byte, next] : live_steps(pool, of)) set_bit(at->second, byte);
    for (std::size_t i = 0; i < kBlockWords; ++i)
      if (at->second[i] != 0) mask[number * kBlockWords + i] |= at->second[i];
  };
  const ExprId ids = pool.derive(e, kTokenMark);
  if (ids == kNothing) return;
  for (const auto& [first, rest] : live_steps(pool, ids))
    for (const auto& [second, last] : live_steps(pool, rest)) set_block(last, std::size_t{first} * 256 + second);
}

}  // namespace coreai::grammar
