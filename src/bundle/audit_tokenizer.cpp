// The tokenizer's folder: is it complete, does it parse, does it belong to the model, does its chat template render.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bundle/audit_parts.h"
#include "bundle/generation_config.h"
#include "coreai/base/error.h"
#include "coreai/text/chat_template.h"
#include "coreai/text/tokenizer.h"

namespace coreai::audit {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLookBeyond = 4096;  // ids above the model's vocabulary that are asked for one by one
constexpr std::string_view kProbe = "Why is the sky blue?";
constexpr std::size_t kLongestMarker = 64;

std::string file_name(const Error& error) {
  return fs::path(error.where()).filename().string();
}

AuditRule rule_of_file(const std::string& name) {
  if (name == "generation_config.json") return AuditRule::kGenerationConfigMalformed;
  if (name == "tokenizer_config.json" || name == "special_tokens_map.json") return AuditRule::kTokenizerConfigMalformed;
  return AuditRule::kTokenizerMalformed;
}

class TokenizerAudit {
 public:
  TokenizerAudit(const TokenizerQuestion& question, Findings& findings)
      : question_(question), folder_(question.folder), findings_(findings) {}

  void run() {
    if (!files_are_there()) return;
    const std::optional<Tokenizer> tokenizer = open();
    if (tokenizer) {
      check_vocabulary(*tokenizer);
      check_special_tokens(*tokenizer);
      if (question_.chat) check_end_tokens(*tokenizer);
    }
    if (question_.chat) check_template(tokenizer);
  }

 private:
  void add(AuditRule rule, const fs::path& path, std::string_view sentence) { findings_.add(rule, path, sentence); }

  bool files_are_there() {
    std::error_code ignored;
    const fs::path file = folder_ / "tokenizer.json";
    if (!fs::exists(folder_, ignored)) {
      add(AuditRule::kTokenizerMissing, file, "the bundle has no tokenizer: tokenizer.json is missing");
      return false;
    }
    if (!fs::is_directory(folder_, ignored)) {
      add(AuditRule::kTokenizerMissing, folder_, "a file stands where the tokenizer's folder belongs");
      return false;
    }
    if (!fs::exists(file, ignored)) {
      add(AuditRule::kTokenizerMissing, file, "tokenizer.json is missing");
      return false;
    }
    if (fs::is_regular_file(file, ignored) && fs::file_size(file, ignored) == 0) {
      add(AuditRule::kTokenizerEmpty, file, "tokenizer.json has no bytes");
      return false;
    }
    if (!fs::exists(folder_ / "tokenizer_config.json", ignored))
      add(AuditRule::kTokenizerConfigMissing, folder_ / "tokenizer_config.json", "tokenizer_config.json is missing");
    return true;
  }

  std::optional<Tokenizer> open() {
    try {
      Tokenizer tokenizer = Tokenizer::from_directory(folder_);
      if (tokenizer.vocab_size() > 0) return tokenizer;
      add(AuditRule::kTokenizerEmpty, folder_ / "tokenizer.json", "the tokenizer's vocabulary is empty");
    } catch (const Error& error) {
      add(rule_of_file(file_name(error)), fs::path(error.where()), error.problem());
    }
    return std::nullopt;
  }

  void check_vocabulary(const Tokenizer& tokenizer) {
    if (!question_.vocab_size) return;
    const std::int64_t size = *question_.vocab_size;
    const auto known = static_cast<std::int64_t>(tokenizer.vocab_size());
    const fs::path file = folder_ / "tokenizer.json";
    if (size > 0 && known < size / 2)
      add(AuditRule::kVocabularySmall, file,
          fmt::format("the tokenizer has {} tokens, the model's vocabulary {}", known, size));
    std::string special;
    constexpr std::int64_t kLastId = std::numeric_limits<TokenId>::max();
    const std::int64_t end = std::min(std::min(std::max(size, known), kLastId) + kLookBeyond, kLastId);
    for (std::int64_t id = std::max<std::int64_t>(size, 0); id < end; ++id) {
      const auto token = tokenizer.id_to_token(static_cast<TokenId>(id));
      if (!token) continue;
      if (!tokenizer.is_special(static_cast<TokenId>(id))) {
        add(AuditRule::kVocabularyOutside, file,
            fmt::format("the token '{}' has the id {}, the model's vocabulary has {}", excerpt(*token), id, size));
        return;
      }
      if (special.empty()) special = fmt::format("'{}' has the id {}", excerpt(*token), id);
    }
    if (!special.empty())
      add(AuditRule::kSpecialOutside, file,
          fmt::format("the special token {}, the model's vocabulary has {}", special, size));
  }

