#include <string_view>

#include "coreai/text/tokenizer.h"

namespace coreai {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
// An incomplete character has at most 3 bytes, hence at most 3 tokens; one token before it makes decoders treat it as
// the middle of a text (some strip a space from the first token).
constexpr std::size_t kWindow = 4;

}  // namespace

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_(skip_special_tokens) {}

// `pending_` holds the last tokens, at most kWindow; `emitted_` counts the bytes of decode(pending_) that are out.
std::string StreamingDetokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  if (!tokenizer_.id_to_token(id)) return {};  // decode() skips unknown ids as well
  pending_.push_back(id);
  const std::string text = tokenizer_.decode(pending_, skip_special_);
  // Bytes at the end that do not form a character yet decode to one U+FFFD, which a later token may replace.
  const std::size_t held = text.ends_with(kReplacement) ? kReplacement.size() : 0;
  const std::size_t stable = text.size() - held;
  std::string out;
  if (stable > emitted_) {
    out = text.substr(emitted_, stable - emitted_);
    emitted_ = stable;
  }
  const std::size_t keep = held == 0 && !out.empty() ? 1 : kWindow;
  if (pending_.size() > keep) {
    pending_.erase(pending_.begin(), pending_.end() - static_cast<std::ptrdiff_t>(keep));
    emitted_ = tokenizer_.decode(pending_, skip_special_).size() - held;
  }
  return out;
}

std::string StreamingDetokenizer::finish() {
  const std::string text = tokenizer_.decode(pending_, skip_special_);
  std::string out = text.size() > emitted_ ? text.substr(emitted_) : std::string();
  pending_.clear();
  emitted_ = 0;
  return out;
}

}  // namespace coreai
