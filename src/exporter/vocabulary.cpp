#include "exporter/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "coreai/base/error.h"
#include "coreai/base/utf8.h"

namespace coreai {
namespace {

constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 24;
constexpr std::size_t kMaxSplitBytes =
    1024;  // splits of a piece cost the square of its length; real ones stay below 200

// Control tokens that end a turn whatever the metadata says: files often name only one of several.
constexpr std::array<std::string_view, 9> kEndTexts = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",      "<|end_of_text|>",
    "<|end|>",    "<end_of_turn>", "<eos>",      "<|end_of_turn|>",
};

[[noreturn]] void fail(const GgufFile& file, const std::string& problem) {
  throw MalformedError(problem, file.where(), 0, "Convert the model again with a current tool");
}

// Positions where characters start, and the end. Nothing when the text is not UTF-8.
std::optional<std::vector<std::size_t>> character_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size();) {
    starts.push_back(i);
    if (!next_code_point(text, i)) return std::nullopt;
  }
  starts.push_back(text.size());
  return starts;
}

std::vector<TokenKind> read_kinds(const GgufFile& file, std::size_t count) {
  const auto types = file.find_integers("tokenizer.ggml.token_type");
  if (!types) return std::vector<TokenKind>(count, TokenKind::kNormal);
  if (types->size() != count) fail(file, fmt::format("{} tokens but {} token types", count, types->size()));
  std::vector<TokenKind> kinds;
  kinds.reserve(count);
  for (const std::int64_t type : *types) {
    if (type < 1 || type > 6) fail(file, fmt::format("token type {} does not exist", type));
    kinds.push_back(static_cast<TokenKind>(type));
  }
  return kinds;
}

std::optional<std::uint32_t> read_id(const GgufFile& file, std::string_view name, std::size_t count) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  const auto id = file.find_unsigned(key);
  if (!id) return std::nullopt;
  if (*id >= count) fail(file, fmt::format("{} is {}, there are {} tokens", key, *id, count));
  return static_cast<std::uint32_t>(*id);
}

void collect_ends(const GgufFile& file, Vocabulary& vocabulary) {
  std::vector<std::uint32_t>& ends = vocabulary.end_ids;
  if (vocabulary.eos) ends.push_back(*vocabulary.eos);
  for (const std::string_view name : {"eot", "eom"})
    if (const auto id = read_id(file, name, vocabulary.tokens.size())) ends.push_back(*id);
  for (const std::string_view text : kEndTexts) {
    const auto it = vocabulary.ids.find(text);
    if (it != vocabulary.ids.end() && vocabulary.kinds[it->second] == TokenKind::kControl) ends.push_back(it->second);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

}  // namespace

Vocabulary read_vocabulary(const GgufFile& file) {
  const auto* tokens = file.find_strings("tokenizer.ggml.tokens");
  if (!tokens)
    throw NotFoundError("the checkpoint has no metadata key 'tokenizer.ggml.tokens'", file.where(),
                        "Export needs a checkpoint with its tokenizer");
  if (tokens->empty() || tokens->size() > kMaxTokens)
    fail(file, fmt::format("{} tokens in the vocabulary", tokens->size()));
  Vocabulary out;
  out.tokens = *tokens;
  out.kinds = read_kinds(file, tokens->size());
  out.ids.reserve(tokens->size());
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    const std::string_view text = (*tokens)[id];
    if (text.empty() || !character_starts(text)) fail(file, fmt::format("token {} is empty or not UTF-8", id));
    const auto [it, is_new] = out.ids.emplace(text, static_cast<std::uint32_t>(id));
    if (!is_new) fail(file, fmt::format("tokens {} and {} have the same text '{}'", it->second, id, text));
  }
  out.bos = read_id(file, "bos", tokens->size());
  out.eos = read_id(file, "eos", tokens->size());
  out.unknown = read_id(file, "unknown", tokens->size());
  out.padding = read_id(file, "padding", tokens->size());
  collect_ends(file, out);
  return out;
}

std::vector<Merge> read_merges(const GgufFile& file, const Vocabulary& vocabulary) {
  const auto* lines = file.find_strings("tokenizer.ggml.merges");
  if (!lines)
    throw NotFoundError("the checkpoint has no metadata key 'tokenizer.ggml.merges'", file.where(),
                        "Convert the model again with a current tool");
  std::vector<Merge> merges;
  merges.reserve(lines->size());
  std::string whole;
  for (const std::string_view line : *lines) {
    const std::size_t space = line.find(' ', 1);  // a part may start with a space, never end with one
    if (space == std::string_view::npos) fail(file, fmt::format("merge '{}' has no two parts", line));
    const Merge merge{line.substr(0, space), line.substr(space + 1)};
    whole.assign(merge.first).append(merge.second);
    for (const std::string_view part : {merge.first, merge.second, std::string_view(whole)})
      if (!vocabulary.ids.contains(part)) fail(file, fmt::format("merge '{}' names '{}', not a token", line, part));
    merges.push_back(merge);
  }
  return merges;
}

std::vector<Merge> merges_from_scores(const GgufFile& file, const Vocabulary& vocabulary) {
  const auto scores = file.find_floats("tokenizer.ggml.scores");
  if (!scores)
    throw NotFoundError("the checkpoint has no metadata key 'tokenizer.ggml.scores'", file.where(),
                        "Convert the model again with a current tool");
  if (scores->size() != vocabulary.tokens.size())
    fail(file, fmt::format("{} tokens but {} scores", vocabulary.tokens.size(), scores->size()));
  struct Ranked {
    float score;
    std::uint32_t whole, left, right;
    std::size_t left_characters;
  };
  std::vector<Ranked> ranked;
  const auto ordinary = [&](std::string_view text) -> std::optional<std::uint32_t> {
    const auto it = vocabulary.ids.find(text);
    if (it == vocabulary.ids.end() || vocabulary.kinds[it->second] != TokenKind::kNormal) return std::nullopt;
    return it->second;
  };
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.kinds[id] != TokenKind::kNormal) continue;
    if (!std::isfinite((*scores)[id])) fail(file, fmt::format("token {} has a score that is not finite", id));
    const std::string_view text = vocabulary.tokens[id];
    if (text.size() > kMaxSplitBytes) fail(file, fmt::format("token {} has {} bytes", id, text.size()));
    const auto starts = *character_starts(text);
    for (std::size_t c = 1; c + 1 < starts.size(); ++c) {
      const auto left = ordinary(text.substr(0, starts[c]));
      const auto right = left ? ordinary(text.substr(starts[c])) : std::nullopt;
      if (right) ranked.push_back({(*scores)[id], static_cast<std::uint32_t>(id), *left, *right, c});
    }
  }
  // Splits of one piece share its score: the longer left part first, then the order of the vocabulary.
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.left_characters != b.left_characters ? a.left_characters > b.left_characters : a.whole < b.whole;
  });
  std::vector<Merge> merges;
  merges.reserve(ranked.size());
  for (const Ranked& r : ranked) merges.emplace_back(vocabulary.tokens[r.left], vocabulary.tokens[r.right]);
  return merges;
}

}  // namespace coreai