  void check_special_tokens(const Tokenizer& tokenizer) {
    const fs::path file = folder_ / "tokenizer_config.json";
    for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token"}) {
      const auto token = tokenizer.special_token(key);
      if (!token || tokenizer.token_to_id(*token)) continue;
      const bool end = std::string_view(key) == "eos_token";
      add(end ? AuditRule::kEndTokenUnknown : AuditRule::kSpecialTokenUnknown, file,
          fmt::format("{} is '{}', which the tokenizer does not know", key, excerpt(*token)));
    }
  }

  void check_end_tokens(const Tokenizer& tokenizer) {
    const auto ids = tokenizer.end_ids();
    if (ids.empty() && !findings_.has(AuditRule::kEndTokenUnknown))
      add(AuditRule::kEndTokenMissing, folder_ / "tokenizer_config.json", "nothing names an end token");
    check_generation_config(folder_);
    check_generation_config(findings_.root());
  }

  // As the runtime reads it: what that refuses is a finding.
  void check_generation_config(const fs::path& folder) {
    const fs::path file = folder / "generation_config.json";
    try {
      for (const std::int32_t id : metadata::read_end_tokens(folder))
        if (question_.vocab_size && id >= *question_.vocab_size)
          add(AuditRule::kEndTokenUnknown, file,
              fmt::format("eos_token_id is {}, the model's vocabulary has {}", id, *question_.vocab_size));
    } catch (const Error& error) {
      add(AuditRule::kGenerationConfigMalformed, file, error.problem());
    }
  }

  void check_template(const std::optional<Tokenizer>& tokenizer) {
    std::error_code ignored;
    const bool own_file = fs::exists(folder_ / "chat_template.jinja", ignored);
    const fs::path file = folder_ / (own_file ? "chat_template.jinja" : "tokenizer_config.json");
    try {
      const auto chat = ChatTemplate::from_directory(folder_);
      if (!chat) {
        add(AuditRule::kTemplateMissing, folder_, "there is no chat template");
        return;
      }
      render(*chat, tokenizer, file);
    } catch (const Error& error) {
      // A configuration that does not parse has been reported with the tokenizer.
      if (findings_.has(AuditRule::kTokenizerConfigMalformed)) return;
      add(AuditRule::kTemplateMalformed, file, error.what());
    }
  }

  void render(const ChatTemplate& chat, const std::optional<Tokenizer>& tokenizer, const fs::path& file) {
    std::string text;
    try {
      text = chat.render({{"user", std::string(kProbe)}});
    } catch (const Error& error) {
      add(AuditRule::kTemplateFails, file, fmt::format("a single user message does not render: {}", error.what()));
      return;
    }
    if (text.find(kProbe) == std::string::npos)
      add(AuditRule::kTemplateDropsMessage, file, "what the user says is not in the rendered prompt");
    if (tokenizer) check_markers(text, *tokenizer, file);
  }

  // "<|name|>" stands for one token; a template of another model writes markers that fall into pieces.
  void check_markers(const std::string& text, const Tokenizer& tokenizer, const fs::path& file) {
    std::set<std::string> seen;
    for (std::size_t at = text.find("<|"); at != std::string::npos; at = text.find("<|", at + 2)) {
      const std::size_t end = text.find("|>", at + 2);
      if (end == std::string::npos || end - at > kLongestMarker) continue;
      const std::string marker = text.substr(at, end + 2 - at);
      if (!seen.insert(marker).second || tokenizer.token_to_id(marker)) continue;
      add(AuditRule::kTemplateTokenUnknown, file,
          fmt::format("the template writes '{}', which is not a token of the tokenizer", excerpt(marker)));
      return;
    }
  }

  const TokenizerQuestion& question_;
  fs::path folder_;
  Findings& findings_;
};

}  // namespace

void audit_tokenizer(const TokenizerQuestion& question, Findings& findings) {
  TokenizerAudit(question, findings).run();
}

}  // namespace coreai::audit
